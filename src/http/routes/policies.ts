/** Routes of access policies. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import {readRules} from '../../core/access/policy.ts'
import type {Operations} from '../../operations/operations.ts'
import {decodePolicy, encodePolicy, NewPolicy, Policy} from '../../wire/policy.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {lists, reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import type {PathTable} from '../api/paths.ts'
import {sendJson, setWarnings} from '../api/reply.ts'
import {actorOf, bodyOf} from '../api/request.ts'

const PARAMS = {name: 'Name of the policy.'}
const NEW_PARAMS = {
  name: Type.String({
    description: `${PARAMS.name} It cannot be \`.\` or \`..\`.`,
    pattern: '^[A-Za-z0-9._-]{1,128}$',
  }),
}

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
    ...describeRoute({
      access: lists('/v1/acl/policies'),
      operationId: 'listPolicies',
      isOfContract: true,
      summary: 'List policies',
      description: '[How policies decide](../how-to/access.md#how-policies-decide).',
      tag: 'policies',
      reply: Type.Array(schemaRef(Policy)),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, (await operations.policies()).map(encodePolicy)),
  })
  app.get('/acl/policies/:name', {
    ...describeRoute({
      access: reads('/v1/acl/policies/:name'),
      operationId: 'getPolicy',
      isOfContract: true,
      summary: 'Read a policy',
      tag: 'policies',
      params: PARAMS,
      reply: schemaRef(Policy),
      errors: ['policy_unknown'],
    }),
    handler: async (request: PolicyRequest, reply) =>
      sendJson(request, reply, 200, encodePolicy(await operations.policy(request.params.name))),
  })
  app.post('/acl/policies/:name', {
    ...describeRoute({
      access: 'management',
      operationId: 'putPolicy',
      isOfContract: true,
      summary: 'Store or replace a policy',
      description:
        '`Rules` is a JSON document as a text, or the document itself. It may also be the whole body; an ' +
        'empty body is empty rules. Invalid rules are stored and grant nothing; the ' +
        'header `X-Warnings` names the problem.',
      tag: 'policies',
      params: NEW_PARAMS,
      body: schemaRef(NewPolicy),
      bodyOptional: true,
      status: 202,
      reply: schemaRef(Policy),
      errors: ['policy_invalid', 'too_many_tokens'],
    }),
    handler: async (request: PolicyRequest, reply) => {
      const {name} = request.params
      const stored = {name, rules: decodePolicy(bodyOf(request), name)}
      const {policy, warnings} = await operations.putPolicy(stored, actorOf(request))
      setWarnings(reply, [...warnings, ...globWarnings(policy.rules, paths)])
      return sendJson(request, reply, 202, encodePolicy(policy))
    },
  })
  app.delete('/acl/policies/:name', {
    ...describeRoute({
      access: 'management',
      operationId: 'deletePolicy',
      isOfContract: true,
      summary: 'Delete a policy',
      tag: 'policies',
      params: PARAMS,
      reply: schemaRef(Policy),
      errors: ['policy_unknown'],
    }),
    handler: async (request: PolicyRequest, reply) => {
      const {name} = request.params
      const {policy, warnings} = await operations.deletePolicy(name, actorOf(request))
      setWarnings(reply, warnings)
      return sendJson(request, reply, 200, encodePolicy(policy))
    },
  })
}
