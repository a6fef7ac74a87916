/**
 * The OpenAPI 3.1 document, made from the descriptions of the routes as they are registered and from the
 * schemas of `wire/`. Nothing is written down twice, so it cannot describe a route that is not there.
 */
import swagger from '@fastify/swagger'
import type {FastifyInstance} from 'fastify'
import {
  ExecutionStat,
  ExecutionStats,
  Health,
  PauseStatus,
  PlannedTimes,
  PolicyShape,
  Problem,
  Readiness,
  Status,
} from '../wire/cluster.ts'
import {Execution, LaunchExecution} from '../wire/execution.ts'
import {Job, JobDefinition} from '../wire/job.ts'
import {Launch} from '../wire/launch.ts'
import {Member} from '../wire/member.ts'
import {sendJson} from './reply.ts'
import type {HttpOptions} from './options.ts'

const SHAPES = [
  Job,
  JobDefinition,
  Execution,
  LaunchExecution,
  Launch,
  Member,
  Status,
  PauseStatus,
  PolicyShape,
  ExecutionStat,
  ExecutionStats,
  PlannedTimes,
  Health,
  Readiness,
  Problem,
]

const ABOUT = `Belfry runs jobs by cron-style schedules on the nodes of a cluster.

Lists take \`_start\`, \`_end\`, \`_sort\` and \`_order\`, and say in \`X-Total-Count\` how many rows there
are in all.
Add \`pretty\` to any request for indented JSON. \`X-Whom\` names the node that answered.`

/** To be awaited before the first route is registered. */
export async function describeInterface(app: FastifyInstance, options: HttpOptions): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {title: 'Belfry', version: options.version, description: ABOUT},
      components: {
        securitySchemes: {
          token: {type: 'apiKey', in: 'header', name: 'X-Service-Token'},
          bearer: {type: 'http', scheme: 'bearer'},
        },
      },
      security: [{token: []}, {bearer: []}],
      tags: [
        {name: 'jobs', description: 'Jobs and running them'},
        {name: 'history', description: 'What has happened'},
        {name: 'cluster', description: 'Nodes and schedules'},
        {name: 'administration', description: 'Pause, restore, backup'},
        {name: 'policies', description: 'Access policies'},
        {name: 'service', description: 'For whatever watches over the service'},
      ],
    },
    refResolver: {
      buildLocalReference: (json, _base, _fragment, index) =>
        typeof json.$id === 'string' ? json.$id : `shape-${index}`,
    },
  })
  for (const shape of SHAPES) app.addSchema(shape)
}

/** Served once everything is registered; made once. */
export function routeDocument(app: FastifyInstance): void {
  let document: object | null = null
  app.get('/openapi.json', {
    schema: {hide: true},
    handler: (request, reply) => {
      document ??= app.swagger()
      return sendJson(request, reply, 200, document)
    },
  })
}
