/** Routes of jobs: read, run, toggle, delete. `submits.ts` has those that define them. */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {ErrorCode} from '../../core/error-codes.ts'
import type {Operations} from '../../operations/operations.ts'
import {Job} from '../../wire/job.ts'
import {JobListQuery, readJobQuery} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {creates, deletes, lists, reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {launchLocation} from '../api/paths.ts'
import {encodeJobFor, type ListParts, sendJob, sendList} from '../api/reply.ts'
import {actorOf, callerOf, queryOf, readIdempotency, readIfMatch} from '../api/request.ts'

export type JobRequest = FastifyRequest<{Params: {name: string}}>

export const NAME_PARAM = {name: 'Name of the job.'}
export const REVISION_HEADERS = {
  'if-match': Type.Optional(Type.String({description: 'The `ETag` the job must have.'})),
}
export const IDEMPOTENCY_HEADERS = {
  'idempotency-key': Type.Optional(
    Type.String({description: 'A repeated request with the same key takes effect once (24 h).'}),
  ),
}
export const SUBMIT_ERRORS = [
  'job_invalid',
  'parent_unknown',
  'submissions_paused',
] as const satisfies readonly ErrorCode[]

export function routeJobs(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  routeRuns(app, operations)
  routeChanges(app, operations)
  routeReads(app, operations, parts)
}

function routeReads(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  app.get('/jobs', {
    ...describeRoute({
      access: lists('/v1/jobs'),
      operationId: 'listJobs',
      isOfContract: true,
      summary: 'List jobs',
      description: 'All of them, unless `_end` is set.',
      tag: 'jobs',
      query: JobListQuery,
      reply: Type.Array(schemaRef(Job)),
      errors: ['too_many_lists'],
    }),
    handler: async (request, reply) => {
      const query = readJobQuery(queryOf(request))
      return sendList(request, reply, parts, {
        slice: query,
        read: () => operations.jobs(query, callerOf(request)),
        encode: (job) => encodeJobFor(request, job),
      })
    },
  })
  app.get('/jobs/:name', {
    ...describeRoute({
      access: reads('/v1/jobs/:name'),
      operationId: 'getJob',
      isOfContract: true,
      summary: 'Read a job',
      tag: 'jobs',
      params: NAME_PARAM,
      reply: schemaRef(Job),
      errors: ['job_unknown'],
    }),
    handler: async (request: JobRequest, reply) =>
      sendJob(request, reply, 200, await operations.job(request.params.name)),
  })
}

function routeRuns(app: FastifyInstance, operations: Operations): void {
  const run = async (request: JobRequest, reply: FastifyReply) => {
    const {name} = request.params
    const forced = queryOf(request).isSet('force')
    const {job, group} = await operations.run({
      caller: callerOf(request),
      actor: actorOf(request),
      name,
      forced,
      idempotency: readIdempotency(request.headers, ['run', name, forced ? 'force' : '']),
    })
    reply.header('x-launch-id', String(group))
    reply.header('location', launchLocation(name, group))
    return sendJob(request, reply, 202, job)
  }
  const ownPath = '/v1/jobs/:name/run'
  for (const [url, operationId, access] of [
    ['/jobs/:name', 'runJob', creates('/v1/jobs/:name', ownPath)],
    ['/jobs/:name/run', 'runJobAlias', creates(ownPath)],
  ] as const) {
    app.post(url, {
      ...describeRoute({
        access,
        operationId,
        isOfContract: true,
        summary: 'Run a job now',
        description: 'The reply names the launch in `X-Launch-Id` and `Location`.',
        tag: 'jobs',
        params: NAME_PARAM,
        query: Type.Object({
          force: Type.Optional(Type.String({description: 'Ignore `concurrency: forbid`.'})),
        }),
        headers: IDEMPOTENCY_HEADERS,
        status: 202,
        reply: schemaRef(Job),
        errors: ['job_unknown', 'launch_open', 'no_target', 'too_many_runs'],
      }),
      handler: run,
    })
  }
}

/** Access path of toggling, enabling and disabling. */
const TOGGLE_PATH = '/v1/jobs/:name/toggle'
const SWITCHES = [
  ['toggle', 'Enable a job that is disabled, disable one that is enabled', {}],
  ['enable', 'Enable a job; no new revision if it is enabled', {disabled: false}],
  [
    'disable',
    'Disable a job: it gets no planned times, and can be run by hand; no new revision if it is',
    {disabled: true},
  ],
] as const

function routeChanges(app: FastifyInstance, operations: Operations): void {
  for (const [verb, summary, wanted] of SWITCHES) {
    app.post(`/jobs/:name/${verb}`, {
      ...describeRoute({
        access: creates(`/v1/jobs/:name/${verb}`, TOGGLE_PATH),
        operationId: `${verb}Job`,
        isOfContract: verb === 'toggle',
        summary,
        tag: 'jobs',
        params: NAME_PARAM,
        headers: REVISION_HEADERS,
        reply: schemaRef(Job),
        errors: ['job_unknown'],
      }),
      handler: async (request: JobRequest, reply) => {
        const {name} = request.params
        const match = readIfMatch(request.headers)
        const job = await operations.toggle({name, match, actor: actorOf(request), ...wanted})
        return sendJob(request, reply, 200, job)
      },
    })
  }
  app.delete('/jobs/:name', {
    ...describeRoute({
      access: deletes('/v1/jobs/:name'),
      operationId: 'deleteJob',
      isOfContract: true,
      summary: 'Delete a job and its history',
      description: 'Its running executions are ended.',
      tag: 'jobs',
      params: NAME_PARAM,
      headers: REVISION_HEADERS,
      reply: schemaRef(Job),
      errors: ['job_unknown', 'job_has_dependents'],
    }),
    handler: async (request: JobRequest, reply) => {
      const match = readIfMatch(request.headers)
      const job = await operations.deleteJob({
        name: request.params.name,
        match,
        caller: callerOf(request),
        actor: actorOf(request),
      })
      return sendJob(request, reply, 200, job)
    },
  })
}
