/** Routes of secrets: set, list, delete. None answers a value. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {encodeSecret, NewSecret, Secret} from '../../wire/secret.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {deletes, lists, stores} from '../security/access.ts'
import {describeRoute} from '../api/openapi.ts'
import {sendJson} from '../api/reply.ts'
import {actorOf, bodyOf, callerOf} from '../api/request.ts'

const PARAMS = {name: 'Name of the secret.'}

type SecretRequest = FastifyRequest<{Params: {name: string}}>

export function routeSecrets(app: FastifyInstance, operations: Operations): void {
  app.get('/secrets', {
    config: {access: lists('/v1/secrets')},
    schema: describeRoute({
      operationId: 'listSecrets',
      summary: 'List the secrets that the token may use in jobs',
      tag: 'policies',
      reply: Type.Array(schemaRef(Secret)),
    }),
    handler: async (request, reply) => {
      const found = await operations.secrets(callerOf(request))
      return sendJson(request, reply, 200, found.map(encodeSecret))
    },
  })
  app.put('/secrets/:name', {
    config: {access: stores('/v1/secrets/:name')},
    schema: describeRoute({
      operationId: 'putSecret',
      summary: 'Set or replace the value of a secret',
      description: 'Needs `create` or `update` of the path.',
      tag: 'policies',
      params: {
        name: Type.String({
          description: `${PARAMS.name} It cannot be \`.\` or \`..\`.`,
          pattern: '^[A-Za-z0-9._-]{1,128}$',
        }),
      },
      body: schemaRef(NewSecret),
      reply: schemaRef(Secret),
      refusals: {
        400: 'The name or the value is invalid.',
        409: 'This server has no key for secrets, or another one, or there are too many secrets.',
        413: 'The body is too large.',
        415: 'The body is compressed.',
      },
    }),
    handler: async (request: SecretRequest, reply) => {
      const {name} = request.params
      const actor = actorOf(request)
      const body = bodyOf(request)
      const {secret} = await operations.putSecret(callerOf(request), name, body, actor)
      return sendJson(request, reply, 200, encodeSecret(secret))
    },
  })
  app.delete('/secrets/:name', {
    config: {access: deletes('/v1/secrets/:name')},
    schema: describeRoute({
      operationId: 'deleteSecret',
      summary: 'Delete a secret',
      description: 'Jobs that name it stay, and their runs fail.',
      tag: 'policies',
      params: PARAMS,
      reply: schemaRef(Secret),
      refusals: {404: 'There is no such secret.'},
    }),
    handler: async (request: SecretRequest, reply) => {
      const deleted = await operations.deleteSecret(request.params.name, actorOf(request))
      return sendJson(request, reply, 200, encodeSecret(deleted))
    },
  })
}
