/** Routes of channels of notices. No reply has the value of a secret. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {
  Channel,
  Channels,
  ChannelTest,
  decodeChannel,
  encodeChannel,
  encodeChannelTest,
  NewChannel,
} from '../../wire/notice-channel.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {deletes, lists, reads, updates} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {actorOf, bodyOf, callerOf} from '../api/request.ts'

const PARAMS = {name: 'Name of the channel.'}
const PATH = '/v1/notices/channels/:name'

type ChannelRequest = FastifyRequest<{Params: {name: string}}>

export function routeChannels(app: FastifyInstance, operations: Operations): void {
  routeReads(app, operations)
  routePut(app, operations)
  routeDeleteAndTest(app, operations)
}

function routeReads(app: FastifyInstance, operations: Operations): void {
  app.get('/notices/channels', {
    ...describeRoute({
      access: lists('/v1/notices/channels'),
      operationId: 'listNoticeChannels',
      summary: 'List the channels of notices that the token may read',
      description: '[Send notices](../how-to/notices.md).',
      tag: 'notices',
      reply: schemaRef(Channels),
    }),
    handler: async (request, reply) => {
      const found = await operations.channels(callerOf(request))
      return sendJson(request, reply, 200, {channels: found.map(encodeChannel)})
    },
  })
  app.get('/notices/channels/:name', {
    ...describeRoute({
      access: reads(PATH),
      operationId: 'getNoticeChannel',
      summary: 'Read a channel of notices',
      tag: 'notices',
      params: PARAMS,
      reply: schemaRef(Channel),
      errors: ['channel_unknown'],
    }),
    handler: async (request: ChannelRequest, reply) =>
      sendJson(request, reply, 200, encodeChannel(await operations.channel(request.params.name))),
  })
}

function routePut(app: FastifyInstance, operations: Operations): void {
  app.put('/notices/channels/:name', {
    ...describeRoute({
      access: updates(PATH),
      operationId: 'putNoticeChannel',
      summary: 'Store or replace a channel of notices',
      description:
        'Also needs `read` on each [secret](../how-to/secrets.md) that the configuration names. Nothing is ' +
        'sent until it is tested.',
      tag: 'notices',
      params: {
        name: Type.String({
          description: `${PARAMS.name} It cannot be \`.\` or \`..\`.`,
          pattern: '^[A-Za-z0-9._-]{1,64}$',
        }),
      },
      body: schemaRef(NewChannel),
      reply: schemaRef(Channel),
      errors: ['channel_invalid', 'too_many_channels', 'secret_key_unusable', 'too_many_secrets'],
    }),
    handler: async (request: ChannelRequest, reply) => {
      const definition = decodeChannel(bodyOf(request), request.params.name)
      const stored = await operations.putChannel(callerOf(request), definition, actorOf(request))
      return sendJson(request, reply, 200, encodeChannel(stored))
    },
  })
}

function routeDeleteAndTest(app: FastifyInstance, operations: Operations): void {
  app.delete('/notices/channels/:name', {
    ...describeRoute({
      access: deletes(PATH),
      operationId: 'deleteNoticeChannel',
      summary: 'Delete a channel of notices, and its secret',
      tag: 'notices',
      params: PARAMS,
      reply: schemaRef(Channel),
      errors: ['channel_unknown', 'channel_in_use'],
    }),
    handler: async (request: ChannelRequest, reply) => {
      const deleted = await operations.deleteChannel(request.params.name, actorOf(request))
      return sendJson(request, reply, 200, encodeChannel(deleted))
    },
  })
  app.post('/notices/channels/:name/test', {
    ...describeRoute({
      access: updates(PATH),
      operationId: 'testNoticeChannel',
      summary: 'Send a test message over a channel, and wait for its outcome',
      description:
        'Takes at most 10 s, and is not repeated. Works also while the channel is disabled.',
      tag: 'notices',
      params: PARAMS,
      reply: schemaRef(ChannelTest),
      errors: ['channel_unknown', 'too_many_tests'],
    }),
    handler: async (request: ChannelRequest, reply) => {
      const delivery = await operations.testChannel(request.params.name, actorOf(request))
      return sendJson(request, reply, 200, encodeChannelTest(delivery))
    },
  })
}
