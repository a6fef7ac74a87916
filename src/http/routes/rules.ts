/** Routes of rules of notices, and of mutes. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {
  decodeMute,
  decodeRule,
  encodeMute,
  encodeRule,
  Mute,
  Mutes,
  NewMute,
  NewRule,
  Rule,
  Rules,
} from '../../wire/notice-rule.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {creates, deletes, lists, reads, updates} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {actorOf, bodyOf, callerOf} from '../api/request.ts'

const PARAMS = {name: 'Name of the rule.'}
const PATH = '/v1/notices/rules/:name'

type RuleRequest = FastifyRequest<{Params: {name: string}}>
type MuteRequest = FastifyRequest<{Params: {id: string}}>

export function routeRules(app: FastifyInstance, operations: Operations): void {
  app.get('/notices/rules', {
    ...describeRoute({
      access: lists('/v1/notices/rules'),
      operationId: 'listNoticeRules',
      summary: 'List the rules of notices that the token may read',
      tag: 'notices',
      reply: schemaRef(Rules),
    }),
    handler: async (request, reply) => {
      const found = await operations.rules(callerOf(request))
      return sendJson(request, reply, 200, {rules: found.map(encodeRule)})
    },
  })
  app.get('/notices/rules/:name', {
    ...describeRoute({
      access: reads(PATH),
      operationId: 'getNoticeRule',
      summary: 'Read a rule of notices',
      tag: 'notices',
      params: PARAMS,
      reply: schemaRef(Rule),
      errors: ['rule_unknown'],
    }),
    handler: async (request: RuleRequest, reply) =>
      sendJson(request, reply, 200, encodeRule(await operations.rule(request.params.name))),
  })
  app.delete('/notices/rules/:name', {
    ...describeRoute({
      access: deletes(PATH),
      operationId: 'deleteNoticeRule',
      summary: 'Delete a rule of notices; its incidents close silently',
      tag: 'notices',
      params: PARAMS,
      reply: schemaRef(Rule),
      errors: ['rule_unknown'],
    }),
    handler: async (request: RuleRequest, reply) => {
      const deleted = await operations.deleteRule(request.params.name, actorOf(request))
      return sendJson(request, reply, 200, encodeRule(deleted))
    },
  })
  routePut(app, operations)
  routeMutes(app, operations)
}

function routePut(app: FastifyInstance, operations: Operations): void {
  app.put('/notices/rules/:name', {
    ...describeRoute({
      access: updates(PATH),
      operationId: 'putNoticeRule',
      summary: 'Store or replace a rule of notices',
      description:
        'Also needs `read` on each channel in `to`, and `list` on `/v1/members` for conditions about the ' +
        'cluster. The rule sees the jobs that the policies of its author ' +
        'let it read, and acts at once on all servers.',
      tag: 'notices',
      params: {
        name: Type.String({
          description: `${PARAMS.name} It cannot be \`.\` or \`..\`.`,
          pattern: '^[A-Za-z0-9._-]{1,64}$',
        }),
      },
      body: schemaRef(NewRule),
      reply: schemaRef(Rule),
      errors: ['rule_invalid', 'too_many_rules', 'feature_not_ready'],
    }),
    handler: async (request: RuleRequest, reply) => {
      const definition = decodeRule(bodyOf(request), request.params.name)
      const stored = await operations.putRule(callerOf(request), definition, actorOf(request))
      return sendJson(request, reply, 200, encodeRule(stored))
    },
  })
}

function routeMutes(app: FastifyInstance, operations: Operations): void {
  app.get('/notices/mutes', {
    ...describeRoute({
      access: lists('/v1/notices/mutes'),
      operationId: 'listNoticeMutes',
      summary: 'List the mutes in force',
      tag: 'notices',
      reply: schemaRef(Mutes),
    }),
    handler: async (request, reply) => {
      const found = await operations.mutes()
      return sendJson(request, reply, 200, {mutes: found.map(encodeMute)})
    },
  })
  app.post('/notices/mutes', {
    ...describeRoute({
      access: creates('/v1/notices/mutes'),
      operationId: 'muteNotices',
      summary: 'Mute notices about some jobs until a time',
      description:
        'Nothing is sent, and incidents continue. What is still open at the end is sent then.',
      tag: 'notices',
      body: schemaRef(NewMute),
      status: 201,
      reply: schemaRef(Mute),
      errors: ['body_invalid', 'rule_unknown', 'too_many_mutes'],
    }),
    handler: async (request, reply) => {
      const mute = await operations.muteNotices(decodeMute(bodyOf(request)), actorOf(request))
      return sendJson(request, reply, 201, encodeMute(mute))
    },
  })
  app.delete('/notices/mutes/:id', {
    ...describeRoute({
      access: deletes('/v1/notices/mutes/:id'),
      operationId: 'endNoticeMute',
      summary: 'End a mute',
      tag: 'notices',
      params: {id: Type.Integer({description: 'Id of the mute.'})},
      reply: schemaRef(Mute),
      errors: ['mute_unknown'],
    }),
    handler: async (request: MuteRequest, reply) => {
      const mute = await operations.endMute(Number(request.params.id), actorOf(request))
      return sendJson(request, reply, 200, encodeMute(mute))
    },
  })
}
