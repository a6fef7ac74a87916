/** Routes of jobs: read, run, toggle, delete. `submits.ts` has those that define them. */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {PlannedTimes} from '../../wire/cluster.ts'
import {Job} from '../../wire/job.ts'
import {JobListQuery, PlannedQuery, readJobQuery, readPlannedRange} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {creates, deletes, lists, reads} from '../security/access.ts'
import {describeRoute} from '../api/openapi.ts'
import {
  encodeJobFor,
  type ListParts,
  sendChangedJob,
  sendJob,
  sendJson,
  sendList,
} from '../api/reply.ts'
import {actorOf, callerOf, queryOf, readIdempotencyKey, readIfMatch} from '../api/request.ts'

export type JobRequest = FastifyRequest<{Params: {name: string}}>

export const NAME_PARAM = {name: 'Name of the job.'}
export const UNKNOWN_JOB = {404: 'There is no such job.'}
export const LIST_REFUSALS = {
  400: 'A parameter is invalid.',
  503: 'Too many lists without `_end` are in progress, or the store does not answer.',
}
export const REVISION_HEADERS = {
  'if-match': Type.Optional(Type.String({description: 'The `ETag` the job must have.'})),
}
export const IDEMPOTENCY_HEADERS = {
  'idempotency-key': Type.Optional(
    Type.String({description: 'A repeated request with the same key takes effect once (24 h).'}),
  ),
}
export const SUBMIT_REFUSALS = {
  400: 'The job is invalid, or the body is not JSON.',
  404: 'The parent job does not exist.',
  409: 'A request with this idempotency key is in progress.',
  412: 'The precondition does not hold.',
  413: 'The body is too large.',
  415: 'The body is compressed.',
  422: 'The idempotency key was used for another request.',
  503: 'Submissions are paused, or the store does not answer.',
}

export function jobPath(name: string): string {
  return `/v1/jobs/${encodeURIComponent(name)}`
}

export function routeJobs(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  routeRuns(app, operations)
  routeChanges(app, operations)
  routeReads(app, operations, parts)
}

function routeReads(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  app.get('/jobs', {
    config: {access: lists('/v1/jobs')},
    schema: describeRoute({
      operationId: 'listJobs',
      summary: 'List jobs',
      tag: 'jobs',
      query: JobListQuery,
      reply: Type.Array(schemaRef(Job)),
      refusals: LIST_REFUSALS,
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
    config: {access: reads('/v1/jobs/:name')},
    schema: describeRoute({
      operationId: 'getJob',
      summary: 'Read a job',
      tag: 'jobs',
      params: NAME_PARAM,
      reply: schemaRef(Job),
      refusals: UNKNOWN_JOB,
    }),
    handler: async (request: JobRequest, reply) =>
      sendJob(request, reply, 200, await operations.job(request.params.name)),
  })
  app.get('/jobs/:name/next', {
    config: {access: reads('/v1/jobs/:name/next')},
    schema: describeRoute({
      operationId: 'nextTimes',
      summary: 'The next planned times of a job',
      tag: 'jobs',
      params: NAME_PARAM,
      query: Type.Object(PlannedQuery),
      reply: schemaRef(PlannedTimes),
      refusals: {400: 'A parameter is invalid.', ...UNKNOWN_JOB},
    }),
    handler: async (request: JobRequest, reply) => {
      const range = readPlannedRange(queryOf(request))
      return sendJson(request, reply, 200, await operations.next(request.params.name, range))
    },
  })
}

function routeRuns(app: FastifyInstance, operations: Operations): void {
  const run = async (request: JobRequest, reply: FastifyReply) => {
    const {name} = request.params
    const {job, group} = await operations.run({
      caller: callerOf(request),
      actor: actorOf(request),
      name,
      forced: queryOf(request).isSet('force'),
      idempotencyKey: readIdempotencyKey(request.headers),
    })
    reply.header('x-launch-id', String(group))
    reply.header('location', `${jobPath(name)}/launches/${group}`)
    return sendChangedJob(request, reply, 202, job)
  }
  const ownPath = '/v1/jobs/:name/run'
  for (const [url, operationId, access] of [
    ['/jobs/:name', 'runJob', creates('/v1/jobs/:name', ownPath)],
    ['/jobs/:name/run', 'runJobAlias', creates(ownPath)],
  ] as const) {
    app.post(url, {
      config: {access},
      schema: describeRoute({
        operationId,
        summary: 'Run a job now',
        tag: 'jobs',
        params: NAME_PARAM,
        query: Type.Object({
          force: Type.Optional(Type.String({description: 'Ignore `concurrency: forbid`.'})),
        }),
        headers: IDEMPOTENCY_HEADERS,
        status: 202,
        reply: schemaRef(Job),
        refusals: {
          400: 'The idempotency key is empty or too long.',
          ...UNKNOWN_JOB,
          409: 'A launch is open under `forbid`, no node matches, or a request with this key is in progress.',
          422: 'The idempotency key was used for another request.',
        },
      }),
      handler: run,
    })
  }
}

/** Access path of toggling, enabling and disabling. */
const TOGGLE_PATH = '/v1/jobs/:name/toggle'
const SWITCHES = [
  ['toggle', 'Enable a job that is disabled, disable one that is enabled', {}],
  ['enable', 'Enable a job; no change if it is enabled', {disabled: false}],
  ['disable', 'Disable a job: it gets no planned times; no change if it is', {disabled: true}],
] as const

function routeChanges(app: FastifyInstance, operations: Operations): void {
  for (const [verb, summary, wanted] of SWITCHES) {
    app.post(`/jobs/:name/${verb}`, {
      config: {access: creates(`/v1/jobs/:name/${verb}`, TOGGLE_PATH)},
      schema: describeRoute({
        operationId: `${verb}Job`,
        summary,
        tag: 'jobs',
        params: NAME_PARAM,
        headers: REVISION_HEADERS,
        reply: schemaRef(Job),
        refusals: {...UNKNOWN_JOB, 412: 'The precondition does not hold.'},
      }),
      handler: async (request: JobRequest, reply) => {
        const {name} = request.params
        const match = readIfMatch(request.headers)
        const job = await operations.toggle({name, match, actor: actorOf(request), ...wanted})
        return sendChangedJob(request, reply, 200, job)
      },
    })
  }
  app.delete('/jobs/:name', {
    config: {access: deletes('/v1/jobs/:name')},
    schema: describeRoute({
      operationId: 'deleteJob',
      summary: 'Delete a job and its history',
      tag: 'jobs',
      params: NAME_PARAM,
      headers: REVISION_HEADERS,
      reply: schemaRef(Job),
      refusals: {
        ...UNKNOWN_JOB,
        409: 'Other jobs depend on it.',
        412: 'The precondition does not hold.',
      },
    }),
    handler: async (request: JobRequest, reply) => {
      const match = readIfMatch(request.headers)
      const job = await operations.deleteJob({
        name: request.params.name,
        match,
        caller: callerOf(request),
        actor: actorOf(request),
      })
      return sendChangedJob(request, reply, 200, job)
    },
  })
}
