/** Routes of launches and executions of all jobs, and of the chain of a launch. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import type {Operations} from '../../operations/operations.ts'
import {
  AllExecutionsQuery,
  encodeTrace,
  ExecutionList,
  LaunchList,
  LaunchListQuery,
  readAllExecutionsQuery,
  readLaunchListQuery,
  Trace,
} from '../../wire/across-jobs.ts'
import {encodeExecution, encodeLaunch, Launch} from '../../wire/execution.ts'
import {encodeCursor} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {callerOf, queryOf} from '../api/request.ts'
import {lists} from '../security/access.ts'

type LaunchRequest = FastifyRequest<{Params: {group: string}}>

const PAGE =
  'A page reads at most 20,000 rows: it may be short, or empty, and still have a `next`. Contains only ' +
  'jobs that the caller may read.'
const GROUP_PARAM = {group: 'Number of the launch.'}
/** The operation asks for the job of the launch. */
const OF_ITS_JOB = 'Needs `read` on its job.'

export function routeAcrossJobs(app: FastifyInstance, operations: Operations): void {
  app.get('/launches', {
    ...describeRoute({
      access: lists('/v1/launches'),
      operationId: 'listAllLaunches',
      summary: 'List the launches of all jobs, newest first: what ran, and what did not',
      description: PAGE,
      tag: 'history',
      query: LaunchListQuery,
      reply: schemaRef(LaunchList),
      errors: ['cursor_invalid'],
    }),
    handler: async (request, reply) => {
      const query = readLaunchListQuery(queryOf(request))
      const {items, next} = await operations.launchList(query, callerOf(request))
      const launches = items.map(encodeLaunch)
      return sendJson(request, reply, 200, {launches, next: encodeCursor(next)})
    },
  })
  app.get('/launches/:group', {
    ...describeRoute({
      access: 'any',
      operationId: 'getAnyLaunch',
      summary: 'Read a launch of any job',
      description: OF_ITS_JOB,
      tag: 'history',
      params: GROUP_PARAM,
      reply: schemaRef(Launch),
      errors: ['launch_unknown'],
    }),
    handler: async (request: LaunchRequest, reply) => {
      const launch = await operations.launchOfAny(request.params.group, callerOf(request))
      return sendJson(request, reply, 200, encodeLaunch(launch))
    },
  })
  app.get('/launches/:group/trace', {
    ...describeRoute({
      access: 'any',
      operationId: 'traceLaunch',
      summary: 'The chain of a launch from its root, and what took it to its end',
      description: `${OF_ITS_JOB} Launches of other jobs that the caller may not read are only counted.`,
      tag: 'history',
      params: GROUP_PARAM,
      reply: schemaRef(Trace),
      errors: ['launch_unknown'],
    }),
    handler: async (request: LaunchRequest, reply) => {
      const trace = await operations.trace(request.params.group, callerOf(request))
      return sendJson(request, reply, 200, encodeTrace(trace))
    },
  })
  app.get('/executions', {
    ...describeRoute({
      access: lists('/v1/executions'),
      operationId: 'listAllExecutions',
      summary: 'List the executions of all jobs, newest first',
      description: PAGE,
      tag: 'history',
      query: AllExecutionsQuery,
      reply: schemaRef(ExecutionList),
      errors: ['cursor_invalid'],
    }),
    handler: async (request, reply) => {
      const query = readAllExecutionsQuery(queryOf(request))
      const {items, next} = await operations.executionList(query, callerOf(request))
      const executions = items.map((row) => encodeExecution(row, query.outputBytes))
      return sendJson(request, reply, 200, {executions, next: encodeCursor(next)})
    },
  })
}
