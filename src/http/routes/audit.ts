/** Routes of the audit log, and of the history of a job's definition. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {
  AuditEntry,
  AuditListQuery,
  encodeAuditEntry,
  encodeDiff,
  encodeRevision,
  encodeRevisionDefinition,
  readAuditQuery,
  Revision,
  RevisionDefinition,
  RevisionDiff,
} from '../../wire/audit.ts'
import {Job} from '../../wire/job.ts'
import {PAGE_ROWS_MAX, PageQuery, readSlice} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {lists, reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {type ListParts, sendJob, sendJson, sendRows, setWarnings} from '../api/reply.ts'
import {actorOf, callerOf, queryOf, readIdempotency, readIfMatch} from '../api/request.ts'
import {
  IDEMPOTENCY_HEADERS,
  type JobRequest,
  NAME_PARAM,
  REVISION_HEADERS,
  SUBMIT_ERRORS,
} from './jobs.ts'

type RevisionRequest = FastifyRequest<{Params: {name: string; revision: string}}>

const REVISION_PARAMS = {...NAME_PARAM, revision: 'Number of the revision.'}
const UNKNOWN_REVISION = ['job_unknown', 'revision_unknown'] as const

export function routeAudit(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  app.get('/audit', {
    ...describeRoute({
      access: lists('/v1/audit'),
      operationId: 'listAudit',
      summary: 'The audit log: every change and every refused access, newest first',
      description:
        '[Its entries](../how-to/access.md#who-changed-what); at most 1,000 in a response. ' +
        'A `client` token sees the entries of the jobs that it may read, and no others; ' +
        'without the definitions of deleted jobs.',
      tag: 'administration',
      query: AuditListQuery,
      reply: Type.Array(schemaRef(AuditEntry)),
    }),
    handler: async (request, reply) => {
      const page = await operations.audit(readAuditQuery(queryOf(request)), callerOf(request))
      return sendRows(request, reply, parts.clock, page, encodeAuditEntry)
    },
  })
  routeRevisions(app, operations, parts)
  routeRevert(app, operations)
}

/** Routes of revisions. Access as for reading the job. */
function routeRevisions(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  const access = reads('/v1/jobs/:name')
  app.get('/jobs/:name/revisions', {
    ...describeRoute({
      access,
      operationId: 'listRevisions',
      summary: 'List the revisions of a job: who changed it, newest first',
      description:
        '[The history of a job](../how-to/access.md#the-history-of-a-job); at most 1,000 in a response.',
      tag: 'history',
      params: NAME_PARAM,
      query: PageQuery,
      reply: Type.Array(schemaRef(Revision)),
      errors: ['job_unknown'],
    }),
    handler: async (request: JobRequest, reply) => {
      const slice = readSlice(queryOf(request), PAGE_ROWS_MAX)
      const page = await operations.revisions(request.params.name, slice)
      return sendRows(request, reply, parts.clock, page, encodeRevision)
    },
  })
  app.get('/jobs/:name/revisions/:revision', {
    ...describeRoute({
      access,
      operationId: 'getRevision',
      summary: 'Read a revision of a job, with its definition',
      tag: 'history',
      params: REVISION_PARAMS,
      reply: schemaRef(RevisionDefinition),
      errors: UNKNOWN_REVISION,
    }),
    handler: async (request: RevisionRequest, reply) => {
      const {name, revision} = request.params
      const found = await operations.revision(name, revision)
      return sendJson(request, reply, 200, encodeRevisionDefinition(found))
    },
  })
  app.get('/jobs/:name/revisions/:revision/diff', {
    ...describeRoute({
      access,
      operationId: 'diffRevisions',
      summary: 'What a revision changed, or what differs from another revision',
      description: 'The reply has the values `before` and `after`.',
      tag: 'history',
      params: REVISION_PARAMS,
      query: Type.Object({
        with: Type.Optional(
          Type.String({description: 'The earlier revision; absent = the one before.'}),
        ),
      }),
      reply: schemaRef(RevisionDiff),
      errors: UNKNOWN_REVISION,
    }),
    handler: async (request: RevisionRequest, reply) => {
      const {name, revision} = request.params
      const diff = await operations.diff(name, revision, queryOf(request).text('with'))
      return sendJson(request, reply, 200, encodeDiff(diff))
    },
  })
}

function routeRevert(app: FastifyInstance, operations: Operations): void {
  app.post('/jobs/:name/revisions/:revision/restore', {
    ...describeRoute({
      access: 'body',
      operationId: 'restoreRevision',
      summary: 'Make the definition of an earlier revision the current one',
      description: 'As a submit of that definition, with all its checks. It is a new revision.',
      tag: 'history',
      params: REVISION_PARAMS,
      headers: {...REVISION_HEADERS, ...IDEMPOTENCY_HEADERS},
      reply: schemaRef(Job),
      errors: [...SUBMIT_ERRORS, ...UNKNOWN_REVISION],
    }),
    handler: async (request: RevisionRequest, reply) => {
      const {name, revision} = request.params
      const {job, warnings} = await operations.revert({
        caller: callerOf(request),
        actor: actorOf(request),
        name,
        revision,
        ifMatch: readIfMatch(request.headers),
        idempotency: readIdempotency(request.headers, ['revert', name, revision]),
      })
      setWarnings(reply, warnings)
      return sendJob(request, reply, 200, job)
    },
  })
}
