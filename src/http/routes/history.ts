/** Routes of the history: executions, their output, launches, statistics. */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import {decide, jobPath, segmentOf} from '../../core/access/authorization.ts'
import {executionId} from '../../core/execution.ts'
import type {Operations} from '../../operations/operations.ts'
import {encodeStatistics, ExecutionStats} from '../../wire/statistics.ts'
import {
  Cancelled,
  encodeExecution,
  encodeLaunch,
  Execution,
  Launch,
  LAUNCH_DECISIONS,
  outputText,
} from '../../wire/execution.ts'
import {
  encodeExplanation,
  Explanation,
  ExplainQuery,
  readExplainSubject,
} from '../../wire/explain.ts'
import {Job} from '../../wire/job.ts'
import {
  ExecutionListQuery,
  OutputSizeLimit,
  PAGE_ROWS_MAX,
  PageQuery,
  readExecutionQuery,
  readOutputLimit,
  readSlice,
} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {TEXT_TYPE} from '../api/errors.ts'
import {creates, deletes, lists, reads} from '../security/access.ts'
import type {OutputStreams} from '../api/event-streams.ts'
import {describeRoute} from '../api/describe-route.ts'
import {type ListParts, sendJob, sendJson, sendList, sendRows} from '../api/reply.ts'
import {acceptsEvents, actorOf, callerOf, queryOf} from '../api/request.ts'
import {type JobRequest, NAME_PARAM} from './jobs.ts'

type ExecutionRequest = FastifyRequest<{Params: {name: string; execution: string}}>
type LaunchRequest = FastifyRequest<{Params: {name: string; group: string}}>

const UNKNOWN_EXECUTION = ['job_unknown', 'execution_unknown'] as const
const EXECUTION_PARAMS = {...NAME_PARAM, execution: 'Id of the execution.'}
const DAYS = {minimum: 1, maximum: 365, default: 30}

export function routeHistory(
  app: FastifyInstance,
  operations: Operations,
  parts: ListParts,
  streams: OutputStreams,
): void {
  routeExecutions(app, operations, parts)
  routeExecution(app, operations)
  routeOutput(app, operations, streams)
  routeLaunches(app, operations, parts)
  routeAllJobs(app, operations, parts)
}

function routeExecutions(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  const list = async (request: JobRequest, reply: FastifyReply) => {
    const query = readExecutionQuery(queryOf(request))
    const page = await operations.executions(request.params.name, query)
    return sendRows(request, reply, parts.clock, page, (row) =>
      encodeExecution(row, query.outputBytes),
    )
  }
  for (const [url, operationId, summary] of [
    ['/jobs/:name/executions', 'listExecutions', 'List the executions of a job, newest first'],
    [
      '/executions/:name',
      'listExecutionsAlias',
      'Alias of `/jobs/{name}/executions` for older clients',
    ],
  ] as const) {
    app.get(url, {
      ...describeRoute({
        access: lists('/v1/jobs/:name/executions'),
        operationId,
        isOfContract: true,
        summary,
        description: 'Executions that have started or ended; at most 1,000 in a response.',
        tag: 'history',
        params: NAME_PARAM,
        query: ExecutionListQuery,
        reply: Type.Array(schemaRef(Execution)),
        errors: ['job_unknown'],
      }),
      handler: list,
    })
  }
  app.delete('/jobs/:name/executions', {
    ...describeRoute({
      access: deletes('/v1/jobs/:name/executions'),
      operationId: 'deleteExecutions',
      isOfContract: true,
      summary: 'Delete the finished executions of a job and reset its counters',
      tag: 'history',
      params: NAME_PARAM,
      reply: schemaRef(Job),
      errors: ['job_unknown'],
    }),
    handler: async (request: JobRequest, reply) => {
      const job = await operations.resetHistory(request.params.name, actorOf(request))
      return sendJob(request, reply, 200, job)
    },
  })
}

function routeExecution(app: FastifyInstance, operations: Operations): void {
  app.get('/jobs/:name/executions/:execution', {
    ...describeRoute({
      access: reads('/v1/jobs/:name/executions/:execution'),
      operationId: 'getExecution',
      isOfContract: true,
      summary: 'Read an execution with all its stored output',
      description: '[Its fields](jobs.md#executions).',
      tag: 'history',
      params: EXECUTION_PARAMS,
      reply: schemaRef(Execution),
      errors: UNKNOWN_EXECUTION,
    }),
    handler: async (request: ExecutionRequest, reply) => {
      const {name, execution} = request.params
      const view = await operations.execution(name, execution)
      return sendJson(request, reply, 200, encodeExecution(view, null))
    },
  })
  app.post('/jobs/:name/executions/:execution/cancel', {
    ...describeRoute({
      access: creates('/v1/jobs/:name/executions/:execution/cancel'),
      operationId: 'cancelExecution',
      summary: 'Cancel a pending or running execution',
      tag: 'history',
      params: EXECUTION_PARAMS,
      status: 202,
      reply: schemaRef(Execution),
      errors: [...UNKNOWN_EXECUTION, 'execution_over'],
    }),
    handler: async (request: ExecutionRequest, reply) => {
      const {name, execution} = request.params
      const view = await operations.cancel(name, execution, actorOf(request))
      const path = `${jobPath(name)}/executions/${segmentOf(execution)}`
      const isReadable = decide(callerOf(request), 'read', path).allowed
      return sendJson(request, reply, 202, encodeExecution(view, isReadable ? null : 0))
    },
  })
  app.post('/jobs/:name/executions/cancel', {
    ...describeRoute({
      access: creates('/v1/jobs/:name/executions/cancel'),
      operationId: 'cancelExecutions',
      summary: 'Cancel all pending and running executions of a job',
      description:
        '`more` is `true` if there are more than the 1,000 of one request. A launch that is still pending ' +
        'is not cancelled, and new ones may start: disable the job first.',
      tag: 'history',
      params: NAME_PARAM,
      query: Type.Object({
        launch: Type.Optional(Type.Integer({description: 'Only executions of this launch.'})),
      }),
      status: 202,
      reply: schemaRef(Cancelled),
      errors: ['job_unknown', 'launch_unknown'],
    }),
    handler: async (request: JobRequest, reply) => {
      const {name} = request.params
      const launch = queryOf(request).text('launch')
      const cancelled = await operations.cancelOpen(name, launch, actorOf(request))
      return sendJson(request, reply, 202, cancelled)
    },
  })
}

function routeOutput(app: FastifyInstance, operations: Operations, streams: OutputStreams): void {
  app.get('/jobs/:name/executions/:execution/output', {
    ...describeRoute({
      access: reads('/v1/jobs/:name/executions/:execution/output'),
      operationId: 'getOutput',
      summary: 'Read or follow the output of an execution',
      description:
        'All stored output as plain text; a line tells how much of its middle is not kept. ' +
        '`Accept: text/event-stream` [follows the output](#event-streams) to its end.',
      tag: 'history',
      params: EXECUTION_PARAMS,
      query: Type.Object({
        download: Type.Optional(Type.String({description: 'Send the output as a file.'})),
      }),
      reply: Type.String(),
      replyType: 'text/plain',
      errors: [...UNKNOWN_EXECUTION, 'too_many_streams'],
    }),
    handler: async (request: ExecutionRequest, reply) => {
      const {name, execution} = request.params
      // A HEAD request gets headers, never a stream.
      if (request.method === 'GET' && acceptsEvents(request.headers))
        return streams.open(request, reply, name, execution)
      const view = await operations.execution(name, execution)
      if (queryOf(request).isSet('download')) {
        const file = `${executionId(view)}.txt`
        reply.header('content-disposition', `attachment; filename="${file}"`)
      }
      return reply.header('content-type', TEXT_TYPE).send(outputText(view))
    },
  })
}

function routeLaunches(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  app.get('/jobs/:name/launches', {
    ...describeRoute({
      access: lists('/v1/jobs/:name/launches'),
      operationId: 'listLaunches',
      summary: 'List the launches of a job: every planned time and its decision, newest first',
      tag: 'history',
      params: NAME_PARAM,
      query: Type.Object({
        decision: Type.Optional(
          Type.Enum([...LAUNCH_DECISIONS], {description: 'Only launches with this decision.'}),
        ),
        ...PageQuery.properties,
      }),
      reply: Type.Array(schemaRef(Launch)),
      errors: ['job_unknown'],
    }),
    handler: async (request: JobRequest, reply) => {
      const query = queryOf(request)
      const decision = query.choice('decision', LAUNCH_DECISIONS)
      const slice = readSlice(query, PAGE_ROWS_MAX)
      const {name} = request.params
      const page = await operations.launches(name, {...slice, decision}, callerOf(request))
      return sendRows(request, reply, parts.clock, page, encodeLaunch)
    },
  })
  app.get('/jobs/:name/explain', {
    ...describeRoute({
      access: reads('/v1/jobs/:name'),
      operationId: 'explainJob',
      summary: 'Explain why a job ran, did not run, or waits, and what it does next',
      description:
        'Sentences with the cause, times, numbers and names, and a command to try. Nodes are named if the ' +
        'token may list `/v1/members`, the parent if it may read it.',
      tag: 'history',
      params: NAME_PARAM,
      query: ExplainQuery,
      reply: schemaRef(Explanation),
      errors: ['job_unknown', 'launch_unknown'],
    }),
    handler: async (request: JobRequest, reply) => {
      const subject = readExplainSubject(queryOf(request))
      const explained = await operations.explain(request.params.name, subject, callerOf(request))
      return sendJson(request, reply, 200, encodeExplanation(explained))
    },
  })
  app.get('/jobs/:name/launches/:group', {
    ...describeRoute({
      access: reads('/v1/jobs/:name/launches/:group'),
      operationId: 'getLaunch',
      summary: 'Read a launch',
      tag: 'history',
      params: {...NAME_PARAM, group: 'Number of the launch.'},
      reply: schemaRef(Launch),
      errors: ['job_unknown', 'launch_unknown'],
    }),
    handler: async (request: LaunchRequest, reply) => {
      const {name, group} = request.params
      const launch = await operations.launch(name, group, callerOf(request))
      return sendJson(request, reply, 200, encodeLaunch(launch))
    },
  })
}

function routeAllJobs(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  app.get('/busy', {
    ...describeRoute({
      access: lists('/v1/busy'),
      operationId: 'listBusy',
      isOfContract: true,
      summary: 'The running executions of the whole cluster',
      description: 'All output together is at most 32 MiB.',
      tag: 'history',
      query: Type.Object({
        output_size_limit: OutputSizeLimit,
        ...PageQuery.properties,
      }),
      reply: Type.Array(schemaRef(Execution)),
      errors: ['too_many_lists'],
    }),
    handler: async (request, reply) => {
      const query = queryOf(request)
      const outputBytes = readOutputLimit(query)
      const slice = readSlice(query)
      return sendList(request, reply, parts, {
        slice,
        read: () => operations.busy(slice, outputBytes, callerOf(request)),
        encode: (row) => encodeExecution(row, outputBytes),
      })
    },
  })
  app.get('/stats', {
    ...describeRoute({
      access: reads('/v1/stats'),
      operationId: 'getStatistics',
      isOfContract: true,
      summary: 'Executions per day',
      description: 'Days are those of UTC.',
      tag: 'history',
      query: Type.Object({
        days: Type.Optional(
          Type.Integer({...DAYS, description: 'Number of days, today included.'}),
        ),
      }),
      reply: schemaRef(ExecutionStats),
    }),
    handler: async (request, reply) => {
      const days = queryOf(request).integer('days', DAYS.default, DAYS)
      return sendJson(request, reply, 200, encodeStatistics(await operations.statistics(days)))
    },
  })
}
