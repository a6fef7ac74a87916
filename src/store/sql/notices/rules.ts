/** Rules of notices. Each change writes the scopes that transactions read, so that it acts at once. */
import {isFull} from '../../../core/bounds.ts'
import {type Actor, BELFRY} from '../../../core/audit.ts'
import type {TokenKind} from '../../../core/access/authorization.ts'
import {pingsCluster} from '../../../core/notice-channel.ts'
import {type RuleDefinition, RULES_MAX} from '../../../core/notice-rule.ts'
import type {NewRule, PutRuleResult, RuleRecord} from '../../../ports/notice-store.ts'
import {recordChange} from '../access/audit.ts'
import {all, one, type Query, type Transaction} from '../query.ts'
import {olderServer} from '../cluster/members.ts'
import {channels, lockChannels} from './channels.ts'
import {writeScopes} from './scopes.ts'

interface RuleRow {
  readonly rule_name: string
  readonly rule_definition: string
  readonly rule_revision: number
  readonly rule_author: string
  readonly rule_author_kind: TokenKind
  readonly rule_author_policies: string
  readonly rule_changed_at: number
}

const COLUMNS = `rule_name, rule_definition, rule_revision, rule_author, rule_author_kind,
  rule_author_policies, rule_changed_at`

function ruleOf(row: RuleRow): RuleRecord {
  return {
    definition: JSON.parse(row.rule_definition) as RuleDefinition,
    revision: row.rule_revision,
    author: {
      name: row.rule_author,
      kind: row.rule_author_kind,
      policies: JSON.parse(row.rule_author_policies) as string[],
    },
    updatedAt: row.rule_changed_at,
  }
}

export function* rules(_tx: Transaction): Query<readonly RuleRecord[]> {
  const rows = yield* all<RuleRow>(`SELECT ${COLUMNS} FROM notice_rules ORDER BY rule_name`)
  return rows.map(ruleOf)
}

export function* rule(_tx: Transaction, name: string): Query<RuleRecord | null> {
  const row = yield* one<RuleRow>(`SELECT ${COLUMNS} FROM notice_rules WHERE rule_name = ?`, [name])
  return row === null ? null : ruleOf(row)
}

export function* putRule(
  tx: Transaction,
  {definition, author}: NewRule,
  actor: Actor = BELFRY,
): Query<PutRuleResult> {
  const {name, to} = definition
  const older = yield* olderServer()
  if (older !== null) return {kind: 'not_ready', server: older}
  // No rule names a channel that is deleted meanwhile.
  yield* lockChannels()
  const known = new Map((yield* channels(tx)).map((channel) => [channel.name, channel]))
  const unknown = to.filter((each) => !known.has(each))
  if (unknown.length > 0) return {kind: 'channel_unknown', names: unknown}
  const ofCluster = to.filter((each) => pingsCluster(known.get(each)!))
  if (ofCluster.length > 0) return {kind: 'channel_of_cluster', names: ofCluster}
  const counted = yield* one<{total: number; same: number}>(
    `SELECT count(*) AS total, count(CASE WHEN rule_name = ? THEN 1 END) AS same FROM notice_rules`,
    [name],
  )
  const {total, same} = counted!
  if (isFull(total, RULES_MAX, same === 0)) return {kind: 'full'}
  yield* all(
    `INSERT INTO notice_rules (${COLUMNS}) VALUES (?, ?, 1, ?, ?, ?, ?)
      ON CONFLICT (rule_name) DO UPDATE SET rule_definition = excluded.rule_definition,
        rule_revision = notice_rules.rule_revision + 1, rule_author = excluded.rule_author,
        rule_author_kind = excluded.rule_author_kind,
        rule_author_policies = excluded.rule_author_policies, rule_changed_at = excluded.rule_changed_at`,
    [
      name,
      JSON.stringify(definition),
      author.name,
      author.kind,
      JSON.stringify(author.policies),
      tx.now,
    ],
  )
  yield* writeScopes(tx)
  const detail = same === 0 ? 'new' : 'replaced'
  yield* recordChange(tx, {actor, action: 'rule.set', targetType: 'rule', target: name, detail})
  return {kind: 'stored', rule: (yield* rule(tx, name))!}
}

export function* deleteRule(
  tx: Transaction,
  name: string,
  actor: Actor = BELFRY,
): Query<RuleRecord | null> {
  const before = yield* rule(tx, name)
  if (before === null) return null
  yield* all(`DELETE FROM notice_rules WHERE rule_name = ?`, [name])
  yield* writeScopes(tx)
  yield* recordChange(tx, {actor, action: 'rule.delete', targetType: 'rule', target: name})
  return before
}
