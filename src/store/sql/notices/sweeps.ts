/**
 * Reads of sweeps: narrow rows of what waits, runs or does not succeed, and the open incidents to compare
 * them with. The core says what a condition finds. A read finds out whether anything changed; the
 * evaluation repeats it under its lock, so that two servers never open or close an incident twice.
 */
import {matchesText} from '../../../core/access/glob.ts'
import {executionId} from '../../../core/execution.ts'
import {isInForce, latestPause} from '../../../core/firing.ts'
import type {JobSpec} from '../../../core/job.ts'
import type {Sweep} from '../../../core/notice-evaluation.ts'
import {incidentKey} from '../../../core/notice-incidents.ts'
import {type CompiledRule, type Condition, covers} from '../../../core/notice-rule.ts'
import {
  type ClusterCondition,
  type ClusterFacts,
  expectedAtOf,
  findInCluster,
  findLate,
  findRunning,
  type Found,
  isOverdue,
  lateMsOf,
  overdueEvidence,
  plainName,
  type RunningRow,
  runningMinMsOf,
  sweptConditions,
  type SweptJob,
  type WaitingRow,
} from '../../../core/notice-sweeps.ts'
import {matchTargets} from '../../../core/target.ts'
import type {SweepResult, SweepStep} from '../../../ports/notice-engine-store.ts'
import {metaValue, FIRING_PAUSED, timezone} from '../cluster/settings.ts'
import {storedPauses} from '../jobs/firing.ts'
import {loadJobs} from '../jobs/jobs.ts'
import {all, each, one, oneEach, type Query, together, type Transaction} from '../query.ts'
import {type LoadedRules, loadRules} from './loaded-rules.ts'

/** Open incidents of all rules; beyond it none opens. */
const OPEN_MAX = 50_000
/** Subjects that open in one transaction. */
const OPENINGS_MAX = 1_000

export interface FoundSweeps extends SweepResult {
  readonly sweeps: readonly Sweep[]
  /** Jobs whose next success is a fact from now on. */
  readonly watch: readonly number[]
}

/** Reads whether the step of a sweep finds anything that is not stored, and where the next one begins. */
export function* sweepNotices(tx: Transaction, step: SweepStep): Query<SweepResult> {
  const {changes, next} = yield* findSweeps(tx, step, yield* loadRules(tx))
  return {changes, next}
}

/** Locks no row unless `locks`: then jobs that seem overdue are read again under a lock. */
export function* findSweeps(
  tx: Transaction,
  step: SweepStep,
  loaded: LoadedRules,
  locks = false,
): Query<FoundSweeps> {
  const asked = loaded.rules.flatMap((rule) =>
    sweptConditions(rule, step.kind).map((condition) => ({rule, condition})),
  )
  if (asked.length === 0) return {changes: false, next: null, sweeps: [], watch: []}
  const sweeping = new Sweeping(tx, step, loaded, asked, locks)
  switch (step.kind) {
    case 'cluster':
      return yield* sweeping.cluster()
    case 'executions':
      return yield* sweeping.executions()
    case 'jobs':
      return yield* sweeping.jobs()
  }
}

interface Asked {
  readonly rule: CompiledRule
  readonly condition: Condition
}

/** Subjects of one condition of one rule. */
interface Holding extends Asked {
  readonly found: readonly Found[]
}

/** Names beyond `after`, up to `through`; `null` = to the end. */
interface Range {
  readonly after: string
  readonly through: string | null
}

const EVERYTHING: Range = {after: '', through: null}

class Sweeping {
  readonly #tx: Transaction
  readonly #step: SweepStep
  readonly #loaded: LoadedRules
  readonly #asked: readonly Asked[]
  readonly #locks: boolean

  constructor(
    tx: Transaction,
    step: SweepStep,
    loaded: LoadedRules,
    asked: readonly Asked[],
    locks: boolean,
  ) {
    this.#tx = tx
    this.#step = step
    this.#loaded = loaded
    this.#asked = asked
    this.#locks = locks
  }

  *cluster(): Query<FoundSweeps> {
    const {now} = this.#tx
    const facts = yield* clusterFacts(this.#tx, this.#step.rowsMax)
    const holding = this.#asked.map(({rule, condition}) => {
      const found = this.#loaded.readerOf(rule.name).seesNodes
        ? findInCluster(condition as ClusterCondition, rule.definition.when[condition]!, facts, now)
        : []
      return {rule, condition, found}
    })
    return yield* this.#compare(holding, EVERYTHING, yield* openIncidents(EVERYTHING), true)
  }

  *executions(): Query<FoundSweeps> {
    const {now} = this.#tx
    const {rowsMax} = this.#step
    const shortest = (of: Condition, lengthOf: (asked: Asked) => number) =>
      Math.min(...this.#asked.filter(({condition}) => condition === of).map(lengthOf))
    const late = shortest('late', ({rule}) => lateMsOf(rule.definition.when['late']!))
    const long = shortest('running', ({rule}) => runningMinMsOf(rule.definition.when['running']!))
    const [waiting, running, open, more] = yield* together(
      waitingRows(now - late, rowsMax),
      runningRows(now - long, rowsMax),
      openIncidents(EVERYTHING),
      hasMorePending(rowsMax),
    )
    const found = this.#asked.map(({rule, condition}) => {
      const parameters = rule.definition.when[condition]!
      const all =
        condition === 'late'
          ? findLate(parameters, waiting, now)
          : findRunning(parameters, running, now)
      return {rule, condition, found: all.filter(({subject}) => this.#names(rule, subject))}
    })
    const holding = yield* this.#covered(found)
    // Rows that were not read may still hold for a subject that was not found.
    const isWhole = waiting.length < rowsMax && running.length < rowsMax && !more
    return yield* this.#compare(holding, EVERYTHING, open, isWhole)
  }

  *jobs(): Query<FoundSweeps> {
    const plain = this.#asked.map(({rule}) => plainName(rule))
    const names = plain.every((name) => name !== null) ? plain : null
    const {after, rowsMax} = this.#step
    const rows = names === null ? yield* jobsPage(after, rowsMax) : yield* namedJobs(names)
    const isLast = names !== null || rows.length < rowsMax
    const through = isLast ? null : rows.at(-1)!.name
    const range = {after, through}
    const [missing, open, defaultZone] = yield* together(
      this.#missingJobs(range),
      openIncidents(range),
      timezone(),
    )
    const all = [...rows, ...missing]
    const {found, rows: fresh} = yield* this.#overdue(all, open, defaultZone)
    const result = yield* this.#compare(found, range, open, true)
    const opening = new Set(
      result.sweeps.flatMap((sweep) => sweep.found.map((each) => each.subject)),
    )
    const watch = fresh.flatMap(({name, id, isWatched}) =>
      id !== null && !isWatched && opening.has(name) ? [id] : [],
    )
    return {...result, next: result.next ?? through, watch}
  }

  /** Overdue jobs by condition, with evidence for those that have no incident yet. */
  *#overdue(
    rows: readonly SweptJob[],
    open: ReadonlySet<string>,
    defaultZone: string,
  ): Query<{readonly found: readonly Holding[]; readonly rows: readonly SweptJob[]}> {
    const {now} = this.#tx
    const expected = this.#asked.map(({rule, condition}) => {
      const since = this.#loaded.storedAt.get(rule.name)!
      const parameters = rule.definition.when[condition]!
      const expectedAt = expectedAtOf(condition, parameters, {now, since, defaultZone})
      return {rule, condition, parameters, expectedAt}
    })
    const overdue =
      ({rule, condition, parameters, expectedAt}: (typeof expected)[number]) =>
      (job: SweptJob) =>
        expectedAt !== null &&
        this.#names(rule, job.name) &&
        isOverdue(condition, parameters, job, expectedAt)
    const isNew = ({rule, condition}: Asked, name: string) =>
      !open.has(incidentKey(rule.name, name, condition))
    const suspects = rows.filter((job) =>
      expected.some((each) => isNew(each, job.name) && overdue(each)(job)),
    )
    const current = this.#locks ? yield* lockedRows(this.#tx, rows, suspects) : rows
    const specs = yield* specsOf(
      current.filter((job) =>
        expected.some((each) => {
          return overdue(each)(job) && (hasFilter(each.rule) || isNew(each, job.name))
        }),
      ),
    )
    const circumstances = yield* this.#circumstances(specs.size > 0 || suspects.length > 0)
    const found = expected.map((each): Holding => {
      const {rule, condition, parameters, expectedAt} = each
      const held = current.filter((job) => {
        const spec = specs.get(job.name)
        const isMeant =
          job.id === null || !hasFilter(rule) || (spec && covers(rule.definition, spec))
        return overdue(each)(job) && isMeant === true
      })
      return {
        rule,
        condition,
        // While no time of the schedule has come, nothing is over either.
        found: held.map((job) => {
          const at = {now, expectedAt: expectedAt!}
          const why = circumstances(job.name, specs.get(job.name))
          return {subject: job.name, evidence: overdueEvidence(condition, parameters, job, at, why)}
        }),
      }
    })
    const judged = found.filter((_each, index) => expected[index]!.expectedAt !== null)
    return {found: judged, rows: current}
  }

  *#circumstances(isNeeded: boolean) {
    const [pauses, members] = isNeeded
      ? yield* together(
          storedPauses(),
          all<{tags: string}>(
            `SELECT tags FROM members WHERE status = 'alive' AND runs = 1 AND cordoned_at IS NULL`,
          ),
        )
      : [[], []]
    const inForce = pauses.filter((pause) => isInForce(pause, this.#tx.now))
    const nodes = members.map(({tags}) => ({tags: JSON.parse(tags) as Record<string, string>}))
    return (name: string, spec: JobSpec | undefined) => {
      const pause = latestPause(inForce, name)
      return {
        pause: pause === null ? '' : `its firing is paused by ${pause.pausedBy}`,
        hasNode: spec === undefined || matchTargets(spec.tags, nodes, 'all').nodes.length > 0,
      }
    }
  }

  /** Jobs that a rule names and that are not stored, in the range. */
  *#missingJobs({after, through}: Range): Query<readonly SweptJob[]> {
    const names = new Map<string, number>()
    for (const {rule} of this.#asked) {
      const name = plainName(rule)
      if (name === null || name <= after || (through !== null && name > through)) continue
      names.set(name, Math.min(names.get(name) ?? Infinity, this.#loaded.storedAt.get(rule.name)!))
    }
    const [stored, gone] = yield* together(
      oneEach(
        `SELECT id FROM jobs WHERE name = ? AND deleted_at IS NULL`,
        [...names.keys()].map((name) => [name]),
      ),
      oneEach<{last_success: number | null}>(
        `SELECT last_success FROM jobs WHERE name = ? AND deleted_at IS NOT NULL
          ORDER BY id DESC LIMIT 1`,
        [...names.keys()].map((name) => [name]),
      ),
    )
    return [...names].flatMap(([name, knownSince], index) => {
      if (stored[index] !== null) return []
      const lastSuccessAt = gone[index]?.last_success ?? null
      return [{name, id: null, lastSuccessAt, knownSince, isDisabled: false, isWatched: false}]
    })
  }

  #names({name, definition}: CompiledRule, job: string): boolean {
    return matchesText(definition.jobs, job) && this.#loaded.readerOf(name).mayRead(job)
  }

  /** Leaves out jobs whose owner or metadata are others. */
  *#covered(holding: readonly Holding[]): Query<readonly Holding[]> {
    const names = holding
      .filter(({rule}) => hasFilter(rule))
      .flatMap(({found}) => found.map(({subject}) => subject))
    if (names.length === 0) return holding
    const rows = yield* namedJobs(names)
    const specs = yield* specsOf(rows)
    return holding.map(({rule, condition, found}) => {
      const isMeant = ({subject}: Found) => {
        const spec = specs.get(subject)
        return !hasFilter(rule) || (spec !== undefined && covers(rule.definition, spec))
      }
      return {rule, condition, found: found.filter(isMeant)}
    })
  }

  /** The differences to the open incidents. `isWhole`: what was not found in the range is over. */
  *#compare(
    holding: readonly Holding[],
    range: Range,
    open: ReadonlySet<string>,
    isWhole: boolean,
  ): Query<FoundSweeps> {
    const at = this.#tx.now
    let room = Math.min(OPENINGS_MAX, Math.max(0, OPEN_MAX - (yield* openCount())))
    let isCut = false
    const sweeps = holding.map(({rule, condition, found}): Sweep => {
      const fresh = found.filter(
        ({subject}) => !open.has(incidentKey(rule.name, subject, condition)),
      )
      const taken = fresh.slice(0, room)
      room -= taken.length
      isCut ||= taken.length < fresh.length && room === 0
      const held = new Set(found.map(({subject}) => incidentKey(rule.name, subject, condition)))
      const over = isWhole
        ? [...open].flatMap((key) => {
            const subject = subjectOf(key, rule.name, condition)
            return subject === null || held.has(key) ? [] : [subject]
          })
        : []
      return {at, rule: rule.name, condition, found: taken, over}
    })
    const changed = sweeps.filter(({found, over}) => found.length + over.length > 0)
    const hasOpened = changed.some(({found}) => found.length > 0)
    // The same step again finds the rest, unless all incidents that may be open are.
    const next = isCut && hasOpened ? range.after : null
    return {changes: changed.length > 0, next, sweeps: changed, watch: []}
  }
}

function hasFilter({definition: {owner, metadata}}: CompiledRule): boolean {
  return owner !== '' || Object.keys(metadata).length > 0
}

/** Subject of an incident of this rule and condition; `null` = it is of another one. */
function subjectOf(key: string, rule: string, condition: Condition): string | null {
  const [begin, end] = [`${rule}/`, `/${condition}`]
  const isMeant =
    key.startsWith(begin) && key.endsWith(end) && key.length > begin.length + end.length
  return isMeant ? key.slice(begin.length, -end.length) : null
}

/** Keys of open incidents whose subjects are in the range. */
function* openIncidents({after, through}: Range): Query<ReadonlySet<string>> {
  const upTo = through === null ? '' : ' AND incident_subject <= ?'
  const rows = yield* all<{incident_key: string}>(
    `SELECT incident_key FROM notice_incidents
      WHERE incident_state = 'open' AND incident_subject > ?${upTo}`,
    through === null ? [after] : [after, through],
  )
  return new Set(rows.map((row) => row.incident_key))
}

function* openCount(): Query<number> {
  const row = yield* one<{count: number}>(
    `SELECT count(*) AS count FROM notice_incidents WHERE incident_state = 'open'`,
  )
  return row!.count
}

function* clusterFacts(tx: Transaction, rowsMax: number): Query<ClusterFacts> {
  const [since, failed, pauses, paused, restored, oldest, channels] = yield* together(
    leaderlessSince(tx.now),
    all<{name: string; heartbeat_at: number}>(
      `SELECT name, heartbeat_at FROM members WHERE status = 'failed' ORDER BY name LIMIT ?`,
      [rowsMax],
    ),
    storedPauses(),
    metaValue(FIRING_PAUSED),
    one<{began_at: number}>(
      `SELECT began_at FROM cluster_events WHERE event_kind = 'store_restored' AND over_at IS NULL
        ORDER BY began_at DESC LIMIT 1`,
    ),
    one<{next_at: number}>(
      `SELECT next_at FROM jobs WHERE next_at IS NOT NULL ORDER BY next_at, id LIMIT 1`,
    ),
    all<{channel_name: string; channel_failing_since: number; last_error_text: string}>(
      `SELECT channel_name, channel_failing_since, last_error_text FROM notice_channels
        WHERE channel_failing_since IS NOT NULL AND channel_enabled = 1`,
    ),
  )
  return {
    leaderlessSince: since,
    failed: failed.map((row) => ({name: row.name, heartbeatAt: row.heartbeat_at})),
    pauses: pauses.filter((pause) => isInForce(pause, tx.now)),
    restoredAt: paused === null ? null : (restored?.began_at ?? 0),
    oldestPlannedAt: oldest?.next_at ?? null,
    failingChannels: channels.map((row) => ({
      name: row.channel_name,
      since: row.channel_failing_since,
      error: row.last_error_text,
    })),
  }
}

/** A term that was given up has an event; one that was not renewed ended with its lease. */
function* leaderlessSince(now: number): Query<number | null> {
  const [row, event] = yield* together(
    one<{holder: string; expires_at: number}>(`SELECT holder, expires_at FROM leader`),
    one<{began_at: number}>(
      `SELECT began_at FROM cluster_events WHERE event_kind = 'no_leader' AND over_at IS NULL
        ORDER BY began_at DESC LIMIT 1`,
    ),
  )
  if (row === null || row.holder === '') return event?.began_at ?? null
  return row.expires_at <= now ? row.expires_at : null
}

/** Planned times without a decision, requests without one, and first attempts that have not started. */
function* waitingRows(before: number, limit: number): Query<readonly WaitingRow[]> {
  if (before === -Infinity) return []
  const [planned, undecided, pending] = yield* together(
    all<{name: string; planned_at: number}>(
      `SELECT name, next_at AS planned_at FROM jobs WHERE next_at <= ? ORDER BY next_at, id LIMIT ?`,
      [before, limit],
    ),
    all<{name: string; planned_at: number; group_id: number}>(
      `SELECT j.name, l.scheduled_at AS planned_at, l.group_id FROM launches l
        JOIN jobs j ON j.id = l.job_id AND j.deleted_at IS NULL
        WHERE l.decision = 'pending' AND l.scheduled_at <= ? ORDER BY l.group_id LIMIT ?`,
      [before, limit],
    ),
    // The oldest launches come first. A bound within keeps the read short when very many are new.
    all<{name: string; planned_at: number; group_id: number; node_name: string}>(
      `SELECT j.name, l.scheduled_at AS planned_at, e.group_id, e.node_name
        FROM (SELECT group_id, job_id, node_name, attempt FROM executions WHERE status = 'pending'
          ORDER BY group_id, slot, attempt LIMIT ?) e
        JOIN launches l ON l.group_id = e.group_id
        JOIN jobs j ON j.id = e.job_id AND j.deleted_at IS NULL
        WHERE e.attempt = 1 AND l.scheduled_at <= ? ORDER BY e.group_id`,
      [limit, before],
    ),
  )
  return [
    ...planned.map((row) => ({job: row.name, plannedAt: row.planned_at, launch: null, node: ''})),
    ...undecided.map((row) => {
      return {job: row.name, plannedAt: row.planned_at, launch: row.group_id, node: ''}
    }),
    ...pending.map((row) => {
      return {
        job: row.name,
        plannedAt: row.planned_at,
        launch: row.group_id,
        node: row.node_name,
      }
    }),
  ]
}

/** True if more executions are pending than one read takes. */
function* hasMorePending(limit: number): Query<boolean> {
  const row = yield* one(
    `SELECT group_id FROM executions WHERE status = 'pending'
      ORDER BY group_id, slot, attempt LIMIT 1 OFFSET ?`,
    [limit],
  )
  return row !== null
}

function* runningRows(before: number, limit: number): Query<readonly RunningRow[]> {
  if (before === -Infinity) return []
  const rows = yield* all<{
    group_id: number
    node_name: string
    attempt: number
    name: string
    started_at: number
    typical_ms: number | null
  }>(
    `SELECT e.group_id, e.node_name, e.attempt, j.name, e.started_at, j.typical_ms FROM executions e
      JOIN jobs j ON j.id = e.job_id WHERE e.status = 'running' AND e.started_at <= ?
      AND j.deleted_at IS NULL ORDER BY e.node_id, e.started_at LIMIT ?`,
    [before, limit],
  )
  return rows.map((row) => {
    const key = {group: row.group_id, node: row.node_name, attempt: row.attempt}
    return {
      job: row.name,
      launch: row.group_id,
      execution: executionId(key),
      node: row.node_name,
      startedAt: row.started_at,
      typicalMs: row.typical_ms,
    }
  })
}

interface SweptRow {
  readonly id: number
  readonly name: string
  readonly disabled: number
  readonly last_success: number | null
  readonly created_at: number
  readonly reset_at: number | null
  readonly watched: number | null
}

const SWEPT = 'id, name, disabled, last_success, created_at, reset_at, watched'

function sweptOf(row: SweptRow): SweptJob {
  return {
    id: row.id,
    name: row.name,
    lastSuccessAt: row.last_success,
    knownSince: Math.max(row.created_at, row.reset_at ?? 0),
    isDisabled: row.disabled === 1,
    isWatched: row.watched === 1,
  }
}

function* jobsPage(after: string, limit: number): Query<readonly SweptJob[]> {
  const rows = yield* all<SweptRow>(
    `SELECT ${SWEPT} FROM jobs WHERE deleted_at IS NULL AND name > ? ORDER BY name LIMIT ?`,
    [after, limit],
  )
  return rows.map(sweptOf)
}

function* namedJobs(names: readonly string[]): Query<readonly SweptJob[]> {
  const rows = yield* oneEach<SweptRow>(
    `SELECT ${SWEPT} FROM jobs WHERE deleted_at IS NULL AND name = ?`,
    [...new Set(names)].map((name) => [name]),
  )
  return rows.flatMap((row) => (row === null ? [] : [sweptOf(row)]))
}

/**
 * Reads suspects under a lock, so that a success that commits at this moment is either seen here, or finds
 * the job watched and stores a fact. A watched job needs no lock.
 */
function* lockedRows(
  tx: Transaction,
  rows: readonly SweptJob[],
  suspects: readonly SweptJob[],
): Query<readonly SweptJob[]> {
  const ids = suspects.flatMap(({id, isWatched}) => (id === null || isWatched ? [] : [id]))
  const locked = yield* each<SweptRow>(
    `SELECT ${SWEPT} FROM jobs WHERE id = ? AND deleted_at IS NULL${tx.dialect.forUpdate}`,
    ids.toSorted((a, b) => a - b).map((id) => [id]),
  )
  const fresh = new Map(locked.flat().map((row) => [row.id, sweptOf(row)]))
  return rows.map((row) => (row.id === null ? row : (fresh.get(row.id) ?? row)))
}

/** Definitions by name. */
function* specsOf(rows: readonly SweptJob[]): Query<ReadonlyMap<string, JobSpec>> {
  const ids = rows.flatMap(({id}) => (id === null ? [] : [id]))
  const jobs = yield* loadJobs(ids)
  return new Map(jobs.flatMap((job) => (job === null ? [] : [[job.spec.name, job.spec] as const])))
}
