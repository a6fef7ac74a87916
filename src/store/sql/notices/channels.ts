/**
 * Channels of notices. The row of `meta` that counts their changes makes changes of several servers follow
 * each other, so that the limit holds. The secret of a channel changes in the same transaction.
 */
import {isFull} from '../../../core/bounds.ts'
import {type Actor, BELFRY} from '../../../core/audit.ts'
import {
  type ChannelConfig,
  type ChannelRecord,
  CHANNELS_MAX,
  channelSecret,
  pingsCluster,
  secretsOfConfig,
} from '../../../core/notice-channel.ts'
import type {TokenKind} from '../../../core/access/authorization.ts'
import type {RuleDefinition} from '../../../core/notice-rule.ts'
import type {LeaderStore} from '../../../ports/leader-store.ts'
import type {
  ChannelUse,
  DeleteChannelResult,
  NewChannel,
  PutChannelResult,
} from '../../../ports/notice-store.ts'
import {assert} from '../../../lib/assert.ts'
import {recordChange} from '../access/audit.ts'
import {deleteSecret, putSecret} from '../access/secrets.ts'
import {fence} from '../cluster/lease.ts'
import {all, one, type Query, type Transaction} from '../query.ts'

/** Counts the changes. */
const REVISION = 'notice_channels'

interface ChannelRow {
  readonly channel_name: string
  readonly channel_kind: string
  readonly channel_config: string
  readonly channel_enabled: number
  readonly channel_revision: number
  readonly author_name: string
  readonly author_kind: TokenKind
  readonly author_policies: string
  readonly changed_at: number
  readonly last_ok_at: number | null
  readonly channel_failing_since: number | null
  readonly last_error_text: string
}

const COLUMNS = `channel_name, channel_kind, channel_config, channel_enabled, channel_revision, author_name,
  author_kind, author_policies, changed_at, last_ok_at, channel_failing_since, last_error_text`

function channelOf(row: ChannelRow): ChannelRecord {
  return {
    name: row.channel_name,
    kind: row.channel_kind,
    config: JSON.parse(row.channel_config) as ChannelConfig,
    enabled: row.channel_enabled === 1,
    revision: row.channel_revision,
    author: {
      name: row.author_name,
      kind: row.author_kind,
      policies: JSON.parse(row.author_policies) as string[],
    },
    updatedAt: row.changed_at,
    lastOkAt: row.last_ok_at,
    failingSince: row.channel_failing_since,
    lastError: row.last_error_text,
  }
}

export function* channels(_tx: Transaction): Query<readonly ChannelRecord[]> {
  const rows = yield* all<ChannelRow>(
    `SELECT ${COLUMNS} FROM notice_channels ORDER BY channel_name`,
  )
  return rows.map(channelOf)
}

export function* channel(_tx: Transaction, name: string): Query<ChannelRecord | null> {
  const row = yield* one<ChannelRow>(
    `SELECT ${COLUMNS} FROM notice_channels WHERE channel_name = ?`,
    [name],
  )
  return row === null ? null : channelOf(row)
}

export function* putChannel(
  tx: Transaction,
  {channel: {name, kind, config, enabled}, author, secret}: NewChannel,
  actor: Actor = BELFRY,
): Query<PutChannelResult> {
  yield* lockChannels()
  const before = yield* channel(tx, name)
  const counted = yield* one<{total: number}>(`SELECT count(*) AS total FROM notice_channels`)
  if (isFull(counted!.total, CHANNELS_MAX, before === null)) return {kind: 'full'}
  const rules = pingsCluster({config}) ? yield* rulesOver(name) : []
  if (rules.length > 0) return {kind: 'in_use', rules}
  if (secret !== null) {
    const may = {create: true, update: true} // the right to change the channel includes its secret
    const stored = yield* putSecret(tx, {...secret, may}, actor)
    assert(stored.kind !== 'not_allowed', 'the caller may set the secret')
    if (stored.kind !== 'stored') return {kind: 'secret', refusal: stored}
  }
  // The state of deliveries is that of the configuration, which may be another now.
  yield* all(
    `INSERT INTO notice_channels (${COLUMNS}) VALUES (?, ?, ?, ?, 1, ?, ?, ?, ?, NULL, NULL, '')
      ON CONFLICT (channel_name) DO UPDATE SET channel_kind = excluded.channel_kind,
        channel_config = excluded.channel_config, channel_enabled = excluded.channel_enabled,
        channel_revision = notice_channels.channel_revision + 1, author_name = excluded.author_name,
        author_kind = excluded.author_kind, author_policies = excluded.author_policies,
        changed_at = excluded.changed_at, channel_failing_since = NULL, last_error_text = ''`,
    [
      name,
      kind,
      JSON.stringify(config),
      enabled ? 1 : 0,
      author.name,
      author.kind,
      JSON.stringify(author.policies),
      tx.now,
    ],
  )
  if (before !== null && hasOwnSecret(before) && !hasOwnSecret({name, config}))
    yield* deleteSecret(tx, channelSecret(name), actor)
  const detail = `${before === null ? 'new' : 'replaced'}: ${kind}`
  yield* recordChange(tx, {
    actor,
    action: 'channel.set',
    targetType: 'channel',
    target: name,
    detail,
  })
  return {kind: 'stored', channel: (yield* channel(tx, name))!}
}

export function* deleteChannel(
  tx: Transaction,
  name: string,
  actor: Actor = BELFRY,
): Query<DeleteChannelResult> {
  yield* lockChannels()
  const before = yield* channel(tx, name)
  if (before === null) return {kind: 'unknown'}
  const rules = yield* rulesOver(name)
  if (rules.length > 0) return {kind: 'in_use', rules}
  yield* all(`DELETE FROM notice_channels WHERE channel_name = ?`, [name])
  if (hasOwnSecret(before)) yield* deleteSecret(tx, channelSecret(name), actor)
  yield* recordChange(tx, {actor, action: 'channel.delete', targetType: 'channel', target: name})
  return {kind: 'deleted', channel: before}
}

/** Names of the rules that send over the channel. */
function* rulesOver(channelName: string): Query<readonly string[]> {
  const rows = yield* all<{rule_definition: string}>(
    `SELECT rule_definition FROM notice_rules ORDER BY rule_name`,
  )
  return rows
    .map((row) => JSON.parse(row.rule_definition) as RuleDefinition)
    .filter(({to}) => to.includes(channelName))
    .map((definition) => definition.name)
}

/** Nothing is recorded with a channel that was deleted meanwhile. */
export function* recordChannelUse(tx: Transaction, {name, error}: ChannelUse): Query<void> {
  if (error === null)
    yield* all(
      `UPDATE notice_channels SET last_ok_at = ?, channel_failing_since = NULL, last_error_text = ''
        WHERE channel_name = ?`,
      [tx.now, name],
    )
  else
    yield* all(
      `UPDATE notice_channels SET channel_failing_since = coalesce(channel_failing_since, ?),
        last_error_text = ? WHERE channel_name = ?`,
      [tx.now, error, name],
    )
}

export function* recordPings(
  tx: Transaction,
  {term, uses}: Parameters<LeaderStore['recordPings']>[0],
): Query<void> {
  yield* fence(tx, term)
  for (const use of uses) yield* recordChannelUse(tx, use)
}

export function* recordChannelTest(
  tx: Transaction,
  use: ChannelUse,
  actor: Actor = BELFRY,
): Query<void> {
  yield* recordChannelUse(tx, use)
  const detail = use.error ?? 'delivered'
  const target = use.name
  yield* recordChange(tx, {actor, action: 'channel.test', targetType: 'channel', target, detail})
}

function hasOwnSecret({name, config}: Pick<ChannelRecord, 'name' | 'config'>): boolean {
  return secretsOfConfig(config).includes(channelSecret(name))
}

/** Changes of channels and rules follow each other. */
export function* lockChannels(): Query<void> {
  yield* all(
    `INSERT INTO meta (key, value) VALUES (?, '1')
      ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(meta.value AS bigint) + 1 AS text)`,
    [REVISION],
  )
}
