/**
 * Evaluation of notices in one transaction, under the lock of one row: loads facts and the incidents that
 * they concern, asks the core, and stores incidents and messages. A crash leaves all of it undone, and the
 * next evaluation finds the same facts.
 */
import {
  type Evaluated,
  evaluateNotices as evaluate,
  type NoticeMute,
  wakeAt,
} from '../../../core/notice-evaluation.ts'
import {type Incident, incidentKey, type NoticeFact} from '../../../core/notice-incidents.ts'
import {INCIDENTS_MAX, type NoticeMessage} from '../../../core/notice-message.ts'
import {summaryOf} from '../../../core/notice-summary.ts'
import type {CompiledRule, NoticeJob} from '../../../core/notice-rule.ts'
import {sendsEachIncident} from '../../../core/notice-channel.ts'
import type {
  EvaluateRequest,
  EvaluateResult,
  NoticeReport,
} from '../../../ports/notice-engine-store.ts'
import {loadJobs} from '../jobs/jobs.ts'
import {identity, putMeta} from '../cluster/settings.ts'
import {all, each, one, type Query, sendEach, together, type Transaction} from '../query.ts'
import {type ToldNotice, tellNotices} from './contents.ts'
import type {StoredFact} from './facts.ts'
import {channels as channelRecords} from './channels.ts'
import {loadRules} from './loaded-rules.ts'
import {EVALUATED, lockEvaluation} from './scopes.ts'
import {findSweeps, type FoundSweeps} from './sweeps.ts'

/** Facts of one transaction: it locks their jobs. */
const FACTS_MAX = 2_000
/** Facts that wait; beyond it the oldest go. */
const FACTS_WAITING_MAX = 100_000

interface FactRow {
  readonly fact_id: number
  readonly fact_at: number
  readonly fact_job_id: number
  readonly fact_job_name: string
  readonly fact_data: string
}

/** Settings of a server that has none of its own. */
const PLAIN_REPORT: NoticeReport = {
  publicUrl: '',
  defaultTarget: 'one',
  targetWaitMs: 0,
  queuedMax: 0,
  perIncidentKinds: [],
}

const NO_SWEEP: FoundSweeps = {changes: false, next: null, sweeps: [], watch: []}

const NOTHING: EvaluateResult = {
  opened: [],
  closed: [],
  messages: 0,
  hasMore: false,
  dropped: 0,
  next: null,
}

export function* evaluateNotices(
  tx: Transaction,
  {olderThanMs, sweep, seed, report = PLAIN_REPORT}: EvaluateRequest,
): Query<EvaluateResult> {
  if (sweep === null && !(yield* isDue(tx.now - olderThanMs))) return NOTHING
  const newest = yield* lockEvaluation(tx)
  const dropped = yield* dropFacts()
  const rows = yield* all<FactRow>(
    `SELECT fact_id, fact_at, fact_job_id, fact_job_name, fact_data FROM notice_facts
      ORDER BY fact_id LIMIT ?`,
    [FACTS_MAX],
  )
  const [loaded, mutes, jobs] = yield* together(loadRules(tx), loadMutes(tx), loadNoticeJobs(rows))
  const {rules, readerOf} = loaded
  const isReadable = (rule: string, job: string) => readerOf(rule).mayRead(job)
  const facts = rows.map((row) => factOf(row, jobs.get(row.fact_job_id)))
  const hasMore = rows.length === FACTS_MAX
  const now = hasMore ? rows.at(-1)!.fact_at - 1 : tx.now
  // Facts come first: the step is made by the call that finds no more of them.
  const isSwept = sweep !== null && !hasMore
  const {sweeps, next, watch} = isSwept ? yield* findSweeps(tx, sweep, loaded, true) : NO_SWEEP
  const incidents = yield* loadIncidents(
    tx,
    rows.map((row) => row.fact_job_name),
    sweeps.flatMap(({rule, condition, found, over}) =>
      [...found.map(({subject}) => subject), ...over].map((subject) =>
        incidentKey(rule, subject, condition),
      ),
    ),
  )
  const result = evaluate({now, rules, mutes, incidents, newest, facts, sweeps, isReadable})
  yield* writeIncidents(tx, result.incidents)
  const byName = new Map(rules.map((rule) => [rule.name, rule]))
  const told = yield* tellNotices(tx, result.messages, {
    report,
    reader: readerOf,
    outputLines: (rule) => byName.get(rule)!.definition.output_lines,
  })
  const messages = yield* writeMessages(tx, told, {rules: byName, seed, report})
  yield* sendEach(
    `DELETE FROM notice_facts WHERE fact_id = ?`,
    rows.map((row) => [row.fact_id]),
  )
  yield* putMeta(EVALUATED, JSON.stringify([...result.newest]))
  yield* sendEach(
    `UPDATE jobs SET watched = 1 WHERE id = ? AND watched IS NULL`,
    watch.toSorted((a, b) => a - b).map((id) => [id]),
  )
  yield* unwatch(tx, rows, result)
  return {...changesOf(incidents, result), messages, hasMore, dropped, next}
}

/** True if a fact or a timer of an incident has waited since `before`. */
function* isDue(before: number): Query<boolean> {
  const [fact, wake] = yield* together(oldestFact(), firstWake())
  return [fact, wake].some((at) => at !== null && at <= before)
}

/** When the oldest fact was stored; `null` = none waits. */
export function* oldestFact(): Query<number | null> {
  const row = yield* one<{fact_at: number}>(
    `SELECT fact_at FROM notice_facts ORDER BY fact_id LIMIT 1`,
  )
  return row?.fact_at ?? null
}

/** When the first timer of an incident is due; `null` = there is none. */
export function* firstWake(): Query<number | null> {
  const row = yield* one<{wake_at: number}>(
    `SELECT wake_at FROM notice_incidents WHERE wake_at IS NOT NULL ORDER BY wake_at LIMIT 1`,
  )
  return row?.wake_at ?? null
}

function* dropFacts(): Query<number> {
  const last = yield* one<{fact_id: number}>(
    `SELECT fact_id FROM notice_facts ORDER BY fact_id DESC LIMIT 1 OFFSET ?`,
    [FACTS_WAITING_MAX],
  )
  if (last === null) return 0
  const gone = yield* all(`DELETE FROM notice_facts WHERE fact_id <= ? RETURNING fact_id`, [
    last.fact_id,
  ])
  return gone.length
}

export function* loadMutes(tx: Transaction): Query<readonly NoticeMute[]> {
  return yield* all<NoticeMute & Record<string, never>>(
    `SELECT mute_rule AS rule, jobs_glob AS jobs, muted_at AS "from", muted_until AS until
      FROM notice_mutes WHERE muted_until > ?`,
    // Messages that a mute held are released at its end, also by a late evaluation.
    [tx.now - 24 * 3_600_000],
  )
}

function* loadNoticeJobs(rows: readonly FactRow[]): Query<ReadonlyMap<number, NoticeJob>> {
  const ids = [...new Set(rows.map((row) => row.fact_job_id))]
  const jobs = yield* loadJobs(ids)
  return new Map(jobs.flatMap((job) => (job === null ? [] : [[job.id, job.spec]])))
}

function factOf(row: FactRow, known: NoticeJob | undefined): NoticeFact {
  const {job: stored, ...fact} = JSON.parse(row.fact_data) as StoredFact
  const name = row.fact_job_name
  const {owner, metadata} = known ?? stored ?? {owner: '', metadata: {}}
  return {...fact, at: row.fact_at, job: {name, owner, metadata}}
}

const INCIDENT = `SELECT incident_key, incident_data FROM notice_incidents`

interface IncidentRow {
  readonly incident_key: string
  readonly incident_data: string
}

function* loadIncidents(
  tx: Transaction,
  subjects: readonly string[],
  keys: readonly string[],
): Query<readonly Incident[]> {
  const [due, pending, concerned, swept] = yield* together(
    all<IncidentRow>(`${INCIDENT} WHERE wake_at IS NOT NULL AND wake_at <= ?`, [tx.now]),
    all<IncidentRow>(`${INCIDENT} WHERE has_message = 1`),
    each<IncidentRow>(
      `${INCIDENT} WHERE incident_subject = ?`,
      [...new Set(subjects)].map((subject) => [subject]),
    ),
    each<IncidentRow>(
      `${INCIDENT} WHERE incident_key = ?`,
      keys.map((key) => [key]),
    ),
  )
  const rows = [...due, ...pending, ...concerned.flat(), ...swept.flat()]
  const byKey = new Map(rows.map((row) => [row.incident_key, row]))
  return [...byKey.values()].map((row) => JSON.parse(row.incident_data) as Incident)
}

function* writeIncidents(_tx: Transaction, incidents: readonly Incident[]): Query<void> {
  yield* sendEach(
    `INSERT INTO notice_incidents (incident_key, incident_rule, incident_subject, incident_state,
        opened_at, wake_at, has_message, incident_data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
      ON CONFLICT (incident_key) DO UPDATE SET incident_state = excluded.incident_state,
        opened_at = excluded.opened_at, wake_at = excluded.wake_at,
        has_message = excluded.has_message, incident_data = excluded.incident_data`,
    incidents.map((incident) => {
      const {key, rule, subject, state, openedAt, openDue, closeDue, flapping} = incident
      const dues = [openDue, closeDue, flapping?.due ?? null]
      const hasMessage = dues.some((due) => due !== null) ? 1 : 0
      const text = JSON.stringify(incident)
      return [key, rule, subject, state, openedAt, wakeAt(incident), hasMessage, text]
    }),
  )
}

interface Writing {
  readonly rules: ReadonlyMap<string, CompiledRule>
  readonly seed: string
  readonly report: NoticeReport
}

function* writeMessages(
  tx: Transaction,
  told: readonly ToldNotice[],
  {rules, seed, report}: Writing,
): Query<number> {
  if (told.length === 0) return 0
  const {clusterId} = yield* identity(tx)
  const stored = yield* channelRecords(tx)
  const channels = new Map(stored.filter(({enabled}) => enabled).map((each) => [each.name, each]))
  const rows = told.flatMap((each, index) => {
    const rule = rules.get(each.notice.rule)!
    const {kind, madeAt, sendAt} = each.notice
    return rule.definition.to.flatMap((name, at) => {
      const channel = channels.get(name)
      if (channel === undefined) return []
      const needsAll = sendsEachIncident(channel, report.perIncidentKinds)
      return messagesOf(each, rule, clusterId, needsAll).map((message) => {
        const part = message.part === 0 ? '' : `_${message.part}`
        const id = `ntc_${seed}_${index}_${at}${part}`
        return [id, name, rule.name, kind, JSON.stringify({...message, id}), madeAt, sendAt]
      })
    })
  })
  yield* sendEach(
    `INSERT INTO notice_messages (message_id, message_channel, message_rule, message_kind,
        message_data, made_at, send_at, message_state, message_attempt, holds_others, sender,
        claim_until, ended_at, failure)
      VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting', 0, 0, '', NULL, NULL, '')`,
    rows,
  )
  return rows.length
}

/** The message, and its further parts if the channel needs every incident. */
function messagesOf(
  {notice: {kind, madeAt}, incidents, folded}: ToldNotice,
  {name, severity}: CompiledRule,
  cluster: string,
  needsAll: boolean,
): readonly Omit<NoticeMessage, 'id'>[] {
  const dependents = folded.reduce((sum, each) => sum + each.dependents.length, 0)
  const summary = summaryOf(
    kind,
    folded.map(({incident}) => incident),
    dependents,
  )
  const common = {kind, rule: name, severity, cluster, sentAt: madeAt, attempt: 1, repeat: false}
  const parts = Math.max(1, Math.ceil(incidents.length / INCIDENTS_MAX))
  return Array.from({length: needsAll ? parts : 1}, (_, part) => {
    const [from, until] = [part * INCIDENTS_MAX, (part + 1) * INCIDENTS_MAX]
    const shown = incidents.slice(from, until)
    const more = part === 0 ? incidents.length - shown.length : 0
    return {...common, summary, more, part, incidents: shown}
  })
}

/**
 * Jobs without an open incident are no longer watched. Their rows are locked before facts are looked up: a
 * change that comes later stores its fact and watches the job again.
 */
function* unwatch(tx: Transaction, rows: readonly FactRow[], result: Evaluated): Query<void> {
  const closed = new Set(
    result.incidents.filter(({state, job}) => state === 'closed' && job !== '').map(({job}) => job),
  )
  const stored = yield* each<{id: number}>(
    `SELECT id FROM jobs WHERE name = ? AND deleted_at IS NULL AND watched = 1`,
    [...closed].map((name) => [name]),
  )
  const ids = [
    ...new Set([...rows.map((row) => row.fact_job_id), ...stored.flat().map(({id}) => id)]),
  ]
  const jobs = yield* each<{id: number}>(
    `SELECT id FROM jobs WHERE id = ? AND watched = 1${tx.dialect.forUpdate}`,
    ids.toSorted((a, b) => a - b).map((id) => [id]),
  )
  yield* sendEach(
    `UPDATE jobs SET watched = NULL WHERE id = ?
      AND NOT EXISTS (SELECT 1 FROM notice_facts WHERE fact_job_id = jobs.id)
      AND NOT EXISTS (SELECT 1 FROM notice_incidents WHERE incident_subject = jobs.name
        AND incident_state <> 'closed')`,
    jobs.flat().map(({id}) => [id]),
  )
}

function changesOf(
  before: readonly Incident[],
  {incidents}: Evaluated,
): Pick<EvaluateResult, 'opened' | 'closed'> {
  const wasOpen = new Set(before.filter(({state}) => state === 'open').map(({key}) => key))
  const changed = (state: Incident['state']) =>
    incidents
      .filter((incident) => incident.state === state)
      .filter(({key}) => wasOpen.has(key) === (state === 'closed'))
      .map(({key, rule}) => ({key, rule}))
  return {opened: changed('open'), closed: changed('closed')}
}
