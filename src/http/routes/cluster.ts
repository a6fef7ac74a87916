/**
 * Routes about the service and its cluster: status, members, leading, leaving, pausing, schedules, events,
 * the document.
 */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import Type from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {COUNT_FALLBACK, COUNT_LIMITS} from '../../operations/schedules.ts'
import {encodeMember, Member, PauseStatus, PlannedTimes, Status} from '../../wire/cluster.ts'
import {PageQuery, readSlice} from '../../wire/query.ts'
import {Refer} from '../../wire/shapes.ts'
import type {EventStreams} from '../event-streams.ts'
import {describe} from '../openapi.ts'
import type {HttpOptions} from '../options.ts'
import {queryOf, sendJson, sendRows} from '../reply.ts'

export function routeCluster(
  app: FastifyInstance,
  operations: Operations,
  options: HttpOptions,
  events: EventStreams,
): void {
  app.get('/', {
    schema: describe({
      operationId: 'getStatus',
      summary: 'Details of the node that answers',
      tag: 'cluster',
      answer: Refer(Status),
    }),
    handler: async (request, reply) => sendJson(request, reply, 200, await operations.status()),
  })
  routeMembers(app, operations, options)
  routePause(app, operations)
  routePreview(app, operations)
  app.get('/events', {
    exposeHeadRoute: false,
    config: {streams: true},
    schema: describe({
      operationId: 'followEvents',
      summary: 'Everything that happens in this server, as server-sent events',
      tag: 'cluster',
      answer: Type.String(),
      answerType: 'text/event-stream',
    }),
    handler: (_request, reply) => events.open(reply),
  })
}

function routeMembers(app: FastifyInstance, operations: Operations, options: HttpOptions): void {
  app.get('/members', {
    schema: describe({
      operationId: 'listMembers',
      summary: 'The nodes of the cluster',
      tag: 'cluster',
      query: PageQuery,
      answer: Type.Array(Refer(Member)),
      refusals: {400: 'A parameter is invalid.'},
    }),
    handler: async (request, reply) => {
      const {start, end} = readSlice(queryOf(request))
      const all = await operations.members()
      const page = {total: all.length, rows: all.slice(start, end ?? all.length)}
      return sendRows(request, reply, options.clock, page, encodeMember)
    },
  })
  app.delete('/members/:member', {
    schema: describe({
      operationId: 'removeMember',
      summary: 'Remove a member that has left or failed',
      description:
        'What it still ran becomes `lost` and is retried as its job says; what was pending for it is given ' +
        'to other nodes. A node that was only cut off joins again when it is back.',
      tag: 'cluster',
      params: {member: 'Id of the member, or its name if only one such member has left or failed.'},
      answer: Refer(Member),
      refusals: {
        404: 'There is no such member.',
        409: 'It is alive or leaving, or several members of this name have left or failed.',
      },
    }),
    handler: async (request: FastifyRequest<{Params: {member: string}}>, reply) => {
      const removed = await operations.removeMember(request.params.member)
      return sendJson(request, reply, 200, encodeMember(removed))
    },
  })
  app.get('/leader', {
    schema: describe({
      operationId: 'getLeader',
      summary: 'The server that leads',
      tag: 'cluster',
      answer: Refer(Member),
      refusals: {503: 'No server leads, or the store does not answer.'},
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, encodeMember(await operations.leader())),
  })
  app.get('/isleader', {
    schema: describe({
      operationId: 'isLeader',
      summary: 'Whether this server leads: 200, or 404 with an empty body',
      tag: 'cluster',
      answer: Type.String(),
      refusals: {404: 'It follows. The body is empty.'},
    }),
    handler: (request, reply) =>
      operations.isLeader()
        ? sendJson(request, reply, 200, 'I am a leader')
        : reply.code(404).send(),
  })
  app.post('/leave', {
    schema: describe({
      operationId: 'leave',
      summary: 'Let this node finish its work, leave the cluster and end',
      tag: 'cluster',
      answer: Type.Array(Refer(Member)),
    }),
    handler: async (request, reply) => {
      const members = await operations.leave()
      return sendJson(request, reply, 200, members.map(encodeMember))
    },
  })
}

function routePause(app: FastifyInstance, operations: Operations): void {
  app.get('/pause', {
    schema: describe({
      operationId: 'getPause',
      summary: 'Whether submissions are paused',
      tag: 'administration',
      answer: Refer(PauseStatus),
    }),
    handler: async (request, reply) => sendJson(request, reply, 200, await operations.paused()),
  })
  const set = (paused: boolean) => async (request: FastifyRequest, reply: FastifyReply) =>
    sendJson(request, reply, 200, await operations.setPaused(paused))
  app.post('/pause', {
    schema: describe({
      operationId: 'pause',
      summary: 'Pause submissions: no job can be created or changed',
      tag: 'administration',
      answer: Refer(PauseStatus),
    }),
    handler: set(true),
  })
  app.post('/unpause', {
    schema: describe({
      operationId: 'unpause',
      summary: 'Resume submissions',
      tag: 'administration',
      answer: Refer(PauseStatus),
    }),
    handler: set(false),
  })
}

function routePreview(app: FastifyInstance, operations: Operations): void {
  app.get('/schedules/preview', {
    schema: describe({
      operationId: 'previewSchedule',
      summary: 'The next planned times of a schedule',
      tag: 'cluster',
      query: Type.Object({
        schedule: Type.String({description: 'The schedule.'}),
        timezone: Type.Optional(Type.String({description: 'IANA zone; empty = the default.'})),
        name: Type.Optional(Type.String({description: 'A job name, for `~`.'})),
        count: Type.Optional(
          Type.Integer({
            ...COUNT_LIMITS,
            default: COUNT_FALLBACK,
            description: 'How many planned times.',
          }),
        ),
      }),
      answer: Refer(PlannedTimes),
      refusals: {400: 'The schedule or a parameter is invalid.'},
    }),
    handler: (request, reply) => {
      const query = queryOf(request)
      const planned = operations.preview({
        schedule: query.first('schedule') ?? '',
        timezone: query.first('timezone') ?? '',
        name: query.first('name') ?? '',
        count: query.integer('count', COUNT_FALLBACK, COUNT_LIMITS),
      })
      return sendJson(request, reply, 200, planned)
    },
  })
}
