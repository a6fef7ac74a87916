/** Tokens in JSON, and the answer to the question what a token may do. */
import {type Static, Type} from 'typebox'
import {type AgentGrant, encodeAgentLimits, NO_AGENT_LIMITS} from '../core/access/agent-token.ts'
import {OptionalTime, schemaRef, Time} from './shapes.ts'
import {formatOptionalTime, formatTime} from './time.ts'

const nullable = <Schema extends Type.TSchema>(schema: Schema, description: string) =>
  Type.Union([schema, Type.Null()], {description})

const TokenType = Type.Enum(['management', 'client', 'read', 'metrics', 'agent', 'join'], {
  description:
    '`management` may do everything, `client` what its policies grant, `read` reads everything, ' +
    '`metrics` reads `/metrics`, `agent` connects one agent, `join` gives agents their own tokens.',
})

/** Limits of a token for agents. */
const LIMIT_FIELDS = {
  names: nullable(
    Type.Array(Type.String()),
    'Names that its agents may have, with `*` for any text; `null` = any.',
  ),
  tags: nullable(
    Type.Record(Type.String(), Type.Array(Type.String())),
    'Tags that its agents may set, each with its allowed values; `null` = any.',
  ),
  slots: nullable(Type.Integer(), 'Slots that its agents may have; `null` = any number.'),
}

const TOKEN_FIELDS = {
  accessor: Type.String({description: 'Public id of the token.'}),
  name: Type.String({description: 'Name of the token: the owner of jobs that it creates.'}),
  type: TokenType,
  policies: Type.Array(Type.String(), {description: 'Names of the policies of a `client`.'}),
  created_at: Time('When it was created.'),
  expires_at: OptionalTime('When it expires; `null` = it does not.'),
  last_used_at: OptionalTime('When it was last used, some minutes late; `null` = not yet.'),
  node_id: nullable(Type.String(), 'The node that an `agent` token is bound to; `null` = none.'),
  node_name: nullable(Type.String(), 'The name of that node.'),
  uses_left: nullable(Type.Integer(), 'How many agents can still join with a `join` token.'),
  ...LIMIT_FIELDS,
}

export const Token = Type.Object(TOKEN_FIELDS, {
  $id: 'Token',
  description: 'A token, without its secret.',
})
export type TokenJson = Static<typeof Token>

export const CreatedToken = Type.Object(
  {
    ...TOKEN_FIELDS,
    secret: Type.String({description: 'What a client sends. It is in this reply only.'}),
  },
  {$id: 'CreatedToken', description: 'A new token, with its secret.'},
)
export type CreatedTokenJson = Static<typeof CreatedToken>

export const NewToken = Type.Object(
  {
    name: Type.String({description: '1 to 128 characters.'}),
    type: TokenType,
    policies: Type.Optional(
      Type.Array(Type.String(), {maxItems: 16, description: 'Only for a `client`.'}),
    ),
    expires_at: Type.Optional(OptionalTime('When it expires.')),
    uses: Type.Optional(
      nullable(
        Type.Integer(),
        'How many agents can join with a `join` token: 1 to 10,000, else 1.',
      ),
    ),
    names: Type.Optional(LIMIT_FIELDS.names),
    tags: Type.Optional(LIMIT_FIELDS.tags),
    slots: Type.Optional(LIMIT_FIELDS.slots),
  },
  {$id: 'NewToken', description: 'A token to create.'},
)

export const AccessCheck = Type.Object(
  {
    capability: Type.String({description: 'What the request needs.'}),
    path: Type.String({description: 'Where it needs it.'}),
    allowed: Type.Boolean(),
    policy: Type.Union([Type.String(), Type.Null()], {
      description: 'The policy that decides; `null` = none does.',
    }),
    glob: Type.Union([Type.String(), Type.Null()], {description: 'The glob that decides.'}),
    reason: Type.String({description: 'Why it is not allowed.'}),
  },
  {$id: 'AccessCheck', description: 'One question to the policies of a token, and their answer.'},
)

export const AccessAnswer = Type.Object(
  {
    allowed: Type.Boolean({description: 'Whether the token may send the request.'}),
    body_decides: Type.Boolean({
      description: 'It depends on the body, so that it is not known. `allowed` is `false` then.',
    }),
    reason: Type.String({description: 'Why not, or what else decides.'}),
    checks: Type.Array(schemaRef(AccessCheck)),
  },
  {$id: 'AccessAnswer', description: 'Whether a token may send a request.'},
)
export type AccessAnswerJson = Static<typeof AccessAnswer>

export const Session = Type.Object(
  {
    name: Type.String({
      description: 'Name of the token or person; empty = the token of the configuration, or none.',
    }),
    type: TokenType,
    session: Type.Boolean({description: 'Whether the caller has a session; if not, a token.'}),
    expires_at: OptionalTime(
      'When it expires, a session unless it is used before; `null` = never.',
    ),
    ends_at: OptionalTime('When a session ends, however much it is used; `null` for a token.'),
  },
  {$id: 'Session', description: 'The caller of the request.'},
)
export type SessionJson = Static<typeof Session>

/** Identity as a caller has it; times in ms since the epoch. */
interface Identity {
  readonly principal: {
    readonly name: string
    readonly kind: TokenJson['type']
    readonly isSession: boolean
  }
  readonly expiresAt: number | null
  readonly endsAt: number | null
}

export function encodeSession({principal, expiresAt, endsAt}: Identity): SessionJson {
  const {name, kind, isSession} = principal
  return {
    name,
    type: kind,
    session: isSession,
    expires_at: formatOptionalTime(expiresAt),
    ends_at: formatOptionalTime(endsAt),
  }
}

/** Fields of a stored token; times in ms since the epoch. */
interface TokenFields {
  readonly accessor: string
  readonly name: string
  readonly kind: TokenJson['type']
  readonly policies: readonly string[]
  readonly createdAt: number
  readonly expiresAt: number | null
  readonly lastUsedAt: number | null
  readonly agent: AgentGrant | null
}

const NO_GRANT = {limits: NO_AGENT_LIMITS, node: null, usesLeft: null}

export function encodeToken(token: TokenFields): TokenJson {
  const {limits, node, usesLeft} = token.agent ?? NO_GRANT
  return {
    accessor: token.accessor,
    name: token.name,
    type: token.kind,
    policies: [...token.policies],
    created_at: formatTime(token.createdAt),
    expires_at: formatOptionalTime(token.expiresAt),
    last_used_at: formatOptionalTime(token.lastUsedAt),
    node_id: node?.id ?? null,
    node_name: node?.name ?? null,
    uses_left: usesLeft,
    ...encodeAgentLimits(limits),
  }
}
