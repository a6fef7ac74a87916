/** Tokens in JSON, and the answer to the question what a token may do. */
import {type Static, Type} from 'typebox'
import {
  encodeAgentLimits,
  NO_AGENT_LIMITS,
  readAgentLimits,
  USES_MAX,
} from '../core/access/agent-token.ts'
import {POLICIES_OF_TOKEN_MAX, TOKEN_KINDS, TOKEN_NAME} from '../core/access/authorization.ts'
import {isTextList, LIMIT_ENTRIES_MAX, POLICY_NAME} from '../core/access/policy.ts'
import {assert} from '../lib/assert.ts'
import {formatOptionalTime, formatTime, parseTime} from '../lib/rfc3339.ts'
import type {Identity, TokenRecord} from '../ports/token-store.ts'
import {type BodyRefusal, decodeBody} from './body.ts'
import {Checked, OptionalTime, schemaRef, Time} from './shapes.ts'

const nullable = <Schema extends Type.TSchema>(schema: Schema, description: string) =>
  Type.Union([schema, Type.Null()], {description})

const TokenType = Type.Enum([...TOKEN_KINDS], {
  description:
    '`management` may do everything, `client` what its policies grant, `read` reads everything, ' +
    '`metrics` reads `/metrics`, `agent` connects one agent, `join` gives agents their own tokens.',
})

/** `expected`: the rule that `readAgentLimits` has for the field. */
const limit = <Schema extends Type.TSchema>(field: string, schema: Schema, expected: string) =>
  Checked(
    schema,
    (value) => (readAgentLimits({[field]: value}) === null ? expected : null),
    expected,
  )

const TEXTS_RULE = `must be a list of 1 to ${LIMIT_ENTRIES_MAX} texts; leave it out for no limit`
const Values = Checked(
  Type.Array(Type.String()),
  (values) => (isTextList(values) ? null : TEXTS_RULE),
  TEXTS_RULE,
)

/** Limits of a token for agents. */
const LIMIT_FIELDS = {
  names: nullable(
    limit('names', Type.Array(Type.String()), TEXTS_RULE),
    'Names that its agents may have, with `*` for any text; `null` = any.',
  ),
  tags: nullable(
    limit(
      'tags',
      Type.Record(Type.String(), Values),
      `must be an object of at most ${LIMIT_ENTRIES_MAX} tags`,
    ),
    'Tags that its agents may set, each with its allowed values; `null` = any.',
  ),
  slots: nullable(
    Type.Integer({minimum: 1}),
    'Slots that its agents may have; `null` = any number.',
  ),
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

const NAME_RULE =
  'must be 1 to 128 letters, digits, blanks, ".", "_", "@" and "-". The first must be a letter or a digit, ' +
  'and the last neither a blank nor "@"'
const POLICIES_RULE = `must be a list of at most ${POLICIES_OF_TOKEN_MAX} names of policies`

const TokenName = Checked(
  Type.String({description: '1 to 128 characters.'}),
  (name) => (TOKEN_NAME.test(name) ? null : NAME_RULE),
  NAME_RULE,
)
const Expiry = Type.Optional(OptionalTime('When it expires.'))

export const NewToken = Type.Object(
  {
    name: TokenName,
    type: TokenType,
    policies: Type.Optional(
      nullable(
        Checked(
          Type.Array(Type.String(), {maxItems: POLICIES_OF_TOKEN_MAX}),
          (names) => (names.every((name) => POLICY_NAME.test(name)) ? null : POLICIES_RULE),
          POLICIES_RULE,
        ),
        'Only for a `client`.',
      ),
    ),
    expires_at: Expiry,
    uses: Type.Optional(
      nullable(
        Type.Integer({minimum: 1, maximum: USES_MAX}),
        'How many agents can join with a `join` token; 1 unless set.',
      ),
    ),
    names: Type.Optional(LIMIT_FIELDS.names),
    tags: Type.Optional(LIMIT_FIELDS.tags),
    slots: Type.Optional(LIMIT_FIELDS.slots),
  },
  {$id: 'NewToken', description: 'A token to create.'},
)

export const FirstToken = Type.Object(
  {
    name: Type.Optional(TokenName),
    type: Type.Optional(Type.Enum(['management'])),
    expires_at: Expiry,
  },
  {$id: 'FirstToken', description: 'The first management token.'},
)

const INVALID: BodyRefusal = {code: 'token_invalid', sentence: 'The token cannot be created'}

/** Throws `payload_unparsable`, `token_invalid`. */
export function decodeToken(bytes: Uint8Array) {
  const body = decodeBody(NewToken, bytes, INVALID)
  const limits = readAgentLimits(body)
  assert(limits !== null, 'the schema has the rules of the limits')
  return {
    name: body.name,
    kind: body.type,
    policies: [...new Set(body.policies ?? [])],
    expiresAt: timeIn(body),
    limits,
    uses: body.uses ?? null,
  }
}

/** Throws as `decodeToken`. */
export function decodeFirstToken(bytes: Uint8Array) {
  const body = decodeBody(FirstToken, bytes, INVALID)
  const {name} = body
  return {expiresAt: timeIn(body), ...(name === undefined ? {} : {name})}
}

function timeIn({expires_at: text}: {readonly expires_at?: string | null}): number | null {
  return parseTime(text ?? '')
}

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

const NO_GRANT = {limits: NO_AGENT_LIMITS, node: null, usesLeft: null}

export function encodeToken(token: TokenRecord): TokenJson {
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
