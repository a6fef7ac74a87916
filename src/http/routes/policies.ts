/** Routes about access policies. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import Type from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {PolicyShape, encodePolicy} from '../../wire/cluster.ts'
import {Refer} from '../../wire/shapes.ts'
import {sendJson, sendWarnings} from '../reply.ts'
import {bodyOf} from '../request.ts'
import {describe} from '../openapi.ts'

const PARAMS = {name: 'Name of the policy.'}
const UNKNOWN = {404: 'There is no such policy.'}

type PolicyRequest = FastifyRequest<{Params: {name: string}}>

export function routePolicies(app: FastifyInstance, operations: Operations): void {
  app.get('/acl/policies', {
    schema: describe({
      operationId: 'listPolicies',
      summary: 'List policies',
      tag: 'policies',
      answer: Type.Array(Refer(PolicyShape)),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, (await operations.policies()).map(encodePolicy)),
  })
  app.get('/acl/policies/:name', {
    schema: describe({
      operationId: 'getPolicy',
      summary: 'Read a policy',
      tag: 'policies',
      params: PARAMS,
      answer: Refer(PolicyShape),
      refusals: UNKNOWN,
    }),
    handler: async (request: PolicyRequest, reply) =>
      sendJson(request, reply, 200, encodePolicy(await operations.policy(request.params.name))),
  })
  app.post('/acl/policies/:name', {
    schema: describe({
      operationId: 'putPolicy',
      summary: 'Store or replace a policy',
      description:
        'The rules may also be the body itself. Rules that are no rules document are stored and grant ' +
        'nothing; the header `X-Warnings` says why.',
      tag: 'policies',
      params: PARAMS,
      body: Type.Object({Name: Type.Optional(Type.String()), Rules: Type.String()}),
      status: 202,
      answer: Refer(PolicyShape),
      refusals: {400: 'The policy is invalid.', 413: 'The body is too large.'},
    }),
    handler: async (request: PolicyRequest, reply) => {
      const stored = await operations.putPolicy(request.params.name, bodyOf(request))
      sendWarnings(reply, stored.warnings)
      return sendJson(request, reply, 202, encodePolicy(stored.policy))
    },
  })
  app.delete('/acl/policies/:name', {
    schema: describe({
      operationId: 'deletePolicy',
      summary: 'Delete a policy',
      tag: 'policies',
      params: PARAMS,
      answer: Refer(PolicyShape),
      refusals: UNKNOWN,
    }),
    handler: async (request: PolicyRequest, reply) =>
      sendJson(
        request,
        reply,
        200,
        encodePolicy(await operations.deletePolicy(request.params.name)),
      ),
  })
}
