/**
 * The run step's half of the store: a node takes its pending executions. The claim is the only way from
 * pending to running; it carries a token the node minted, so that a claim whose answer was lost is
 * repeated, not doubled. Nodes ask far more often than they have something to take, so what all of them ask
 * is looked up at once, and only who has work is looked at alone.
 */
import type {ExecutionKey, ExecutionRecord} from '../../core/execution.ts'
import {endsWhenDisconnected, type JobSpec} from '../../core/job.ts'
import type {LaunchCause} from '../../core/launch-record.ts'
import type {MemberStatus} from '../../core/node.ts'
import type {
  ClaimedExecution,
  ClaimRequest,
  ClaimResult,
  ClaimStatus,
  ActiveClaim,
} from '../../ports/node-store.ts'
import type {FinishBatch} from './finish-ledger.ts'
import {loadFinishBatch} from './finish-rows.ts'
import {all, each, one, oneEach, type Query, type Transaction, type Values} from './query.ts'
import {
  BY_KEY,
  EXECUTION_COLUMNS_E,
  executionOf,
  type ExecutionRow,
  keyOf,
  keyValues,
} from './rows.ts'

type Claim = Pick<ActiveClaim, 'key' | 'token'>

interface ClaimableRow extends ExecutionRow {
  readonly definition: string
  readonly job_revision: number
  readonly cause: LaunchCause
  readonly scheduled_at: number
}

const CLAIMABLE = `SELECT ${EXECUTION_COLUMNS_E}, d.definition, j.revision AS job_revision, l.cause,
  l.scheduled_at
  FROM executions e
  JOIN jobs j ON j.id = e.job_id
  JOIN definitions d ON d.job_id = e.job_id
  JOIN launches l ON l.group_id = e.group_id
  WHERE e.node_id = ?`

/** What can be taken at an instant. */
const IS_DUE = `e.status = 'pending' AND e.not_before <= ? AND e.cancel_requested_at IS NULL
  AND j.deleted_at IS NULL`

/** Of rows that were found pending and are locked: by their key, which is quick however many wait. */
const TAKE = `UPDATE executions SET status = 'running', started_at = ?, revision = ?, claim_token = ?,
  incarnation = ? WHERE ${BY_KEY}`

/** When to look again for what somebody held: they hold it for as long as a commit takes. */
const HELD_LOOK_MS = 20

/** Waiting executions are counted up to here: it is enough to know that there are many. */
const WAITING_COUNTED_MAX = 1_000

/** Answers each request, in order: also several of one node see what those before them took. */
export function* claim(
  tx: Transaction,
  requests: readonly ClaimRequest[],
): Query<readonly ClaimResult[]> {
  const ids = requests.map(({nodeId}) => [nodeId])
  const lives = yield* memberLives(tx, ids)
  // Locked: a claim that is repeated while its first try is still being committed waits for that.
  const rows = yield* oneEach<{token: string}>(
    `SELECT token FROM node_claims WHERE node_id = ?${tx.dialect.forUpdate}`,
    ids,
  )
  const outlooks = yield* oneEach<Outlook>(
    OUTLOOK,
    requests.map(({nodeId}) => [nodeId, tx.now, nodeId, tx.now]),
  )
  /** Token of the newest claim of each node. */
  const newest = new Map(requests.map(({nodeId}, index) => [nodeId, rows[index]?.token ?? '']))
  const results: ClaimResult[] = []
  for (const [index, request] of requests.entries()) {
    const life = lives[index] ?? null
    const last = newest.get(request.nodeId)!
    const outlook = outlooks[index]!
    if (life?.incarnation !== request.incarnation) {
      results.push({claimed: [], waiting: 0, nextDueInMs: null})
    } else if (outlook.is_due === 1 || request.token === last) {
      const isGone = life.status === 'failed' || life.status === 'left'
      const result = yield* claimDue(tx, request, last, isGone)
      newest.set(request.nodeId, result.newest)
      results.push(result)
    } else {
      const nextDueInMs = outlook.next_at === null ? null : outlook.next_at - tx.now
      results.push({claimed: [], newest: last, waiting: 0, nextDueInMs})
    }
  }
  return results
}

/** What there is for a node at a moment. */
interface Outlook {
  readonly is_due: number
  readonly next_at: number | null
}

const OUTLOOK = `SELECT
  CASE WHEN EXISTS (SELECT 1 FROM executions e JOIN jobs j ON j.id = e.job_id
    WHERE e.node_id = ? AND ${IS_DUE}) THEN 1 ELSE 0 END AS is_due,
  (SELECT min(not_before) FROM executions
    WHERE node_id = ? AND status = 'pending' AND not_before > ?) AS next_at`

/** The claim of a node that has work, or asks again. `last`: token of its newest claim. */
function* claimDue(
  tx: Transaction,
  request: ClaimRequest,
  last: string,
  isGone: boolean,
): Query<ClaimResult & {readonly newest: string}> {
  const {nodeId, token, room} = request
  const isOvertaken = request.after !== undefined && request.after !== last
  const claimed =
    last === token
      ? yield* claimedUnder(nodeId, token)
      : yield* takeDue(tx, isGone || isOvertaken ? {...request, room: 0} : request)
  const newest = claimed.length > 0 ? token : last
  const hadRoom = claimed.length < room
  const waits = yield* whatWaits(tx, nodeId, hadRoom)
  if (!hadRoom || isGone || !(yield* isSomeHeld(tx, nodeId))) return {claimed, newest, ...waits}
  const nextDueInMs = Math.min(HELD_LOOK_MS, waits.nextDueInMs ?? HELD_LOOK_MS)
  return {claimed, newest, ...waits, nextDueInMs}
}

/**
 * True when something could have been taken but for a transaction that held it just then: each end of an
 * execution locks those of the same launch on other nodes.
 */
function* isSomeHeld(tx: Transaction, nodeId: string): Query<boolean> {
  // Where a writer is alone nothing is held by another.
  if (!tx.dialect.locking) return false
  const row = yield* one(
    `SELECT 1 AS found FROM executions e JOIN jobs j ON j.id = e.job_id WHERE e.node_id = ? AND
      ${IS_DUE} LIMIT 1`,
    [nodeId, tx.now],
  )
  return row !== null
}

/**
 * The life of each node that is a member; a claim of any other takes nothing. Locks their identities, not
 * their heartbeats: another life joins, another identity takes a name, and one is forgotten or removed only
 * after this claim is committed, and what it took is seen then.
 */
function* memberLives(
  tx: Transaction,
  ids: readonly Values[],
): Query<({readonly incarnation: string; readonly status: MemberStatus} | null)[]> {
  return yield* oneEach(
    `SELECT incarnation, status FROM members WHERE id = ?${tx.dialect.forKeyShare}`,
    ids,
  )
}

function* claimedUnder(nodeId: string, token: string): Query<ClaimedExecution[]> {
  const rows = yield* all<ClaimableRow>(
    `${CLAIMABLE} AND e.status = 'running' AND e.claim_token = ? AND j.deleted_at IS NULL
      ORDER BY e.not_before, e.group_id, e.slot, e.attempt`,
    [nodeId, token],
  )
  return rows.map((row) => claimedOf(row, token))
}

function* takeDue(tx: Transaction, request: ClaimRequest): Query<ClaimedExecution[]> {
  const {nodeId, token, incarnation, room} = request
  if (room <= 0) return []
  // What somebody else holds right now is changing: the next claim sees what became of it.
  const lock = tx.dialect.locking ? ' FOR UPDATE OF e SKIP LOCKED' : ''
  const rows = yield* all<ClaimableRow>(
    `${CLAIMABLE} AND ${IS_DUE}
      ORDER BY e.not_before, e.group_id, e.slot, e.attempt LIMIT ?${lock}`,
    [nodeId, tx.now, room],
  )
  if (rows.length === 0) return []
  yield* each(
    TAKE,
    rows.map((row) => [tx.now, row.job_revision, token, incarnation, ...keyValues(keyOf(row))]),
  )
  yield* all(
    `INSERT INTO node_claims (node_id, token) VALUES (?, ?)
      ON CONFLICT (node_id) DO UPDATE SET token = excluded.token`,
    [nodeId, token],
  )
  return rows.map((row) => {
    const taken = {status: 'running', started_at: tx.now, revision: row.job_revision} as const
    return claimedOf({...row, ...taken}, token)
  })
}

function claimedOf(row: ClaimableRow, token: string): ClaimedExecution {
  const spec = JSON.parse(row.definition) as JobSpec
  const {cause, scheduled_at: scheduledAt} = row
  return {execution: executionOf(row), token, spec, cause, scheduledAt}
}

function* whatWaits(
  tx: Transaction,
  nodeId: string,
  hadRoom: boolean,
): Query<Pick<ClaimResult, 'waiting' | 'nextDueInMs'>> {
  const due = yield* one<{waiting: number}>(
    `SELECT count(*) AS waiting FROM (SELECT 1 AS found FROM executions
      WHERE node_id = ? AND status = 'pending' AND not_before <= ? LIMIT ${WAITING_COUNTED_MAX}) AS due`,
    [nodeId, tx.now],
  )
  const next = yield* one<{next_at: number | null}>(
    `SELECT min(not_before) AS next_at FROM executions
      WHERE node_id = ? AND status = 'pending' AND not_before > ?`,
    [nodeId, tx.now],
  )
  const waiting = hadRoom ? 0 : (due?.waiting ?? 0)
  const nextAt = next?.next_at ?? null
  return {waiting, nextDueInMs: nextAt === null ? null : nextAt - tx.now}
}

export function* verifyClaims(
  _tx: Transaction,
  claims: readonly Claim[],
): Query<readonly ClaimStatus[]> {
  const rows = yield* oneEach<{status: string}>(
    `SELECT status FROM executions
      WHERE ${BY_KEY} AND status IN ('running', 'lost') AND claim_token = ?`,
    claims.map(({key, token}) => [...keyValues(key), token]),
  )
  // Rare, so that the definitions of what runs are not read.
  const lost = claims.filter((_claim, index) => rows[index]?.status === 'lost')
  const mayGoOn = yield* workingOn(lost)
  return claims.map((claim, index) => {
    if (rows[index]?.status === 'running') return 'active'
    return mayGoOn.has(claim) ? 'lost_may_continue' : 'revoked'
  })
}

/** The lost ones of which nothing says that they must end: no later attempt was made, or is unwanted. */
function* workingOn(lost: readonly Claim[]): Query<ReadonlySet<Claim>> {
  const rows = yield* oneEach<{definition: string}>(
    `SELECT d.definition FROM executions e
      JOIN jobs j ON j.id = e.job_id
      JOIN definitions d ON d.job_id = e.job_id
      JOIN launches l ON l.group_id = e.group_id
      WHERE e.group_id = ? AND e.node_name = ? AND e.attempt = ? AND e.status = 'lost'
      AND e.cancel_requested_at IS NULL AND l.retries_ended = 0 AND j.deleted_at IS NULL
      AND NOT EXISTS (SELECT 1 FROM executions later WHERE later.group_id = e.group_id
        AND later.slot = e.slot AND later.attempt > e.attempt)`,
    lost.map(({key}) => keyValues(key)),
  )
  return new Set(
    lost.filter((_claim, index) => {
      const row = rows[index]
      return row != null && !endsWhenDisconnected(JSON.parse(row.definition) as JobSpec)
    }),
  )
}

/** Running executions the node is to end; deleting a job flags them too. */
export function* cancelled(_tx: Transaction, nodeId: string): Query<readonly ExecutionKey[]> {
  const rows = yield* all<ExecutionRow>(
    `SELECT group_id, node_name, attempt FROM executions
      WHERE node_id = ? AND status = 'running' AND cancel_requested_at IS NOT NULL
      ORDER BY group_id, attempt, node_name`,
    [nodeId],
  )
  return rows.map(keyOf)
}

export function* activeClaims(
  tx: Transaction,
  {nodeId, incarnation}: {readonly nodeId: string; readonly incarnation: string},
): Query<readonly ActiveClaim[]> {
  const rows = yield* all<ExecutionRow & {readonly claim_token: string}>(
    `SELECT group_id, node_name, attempt, claim_token, started_at FROM executions
      WHERE node_id = ? AND status = 'running' AND incarnation = ?
      ORDER BY group_id, attempt, node_name`,
    [nodeId, incarnation],
  )
  return rows.map((row) => ({
    key: keyOf(row),
    token: row.claim_token,
    ageMs: Math.max(0, tx.now - (row.started_at ?? tx.now)),
  }))
}

/*
 * The only way back from running to pending: a claim whose execution was never started is undone. Stands
 * apart from the ends of executions: nothing ends, nothing is counted, no node died of it.
 */

/** As a row that was never claimed has them. */
const GIVE_BACK = `UPDATE executions SET status = 'pending', not_before = ?, started_at = NULL,
  revision = 0, claim_token = '', incarnation = '' WHERE ${BY_KEY}`

export function* releaseClaims(
  tx: Transaction,
  claims: readonly Claim[],
): Query<readonly ExecutionRecord[]> {
  // Locked as an end locks them: it is given back, or ended, or its job deleted, one after the other.
  const ledger = yield* loadFinishBatch(
    tx,
    claims.map(({key}) => key.group),
  )
  const given = claims.flatMap((claim) => givenBack(ledger, claim, tx.now) ?? [])
  yield* each(
    GIVE_BACK,
    given.map((record) => [tx.now, ...keyValues(record)]),
  )
  return given
}

/** `null` = it stays as it is, and is ended. */
function givenBack(ledger: FinishBatch, {key, token}: Claim, now: number): ExecutionRecord | null {
  const held = ledger.find(key)
  const launch = ledger.launches.get(key.group)
  if (held === null || launch === undefined || ledger.jobOf(launch) === null) return null
  const {record} = held
  if (record.status !== 'running' || held.token !== token) return null
  const isUnwanted = record.attempt > 1 && launch.record.retriesEnded
  if (isUnwanted || record.cancelRequestedAt !== null) return null
  return {...record, status: 'pending', notBefore: now, startedAt: null, revision: 0}
}
