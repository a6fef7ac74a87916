/** Routes of secrets: set, list, delete. None answers a value. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {decodeSecret, encodeSecret, NewSecret, Secret} from '../../wire/secret.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {deletes, lists, stores} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {actorOf, bodyOf, callerOf} from '../api/request.ts'

const PARAMS = {name: 'Name of the secret.'}

type SecretRequest = FastifyRequest<{Params: {name: string}}>

export function routeSecrets(app: FastifyInstance, operations: Operations): void {
  app.get('/secrets', {
    ...describeRoute({
      access: lists('/v1/secrets'),
      operationId: 'listSecrets',
      summary: 'List the secrets that the token may use in jobs',
      description: '[Secrets](../how-to/secrets.md). No response has a value.',
      tag: 'policies',
      reply: Type.Array(schemaRef(Secret)),
    }),
    handler: async (request, reply) => {
      const found = await operations.secrets(callerOf(request))
      return sendJson(request, reply, 200, found.map(encodeSecret))
    },
  })
  app.put('/secrets/:name', {
    ...describeRoute({
      access: stores('/v1/secrets/:name'),
      operationId: 'putSecret',
      summary: 'Set or replace the value of a secret',
      tag: 'policies',
      params: {
        name: Type.String({
          description: `${PARAMS.name} It cannot be \`.\` or \`..\`.`,
          pattern: '^[A-Za-z0-9._-]{1,128}$',
        }),
      },
      body: schemaRef(NewSecret),
      reply: schemaRef(Secret),
      errors: ['secret_invalid', 'secret_key_unusable', 'too_many_secrets'],
    }),
    handler: async (request: SecretRequest, reply) => {
      const {name} = request.params
      const actor = actorOf(request)
      const value = decodeSecret(bodyOf(request))
      const {secret} = await operations.putSecret(callerOf(request), name, value, actor)
      return sendJson(request, reply, 200, encodeSecret(secret))
    },
  })
  app.delete('/secrets/:name', {
    ...describeRoute({
      access: deletes('/v1/secrets/:name'),
      operationId: 'deleteSecret',
      summary: 'Delete a secret',
      description: 'Jobs that name it stay, and their runs fail.',
      tag: 'policies',
      params: PARAMS,
      reply: schemaRef(Secret),
      errors: ['secret_unknown'],
    }),
    handler: async (request: SecretRequest, reply) => {
      const deleted = await operations.deleteSecret(request.params.name, actorOf(request))
      return sendJson(request, reply, 200, encodeSecret(deleted))
    },
  })
}
