/** Routes of planned times: those of a stored job, and of a schedule that is not stored. */
import type {FastifyInstance} from 'fastify'
import {Type} from 'typebox'
import {formatOptionalTime, formatTime} from '../../lib/rfc3339.ts'
import type {Operations} from '../../operations/operations.ts'
import type {PlannedTimes as Planned} from '../../operations/schedules.ts'
import {PlannedTimes, type PlannedTimesJson} from '../../wire/planned.ts'
import {PlannedQuery, readPlannedRange} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {queryOf} from '../api/request.ts'
import {type JobRequest, NAME_PARAM} from './jobs.ts'

export function routePlanned(app: FastifyInstance, operations: Operations): void {
  app.get('/schedules/preview', {
    ...describeRoute({
      access: reads('/v1/schedules/preview'),
      operationId: 'previewSchedule',
      summary: 'The next planned times of a schedule',
      description: 'For a schedule that belongs to no job yet. [The reply](schedules.md#preview).',
      tag: 'cluster',
      query: Type.Object({
        schedule: Type.String({description: 'The schedule.', minLength: 1}),
        timezone: Type.Optional(Type.String({description: 'IANA time zone; empty = the default.'})),
        name: Type.Optional(Type.String({description: 'Job name, the seed of `~`.'})),
        ...PlannedQuery,
      }),
      reply: schemaRef(PlannedTimes),
      errors: ['schedule_invalid'],
    }),
    handler: async (request, reply) => {
      const query = queryOf(request)
      const planned = await operations.preview({
        schedule: query.first('schedule') ?? '',
        timezone: query.first('timezone') ?? '',
        name: query.first('name') ?? '',
        range: readPlannedRange(query),
      })
      return sendJson(request, reply, 200, encodePlanned(planned))
    },
  })
  app.get('/jobs/:name/next', {
    ...describeRoute({
      access: reads('/v1/jobs/:name/next'),
      operationId: 'nextTimes',
      summary: 'The next planned times of a job',
      description: '[The reply](schedules.md#preview).',
      tag: 'jobs',
      params: NAME_PARAM,
      query: Type.Object(PlannedQuery),
      reply: schemaRef(PlannedTimes),
      errors: ['job_unknown', 'schedule_invalid'],
    }),
    handler: async (request: JobRequest, reply) => {
      const range = readPlannedRange(queryOf(request))
      const planned = await operations.next(request.params.name, range)
      return sendJson(request, reply, 200, encodePlanned(planned))
    },
  })
}

function encodePlanned({times, changes, ...planned}: Planned): PlannedTimesJson {
  return {
    schedule: planned.schedule,
    timezone: planned.timezone,
    next: times.map(({at}) => formatTime(at)),
    more: planned.more,
    reason: planned.reason,
    paused: planned.paused,
    paused_until: formatOptionalTime(planned.pausedUntil),
    planned: times.map((time) => ({
      at: formatTime(time.at),
      local: localText(time.at, time.offsetMs),
      shift: time.shift,
      moved_from: time.plannedWall === null ? '' : wallText(time.plannedWall),
    })),
    clock_changes: changes.map((change) => ({
      at: formatTime(change.at),
      before: offsetText(change.offsetBeforeMs),
      after: offsetText(change.offsetAfterMs),
    })),
  }
}

function localText(at: number, offsetMs: number): string {
  return `${wallText(at + offsetMs)}${offsetText(offsetMs)}`
}

function wallText(wall: number): string {
  return new Date(wall).toISOString().slice(0, 19)
}

/** RFC 3339 has no seconds in offsets, which some zones had long ago. */
function offsetText(offsetMs: number): string {
  const minutes = Math.round(Math.abs(offsetMs) / 60_000)
  const two = (value: number) => String(value).padStart(2, '0')
  return `${offsetMs < 0 ? '-' : '+'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`
}
