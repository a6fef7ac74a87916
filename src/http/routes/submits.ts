/** Routes that define jobs: submit, merge patch, and their dry runs. */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import {sentenceOf} from '../../core/findings.ts'
import {formatInZone} from '../../lib/rfc3339.ts'
import type {DryRun as DryRunRecord} from '../../operations/dry-run.ts'
import type {Operations} from '../../operations/operations.ts'
import type {SubmitReply} from '../../operations/submit.ts'
import {decodeDefinition, decodePatch} from '../../wire/definition.ts'
import {type DryRunJson, DryRun} from '../../wire/dry-run.ts'
import {Job, JobDefinition, JobPatch} from '../../wire/job.ts'
import {Strict} from '../../wire/query.ts'
import {schemaName, schemaRef} from '../../wire/shapes.ts'
import {describeRoute} from '../api/describe-route.ts'
import {jobLocation} from '../api/paths.ts'
import {sendJob, sendJson, setIgnoredFields, setWarnings} from '../api/reply.ts'
import {
  actorOf,
  bodyOf,
  callerOf,
  isDryRun,
  queryOf,
  readCreateOnly,
  readIdempotency,
  readIfMatch,
} from '../api/request.ts'
import {
  IDEMPOTENCY_HEADERS,
  type JobRequest,
  NAME_PARAM,
  REVISION_HEADERS,
  SUBMIT_ERRORS,
} from './jobs.ts'

const CheckQuery = Type.Object({
  strict: Strict,
  warnings: Type.Optional(
    Type.Boolean({description: 'The reply has the warnings also in its body, as `warnings`.'}),
  ),
  dry_run: Type.Optional(
    Type.Boolean({
      description:
        `Store nothing. The reply is 200 and a \`${schemaName(DryRun)}\`: whether the definition is valid, ` +
        'what would be done, all errors and warnings, the next planned times and the nodes.',
    }),
  ),
})
const SubmitQuery = Type.Object({
  runoncreate: Type.Optional(
    Type.String({description: 'Runs the job once after success. Any value counts.'}),
  ),
  ...CheckQuery.properties,
})

export function routeSubmits(app: FastifyInstance, operations: Operations): void {
  const submit = async (request: FastifyRequest, reply: FastifyReply, pathName: string | null) => {
    const {headers} = request
    const body = bodyOf(request)
    const runOnCreate = queryOf(request).has('runoncreate')
    const call = {
      ...readCall(request),
      definition: decodeDefinition(body, pathName),
      pathName,
      createOnly: readCreateOnly(headers),
      runOnCreate,
      idempotency: readIdempotency(headers, [pathName ?? '', runOnCreate ? 'run' : '', body]),
    }
    if (isDryRun(request)) return sendDryRun(request, reply, await operations.dryRun(call))
    return sendSubmitted(request, reply, 201, await operations.submit(call))
  }
  const shared = {
    tag: 'jobs',
    query: SubmitQuery,
    headers: {
      ...REVISION_HEADERS,
      ...IDEMPOTENCY_HEADERS,
      'if-none-match': Type.Optional(
        Type.String({description: '`*`: create only, never replace.'}),
      ),
    },
    body: schemaRef(JobDefinition),
    status: 201,
    reply: schemaRef(Job),
    errors: [...SUBMIT_ERRORS, 'too_many_runs'],
    access: 'body',
    submit: true,
    description:
      'A field that is not sent is not set. See also [dry runs](#dry-runs) and ' +
      '[conditional writes](#conditional-writes).',
  } as const
  for (const [method, operationId] of [
    ['POST', 'submitJob'],
    ['PATCH', 'patchJob'],
  ] as const) {
    app.route({
      method,
      url: '/jobs',
      ...describeRoute({
        ...shared,
        operationId,
        isOfContract: true,
        summary: 'Create or replace a whole job',
      }),
      handler: (request, reply) => submit(request, reply, null),
    })
  }
  app.put('/jobs/:name', {
    ...describeRoute({
      ...shared,
      operationId: 'putJob',
      summary: 'Create or replace the job of this name',
      params: NAME_PARAM,
    }),
    handler: (request: JobRequest, reply) => submit(request, reply, request.params.name),
  })
  routePatch(app, operations)
}

function routePatch(app: FastifyInstance, operations: Operations): void {
  app.patch('/jobs/:name', {
    ...describeRoute({
      access: 'body',
      operationId: 'mergeJob',
      summary: 'Change fields of a job',
      description:
        'A JSON [merge patch](#merge-patches) (RFC 7396): fields that are not sent stay, members of ' +
        'objects are merged, `null` removes. Of two patches at the same moment both take effect.',
      tag: 'jobs',
      params: NAME_PARAM,
      query: CheckQuery,
      headers: REVISION_HEADERS,
      consumes: ['application/merge-patch+json', 'application/json'],
      body: schemaRef(JobPatch),
      reply: schemaRef(Job),
      errors: [...SUBMIT_ERRORS, 'job_unknown'],
    }),
    handler: async (request: JobRequest, reply) => {
      const patch = decodePatch(bodyOf(request))
      const call = {...readCall(request), name: request.params.name, patch}
      if (isDryRun(request)) return sendDryRun(request, reply, await operations.patchDryRun(call))
      return sendSubmitted(request, reply, 200, await operations.patch(call))
    },
  })
}

function readCall(request: FastifyRequest) {
  return {
    caller: callerOf(request),
    actor: actorOf(request),
    ifMatch: readIfMatch(request.headers),
    strict: queryOf(request).isSet('strict'),
  }
}

function sendSubmitted(
  request: FastifyRequest,
  reply: FastifyReply,
  status: number,
  {job, action, group, warnings, ignored, misspelt, ignoredFields}: SubmitReply,
): FastifyReply {
  setWarnings(reply, [...warnings, ...misspelt])
  setIgnoredFields(reply, ignoredFields)
  reply.header('x-action', action)
  if (group !== null) reply.header('x-launch-id', String(group))
  reply.header('location', jobLocation(job.spec.name))
  const inBody = queryOf(request).boolean('warnings') ?? false
  const more = inBody ? {warnings: [...warnings, ...ignored]} : {}
  return sendJob(request, reply, status, job, more)
}

function sendDryRun(
  request: FastifyRequest,
  reply: FastifyReply,
  found: DryRunRecord,
): FastifyReply {
  const {action, faults, warnings, timezone, next, nodes, nodesTotal, nodesRun} = found
  const body: DryRunJson = {
    valid: faults.length === 0,
    action,
    errors: [...faults],
    warnings: warnings.map(sentenceOf),
    timezone,
    next: timezone === null ? [] : next.map((at) => formatInZone(at, timezone)),
    nodes: [...nodes],
    nodes_total: nodesTotal,
    ...(nodesRun === undefined ? {} : {nodes_run: nodesRun}),
  }
  return sendJson(request, reply, 200, body)
}
