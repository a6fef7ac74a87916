/** Routes of incidents and messages of notices, and of previews of rules. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import type {Operations} from '../../operations/operations.ts'
import {
  encodeIncident,
  encodeListedMessage,
  encodePreview,
  IncidentList,
  IncidentListQuery,
  ListedMessage,
  MessageList,
  MessageListQuery,
  Preview,
  readIncidentQuery,
  readMessageQuery,
} from '../../wire/notice-list.ts'
import {decodeRule, NewRule} from '../../wire/notice-rule.ts'
import {encodeCursor} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {creates, lists} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {actorOf, bodyOf, callerOf, queryOf} from '../api/request.ts'

const ONLY_READABLE =
  'Contains only jobs that the caller may read. A page may be short, or empty, and still have a `next`.'

type MessageRequest = FastifyRequest<{Params: {id: string}}>

export function routeNotices(app: FastifyInstance, operations: Operations): void {
  app.get('/notices/incidents', {
    ...describeRoute({
      access: lists('/v1/notices/incidents'),
      operationId: 'listNoticeIncidents',
      summary: 'List the incidents of notices, newest first',
      description: `${ONLY_READABLE} Incidents of the cluster need \`list\` on \`/v1/members\`.`,
      tag: 'notices',
      query: IncidentListQuery,
      reply: schemaRef(IncidentList),
      errors: ['cursor_invalid'],
    }),
    handler: async (request, reply) => {
      const query = readIncidentQuery(queryOf(request))
      const {items, next} = await operations.incidents(query, callerOf(request))
      const incidents = items.map(encodeIncident)
      return sendJson(request, reply, 200, {incidents, next: encodeCursor(next)})
    },
  })
  app.get('/notices/messages', {
    ...describeRoute({
      access: lists('/v1/notices/messages'),
      operationId: 'listNoticeMessages',
      summary: 'List the messages of notices, newest first, and what became of them',
      description: `${ONLY_READABLE} The messages have no output.`,
      tag: 'notices',
      query: MessageListQuery,
      reply: schemaRef(MessageList),
      errors: ['cursor_invalid'],
    }),
    handler: async (request, reply) => {
      const query = readMessageQuery(queryOf(request))
      const {items, next} = await operations.messages(query, callerOf(request))
      const messages = items.map(encodeListedMessage)
      return sendJson(request, reply, 200, {messages, next: encodeCursor(next)})
    },
  })
  app.post('/notices/messages/:id/resend', {
    ...describeRoute({
      access: creates('/v1/notices/messages/:id/resend'),
      operationId: 'resendNoticeMessage',
      summary: 'Send a message again, with the same id',
      description:
        'Also needs `update` on its channel. A message that waits is sent at once. It is tried for 24 h if ' +
        'the receiver is away.',
      tag: 'notices',
      params: {id: 'Id of the message.'},
      reply: schemaRef(ListedMessage),
      errors: ['message_unknown', 'channel_unknown'],
    }),
    handler: async (request: MessageRequest, reply) => {
      const {id} = request.params
      const sent = await operations.resendMessage(id, callerOf(request), actorOf(request))
      return sendJson(request, reply, 200, encodeListedMessage(sent))
    },
  })
  app.post('/notices/preview', {
    ...describeRoute({
      access: creates('/v1/notices/preview'),
      operationId: 'previewNoticeRule',
      summary: 'The jobs that a rule is about, and what it would have sent in the last 7 days',
      description: 'Stores and sends nothing.',
      tag: 'notices',
      body: schemaRef(NewRule),
      reply: schemaRef(Preview),
      errors: ['rule_invalid'],
    }),
    handler: async (request, reply) => {
      const rule = decodeRule(bodyOf(request), null)
      const preview = await operations.previewRule(rule, callerOf(request))
      return sendJson(request, reply, 200, encodePreview(preview))
    },
  })
}
