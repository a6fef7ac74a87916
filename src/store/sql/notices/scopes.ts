/**
 * Scopes of notices: globs and kinds of all rules in one row, which transactions read to learn whether a
 * change is a fact. Another row is locked by each evaluation, and by each change of a rule.
 */
import {matchesText} from '../../../core/access/glob.ts'
import type {NewestMessages} from '../../../core/notice-evaluation.ts'
import {type NoticeScope, type ScopeKind, scopesOf} from '../../../core/notice-incidents.ts'
import type {RuleDefinition} from '../../../core/notice-rule.ts'
import {sweepWorkOf} from '../../../core/notice-sweeps.ts'
import {metaValue, putMeta} from '../cluster/settings.ts'
import {all, one, type Query, type Transaction} from '../query.ts'

/** Key of the scopes of all rules; absent = there are no rules. */
const NOTICE_SCOPES = 'notice_scopes'

/** Kinds of facts that rules are about, by name of a job. */
export type Scopes = (jobName: string) => ReadonlySet<ScopeKind>

const NOTHING: ReadonlySet<ScopeKind> = new Set()

export function* noticeScopes(): Query<Scopes> {
  const text = yield* metaValue(NOTICE_SCOPES)
  if (text === null) return () => NOTHING
  if (text !== newest.text) newest = {text, scopes: readScopes(text)}
  return newest.scopes
}

/** The text that was read last. Every commit reads it, and it changes only with a rule. */
let newest = {text: '', scopes: (() => NOTHING) as Scopes}

function readScopes(text: string): Scopes {
  const stored = JSON.parse(text) as readonly NoticeScope[]
  const scopes = stored.map(({jobs, kinds}) => ({jobs, kinds: new Set(kinds)}))
  return (name) => {
    const [first, ...others] = scopes.filter(({jobs}) => matchesText(jobs, name))
    if (first === undefined || others.length === 0) return first?.kinds ?? NOTHING
    return others.reduce<ReadonlySet<ScopeKind>>((all, {kinds}) => all.union(kinds), first.kinds)
  }
}

/** Key of the row that evaluations lock; its value is when each rule made its newest messages. */
export const EVALUATED = 'notice_evaluated'

/** Key of the row that regular looks read: what sweeps the rules need. */
export const SWEEP_WORK = 'notice_work'

/** Writes the scopes anew; called in the transaction that changes a rule. */
export function* writeScopes(tx: Transaction): Query<void> {
  yield* lockEvaluation(tx)
  const rows = yield* all<{rule_definition: string}>(`SELECT rule_definition FROM notice_rules`)
  const rules = rows.map((row) => JSON.parse(row.rule_definition) as RuleDefinition)
  yield* putMeta(NOTICE_SCOPES, JSON.stringify(scopesOf(rules)))
  const work = sweepWorkOf(rules.map((definition) => ({definition})))
  yield* putMeta(SWEEP_WORK, JSON.stringify(work))
  // Incidents of rules and conditions that are gone are closed by the next evaluation.
  yield* all(
    `UPDATE notice_incidents SET wake_at = ? WHERE incident_state <> 'closed' OR has_message = 1`,
    [tx.now],
  )
}

/** Evaluations of several servers wait for each other here. */
export function* lockEvaluation(tx: Transaction): Query<NewestMessages> {
  yield* all(`INSERT INTO meta (key, value) VALUES (?, '[]') ON CONFLICT (key) DO NOTHING`, [
    EVALUATED,
  ])
  const row = yield* one<{value: string}>(
    `SELECT value FROM meta WHERE key = ?${tx.dialect.forUpdate}`,
    [EVALUATED],
  )
  return new Map(JSON.parse(row!.value) as [string, Record<string, number>][])
}
