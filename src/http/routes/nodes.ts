/** Routes that take work from a node, and give it back: cordon, uncordon, drain. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import {DomainError} from '../../core/errors.ts'
import {formatDuration, parseLength} from '../../lib/duration.ts'
import type {AskedScheduling} from '../../operations/nodes.ts'
import type {Operations} from '../../operations/operations.ts'
import {Drain, encodeMember, Member} from '../../wire/member.ts'
import {type Query, QueryProblem} from '../../wire/query.ts'
import {decodeBody} from '../../wire/body.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {creates} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {actorOf, bodyOf, queryOf} from '../api/request.ts'

const EMPTY = Type.Object({})

const DRAIN_QUERY = Type.Object({
  deadline: Type.Optional(
    Type.String({
      description: 'As in the body. If both have it, they must be equal.',
    }),
  ),
})

const VERBS = [
  {
    verb: 'cordon',
    summary: 'Cordon a node: it takes no new work, and its running work continues',
    description:
      'What waits for it moves to other matching nodes. Before the deadline of a drain, it ends the drain. ' +
      '[How to](../how-to/maintain-a-node.md).',
  },
  {
    verb: 'uncordon',
    summary: 'Uncordon a node: it takes work again',
    description: 'Ends a cordon or a drain.',
  },
  {
    verb: 'drain',
    summary: 'Drain a node: cordon it, and stop what still runs at a deadline',
    description:
      '`scheduling` of the member is `draining`, and `drained` when nothing runs on it. Repeated, it ' +
      'sets a new deadline.',
    query: DRAIN_QUERY,
    body: schemaRef(Drain),
    bodyOptional: true,
  },
] as const

export function routeNodes(app: FastifyInstance, operations: Operations): void {
  for (const {verb, ...described} of VERBS)
    app.post(`/members/:member/${verb}`, {
      ...describeRoute({
        access: creates(`/v1/members/:member/${verb}`),
        operationId: `${verb}Member`,
        tag: 'cluster',
        params: {
          member:
            'Id of the member, or its name if it is present or only one member has that name.',
        },
        ...described,
        reply: schemaRef(Member),
        errors: ['body_invalid', 'payload_unparsable', 'member_unknown', 'member_ambiguous'],
      }),
      handler: async (request: FastifyRequest<{Params: {member: string}}>, reply) => {
        const {member} = request.params
        const asked = {kind: verb, ...deadlineOf(verb, request)}
        const changed = await operations.setScheduling(member, asked, actorOf(request))
        return sendJson(request, reply, 200, encodeMember(changed))
      },
    })
}

/** The deadline of the query or of the body; `null` = the default. */
function deadlineOf(
  verb: (typeof VERBS)[number]['verb'],
  request: FastifyRequest,
): Pick<AskedScheduling, 'deadlineMs' | 'invalid'> {
  const refusal = `The ${verb} is invalid`
  if (verb !== 'drain') {
    decodeBody(EMPTY, bodyOf(request), refusal)
    return {deadlineMs: null, invalid: 'body_invalid'}
  }
  const ofQuery = readDeadline(queryOf(request))
  const ofBody = parseLength(decodeBody(Drain, bodyOf(request), refusal).deadline ?? '')
  if (ofBody === null) return {deadlineMs: ofQuery, invalid: 'query_invalid'}
  if (ofQuery !== null && ofQuery !== ofBody) {
    const both = `${formatDuration(ofBody)} in the body and ${formatDuration(ofQuery)} in the query`
    throw new DomainError('body_invalid', `${refusal}: deadline: is ${both}. Send one of them.`)
  }
  return {deadlineMs: ofBody, invalid: ofQuery === null ? 'body_invalid' : 'query_invalid'}
}

/** `null` = not in the query. */
function readDeadline(query: Query): number | null {
  const text = query.text('deadline')
  if (text === null) return null
  const ms = parseLength(text)
  if (ms !== null) return ms
  const shown = JSON.stringify(text.slice(0, 64))
  throw new QueryProblem(`deadline: must be a duration such as 10m or 1h30m, not ${shown}`)
}
