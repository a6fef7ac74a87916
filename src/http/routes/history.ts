/** Routes about what has happened: executions, their output, launches, statistics. */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import Type from 'typebox'
import {executionId} from '../../core/execution.ts'
import type {LaunchView} from '../../ports/history-store.ts'
import type {Operations} from '../../operations/operations.ts'
import {encodeStatistics, ExecutionStats} from '../../wire/cluster.ts'
import {
  decodeOutput,
  encodeExecution,
  encodeLaunch,
  Execution,
  KEPT_OUTPUT_BYTES,
  Launch,
  LAUNCH_DECISIONS,
} from '../../wire/execution.ts'
import {Job} from '../../wire/job.ts'
import {
  ExecutionListQuery,
  PAGE_ROWS_MAX,
  PageQuery,
  readExecutionQuery,
  readOutputLimit,
  readSlice,
} from '../../wire/query.ts'
import {Refer} from '../../wire/shapes.ts'
import {TEXT_TYPE} from '../errors.ts'
import type {OutputStreams} from '../event-streams.ts'
import {describe} from '../openapi.ts'
import type {HttpOptions} from '../options.ts'
import {queryOf, sendJson, sendRows} from '../reply.ts'
import {type JobRequest, NAME_PARAM, sendJob} from './jobs.ts'

type ExecutionRequest = FastifyRequest<{Params: {name: string; execution: string}}>
type LaunchRequest = FastifyRequest<{Params: {name: string; group: string}}>

const UNKNOWN_JOB = {404: 'There is no such job.'}
const UNKNOWN_EXECUTION = {404: 'There is no such job or execution.'}
const EXECUTION_PARAMS = {...NAME_PARAM, execution: 'Id of the execution.'}
const DAYS = {minimum: 1, maximum: 365, default: 30}

export function routeHistory(
  app: FastifyInstance,
  operations: Operations,
  options: HttpOptions,
  streams: OutputStreams,
): void {
  routeExecutions(app, operations, options)
  routeExecution(app, operations)
  routeOutput(app, operations, streams)
  routeLaunches(app, operations, options)
  routeOverall(app, operations, options)
}

function routeExecutions(app: FastifyInstance, operations: Operations, options: HttpOptions): void {
  const list = async (request: JobRequest, reply: FastifyReply) => {
    const query = readExecutionQuery(queryOf(request))
    const page = await operations.executions(request.params.name, query)
    return sendRows(request, reply, options.clock, page, (row) =>
      encodeExecution(row, query.outputBytes),
    )
  }
  for (const [url, operationId, summary] of [
    ['/jobs/:name/executions', 'listExecutions', 'List the executions of a job, newest first'],
    ['/executions/:name', 'listExecutionsAlias', 'The same, for older clients'],
  ] as const) {
    app.get(url, {
      schema: describe({
        operationId,
        summary,
        tag: 'history',
        params: NAME_PARAM,
        query: ExecutionListQuery,
        answer: Type.Array(Refer(Execution)),
        refusals: {400: 'A parameter is invalid.', ...UNKNOWN_JOB},
      }),
      handler: list,
    })
  }
  app.delete('/jobs/:name/executions', {
    schema: describe({
      operationId: 'deleteExecutions',
      summary: 'Delete the finished executions of a job and reset its counters',
      tag: 'history',
      params: NAME_PARAM,
      answer: Refer(Job),
      refusals: UNKNOWN_JOB,
    }),
    handler: async (request: JobRequest, reply) =>
      sendJob(request, reply, 200, await operations.resetHistory(request.params.name)),
  })
}

function routeExecution(app: FastifyInstance, operations: Operations): void {
  app.get('/jobs/:name/executions/:execution', {
    schema: describe({
      operationId: 'getExecution',
      summary: 'Read an execution with all its kept output',
      tag: 'history',
      params: EXECUTION_PARAMS,
      answer: Refer(Execution),
      refusals: UNKNOWN_EXECUTION,
    }),
    handler: async (request: ExecutionRequest, reply) => {
      const {name, execution} = request.params
      const view = await operations.execution(name, execution)
      return sendJson(request, reply, 200, encodeExecution(view, null))
    },
  })
  app.post('/jobs/:name/executions/:execution/cancel', {
    schema: describe({
      operationId: 'cancelExecution',
      summary: 'End a pending or running execution',
      tag: 'history',
      params: EXECUTION_PARAMS,
      status: 202,
      answer: Refer(Execution),
      refusals: {...UNKNOWN_EXECUTION, 409: 'It is already over.'},
    }),
    handler: async (request: ExecutionRequest, reply) => {
      const view = await operations.cancel(request.params.name, request.params.execution)
      return sendJson(request, reply, 202, encodeExecution(view, null))
    },
  })
}

function routeOutput(app: FastifyInstance, operations: Operations, streams: OutputStreams): void {
  app.get('/jobs/:name/executions/:execution/output', {
    schema: describe({
      operationId: 'getOutput',
      summary: 'Read or follow the output of an execution',
      description:
        'Plain text of all that is kept. With `Accept: text/event-stream` it follows the run to its end.',
      tag: 'history',
      params: EXECUTION_PARAMS,
      query: Type.Object({
        download: Type.Optional(Type.String({description: 'Offer it as a file.'})),
      }),
      answer: Type.String(),
      answerType: 'text/plain',
      refusals: UNKNOWN_EXECUTION,
    }),
    handler: async (request: ExecutionRequest, reply) => {
      const {name, execution} = request.params
      if (wantsEvents(request)) return streams.open(request, reply, name, execution)
      const view = await operations.execution(name, execution)
      if (queryOf(request).switched('download')) {
        const file = `${executionId(view)}.txt`
        reply.header('content-disposition', `attachment; filename="${file}"`)
      }
      const text = view.outputHead + decodeOutput(view.output) + view.outputFoot
      return reply.header('content-type', TEXT_TYPE).send(text)
    },
  })
}

/** A HEAD request wants headers, never a stream. */
function wantsEvents(request: FastifyRequest): boolean {
  return request.method === 'GET' && acceptsEvents(request.headers.accept)
}

export function acceptsEvents(accept: string | undefined): boolean {
  return accept !== undefined && accept.toLowerCase().includes('text/event-stream')
}

function routeLaunches(app: FastifyInstance, operations: Operations, options: HttpOptions): void {
  const encode = (launch: LaunchView) => encodeLaunch(launch, launch.executions)
  app.get('/jobs/:name/launches', {
    schema: describe({
      operationId: 'listLaunches',
      summary: 'The ledger of a job: every planned time and what became of it, newest first',
      tag: 'history',
      params: NAME_PARAM,
      query: Type.Object({
        decision: Type.Optional(
          Type.Enum([...LAUNCH_DECISIONS], {description: 'Only those decided so.'}),
        ),
        ...PageQuery.properties,
      }),
      answer: Type.Array(Refer(Launch)),
      refusals: {400: 'A parameter is invalid.', ...UNKNOWN_JOB},
    }),
    handler: async (request: JobRequest, reply) => {
      const query = queryOf(request)
      const decision = query.choice('decision', LAUNCH_DECISIONS)
      const slice = readSlice(query, PAGE_ROWS_MAX)
      const page = await operations.launches(request.params.name, {...slice, decision})
      return sendRows(request, reply, options.clock, page, encode)
    },
  })
  app.get('/jobs/:name/launches/:group', {
    schema: describe({
      operationId: 'getLaunch',
      summary: 'Read a launch',
      tag: 'history',
      params: {...NAME_PARAM, group: 'Number of the launch.'},
      answer: Refer(Launch),
      refusals: {404: 'There is no such job or launch.'},
    }),
    handler: async (request: LaunchRequest, reply) => {
      const {name, group} = request.params
      return sendJson(request, reply, 200, encode(await operations.launch(name, group)))
    },
  })
}

function routeOverall(app: FastifyInstance, operations: Operations, options: HttpOptions): void {
  app.get('/busy', {
    schema: describe({
      operationId: 'listBusy',
      summary: 'The running executions of the whole cluster',
      tag: 'history',
      query: Type.Object({
        output_size_limit: Type.Optional(
          Type.Integer({minimum: 0, maximum: KEPT_OUTPUT_BYTES, description: 'Bytes of output.'}),
        ),
        ...PageQuery.properties,
      }),
      answer: Type.Array(Refer(Execution)),
      refusals: {400: 'A parameter is invalid.'},
    }),
    handler: async (request, reply) => {
      const query = queryOf(request)
      const outputBytes = readOutputLimit(query)
      const page = await operations.busy(readSlice(query), outputBytes)
      return sendRows(request, reply, options.clock, page, (row) =>
        encodeExecution(row, outputBytes),
      )
    },
  })
  app.get('/stats', {
    schema: describe({
      operationId: 'getStatistics',
      summary: 'Executions by day',
      tag: 'history',
      query: Type.Object({
        days: Type.Optional(Type.Integer({...DAYS, description: 'How many days, today included.'})),
      }),
      answer: Refer(ExecutionStats),
      refusals: {400: 'A parameter is invalid.'},
    }),
    handler: async (request, reply) => {
      const days = queryOf(request).integer('days', DAYS.default, DAYS)
      return sendJson(request, reply, 200, encodeStatistics(await operations.statistics(days)))
    },
  })
}
