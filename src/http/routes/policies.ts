/** Routes of access policies. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import {readRules} from '../../core/access/policy.ts'
import type {Operations} from '../../operations/operations.ts'
import {encodePolicy, Policy} from '../../wire/cluster.ts'
import {MayBeUnset, schemaRef} from '../../wire/shapes.ts'
import {lists, reads} from '../security/access.ts'
import {describeRoute} from '../api/openapi.ts'
import type {PathTable} from '../api/paths.ts'
import {sendJson, setWarnings} from '../api/reply.ts'
import {actorOf, bodyOf} from '../api/request.ts'

const PARAMS = {name: 'Name of the policy.'}
const PUT_REFUSALS = {
  400: 'The policy is invalid.',
  413: 'The body is too large.',
  415: 'The body is compressed.',
}
const UNKNOWN = {404: 'There is no such policy.'}

type PolicyRequest = FastifyRequest<{Params: {name: string}}>

/** Globs that no route ever asks for, such as those of a mistyped path. */
function globWarnings(rules: string, paths: PathTable): readonly string[] {
  const reading = readRules(rules)
  return (reading.ok ? reading.rules : [])
    .filter(({glob}) => !paths.isReachable(glob))
    .map(({glob}) => `the glob ${JSON.stringify(glob)} matches no path of the API`)
}

export function routePolicies(
  app: FastifyInstance,
  operations: Operations,
  paths: PathTable,
): void {
  app.get('/acl/policies', {
    config: {access: lists('/v1/acl/policies')},
    schema: describeRoute({
      operationId: 'listPolicies',
      summary: 'List policies',
      tag: 'policies',
      reply: Type.Array(schemaRef(Policy)),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, (await operations.policies()).map(encodePolicy)),
  })
  app.get('/acl/policies/:name', {
    config: {access: reads('/v1/acl/policies/:name')},
    schema: describeRoute({
      operationId: 'getPolicy',
      summary: 'Read a policy',
      tag: 'policies',
      params: PARAMS,
      reply: schemaRef(Policy),
      refusals: UNKNOWN,
    }),
    handler: async (request: PolicyRequest, reply) =>
      sendJson(request, reply, 200, encodePolicy(await operations.policy(request.params.name))),
  })
  app.post('/acl/policies/:name', {
    config: {access: 'management'},
    schema: describeRoute({
      operationId: 'putPolicy',
      summary: 'Store or replace a policy',
      description:
        'The rules document may also be the body itself; an empty body is empty rules. Invalid rules are ' +
        'stored and grant nothing; the header `X-Warnings` names the problem.',
      tag: 'policies',
      params: {
        name: Type.String({
          description: `${PARAMS.name} It cannot be \`.\` or \`..\`.`,
          pattern: '^[A-Za-z0-9._-]{1,128}$',
        }),
      },
      body: Type.Object({
        Name: MayBeUnset(Type.String({description: 'The same as in the path, or empty.'})),
        Rules: Type.String({description: 'At most 65536 bytes.'}),
      }),
      bodyOptional: true,
      status: 202,
      reply: schemaRef(Policy),
      refusals: PUT_REFUSALS,
    }),
    handler: async (request: PolicyRequest, reply) => {
      const {name} = request.params
      const {policy, warnings} = await operations.putPolicy(name, bodyOf(request), actorOf(request))
      setWarnings(reply, [...warnings, ...globWarnings(policy.rules, paths)])
      return sendJson(request, reply, 202, encodePolicy(policy))
    },
  })
  app.delete('/acl/policies/:name', {
    config: {access: 'management'},
    schema: describeRoute({
      operationId: 'deletePolicy',
      summary: 'Delete a policy',
      tag: 'policies',
      params: PARAMS,
      reply: schemaRef(Policy),
      refusals: UNKNOWN,
    }),
    handler: async (request: PolicyRequest, reply) => {
      const {name} = request.params
      const {policy, warnings} = await operations.deletePolicy(name, actorOf(request))
      setWarnings(reply, warnings)
      return sendJson(request, reply, 200, encodePolicy(policy))
    },
  })
}
