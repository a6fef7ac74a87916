/**
 * Claims: a node takes its pending executions, verifies its claims and releases those it never started. A
 * claim is the only transition from pending to running, a release the only one back. The node creates the
 * claim's token, so repeating a claim whose reply was lost is idempotent. Nodes ask far more often than work
 * is due: one set of statements looks up all nodes, and only nodes with due work get their own statements.
 */
import type {ExecutionClaim, ExecutionKey} from '../../../core/execution.ts'
import {endsWhenDisconnected} from '../../../core/job.ts'
import {specOf} from '../../../core/job-fields.ts'
import type {LaunchCause} from '../../../core/launch-record.ts'
import type {
  ClaimedExecution,
  ClaimRequest,
  ClaimResult,
  ClaimStatus,
  ActiveClaim,
  MemberStore,
  ReleasedExecution,
} from '../../../ports/node-store.ts'
import {releasedOf} from '../../../core/end-requests.ts'
import {loadFinishBatch} from './finish-batch.ts'
import {
  all,
  one,
  oneEach,
  type Query,
  send,
  sendEach,
  together,
  type Transaction,
  type Values,
} from '../query.ts'
import {
  BY_KEY,
  EXECUTION_COLUMNS_E,
  executionOf,
  type ExecutionRow,
  keyOf,
  keyValues,
  type MemberRow,
} from '../rows.ts'

const CLAIMABLE = `SELECT ${EXECUTION_COLUMNS_E}, d.definition, j.revision AS job_revision, l.cause,
  l.scheduled_at
  FROM executions e
  JOIN jobs j ON j.id = e.job_id
  JOIN definitions d ON d.job_id = e.job_id
  JOIN launches l ON l.group_id = e.group_id
  WHERE e.node_id = ?`

/** Condition for an execution that can be claimed at an instant. */
const IS_DUE = `e.status = 'pending' AND e.not_before <= ? AND e.cancel_requested_at IS NULL
  AND j.deleted_at IS NULL`

/** Takes locked pending rows. The key makes the cost independent of the number of pending rows. */
const TAKE = `UPDATE executions SET status = 'running', started_at = ?, revision = ?, claim_token = ?,
  incarnation = ? WHERE ${BY_KEY}`

const REDEFINE = `UPDATE executions SET revision = ? WHERE ${BY_KEY} AND status = 'running'
  AND claim_token = ?`

/** Delay until a node claims rows again that another transaction locked: about the time of a commit. */
const LOCKED_RETRY_MS = 20

/** Results per request, in order. A request sees what earlier requests of the same node claimed. */
export function* claim(
  tx: Transaction,
  requests: readonly ClaimRequest[],
): Query<readonly ClaimResult[]> {
  const ids = requests.map(({nodeId}) => [nodeId])
  const [incarnations, rows] = yield* together(
    lockIncarnations(tx, ids),
    // Locked: a repeated claim waits until the transaction of its first try has ended.
    oneEach<{token: string}>(
      `SELECT token FROM node_claims WHERE node_id = ?${tx.dialect.forUpdate}`,
      ids,
    ),
  )
  const nextDues = yield* oneEach<NextDue>(
    NEXT_DUE,
    requests.map(({nodeId}) => [nodeId, tx.now, nodeId, tx.now]),
  )
  /** Token of the newest claim of each node. */
  const newest = new Map(requests.map(({nodeId}, index) => [nodeId, rows[index]?.token ?? '']))
  const results: ClaimResult[] = []
  for (const [index, request] of requests.entries()) {
    const member = incarnations[index] ?? null
    const isCordoned = member !== null && member.cordoned_at !== null
    const last = newest.get(request.nodeId)!
    const nextDue = nextDues[index]!
    const known = {newest: last, isCordoned, secrets: {}}
    if (member?.incarnation !== request.incarnation) {
      results.push({...known, claimed: [], waiting: 0, nextDueInMs: null})
    } else if (nextDue.is_due === 1 || request.token === last) {
      const isGone = isCordoned || member.status === 'failed' || member.status === 'left'
      const result = yield* claimDue(tx, request, last, isGone)
      newest.set(request.nodeId, result.newest)
      results.push({...known, ...result})
    } else {
      const nextDueInMs = nextDue.next_at === null ? null : nextDue.next_at - tx.now
      results.push({...known, claimed: [], waiting: 0, nextDueInMs})
    }
  }
  return results
}

/** Due work of a node, and when its next execution becomes due (`null` = none). */
interface NextDue {
  readonly is_due: number
  readonly next_at: number | null
}

const NEXT_DUE = `SELECT
  CASE WHEN EXISTS (SELECT 1 FROM executions e JOIN jobs j ON j.id = e.job_id
    WHERE e.node_id = ? AND ${IS_DUE}) THEN 1 ELSE 0 END AS is_due,
  (SELECT min(not_before) FROM executions
    WHERE node_id = ? AND status = 'pending' AND not_before > ?) AS next_at`

/**
 * The incarnation of each member; a claim of a node that is no member takes nothing. The lock covers the key
 * (identity), not the heartbeat. A new incarnation, a takeover of the name, a cordon, and the removal of the
 * member wait for this transaction and then see its claims.
 */
function* lockIncarnations(
  tx: Transaction,
  ids: readonly Values[],
): Query<(Pick<MemberRow, 'incarnation' | 'status' | 'cordoned_at'> | null)[]> {
  return yield* oneEach(
    `SELECT incarnation, status, cordoned_at FROM members WHERE id = ?${tx.dialect.forKeyShare}`,
    ids,
  )
}

/** Claim of a node that has due work or repeats a claim. `last`: token of its newest claim. */
function* claimDue(
  tx: Transaction,
  request: ClaimRequest,
  last: string,
  isGone: boolean,
): Query<Omit<ClaimResult, 'isCordoned' | 'secrets'>> {
  const {nodeId, token, room} = request
  const isOvertaken = request.after !== undefined && request.after !== last
  const {claimed, isCut} =
    last === token
      ? {claimed: yield* repeatClaim(nodeId, token), isCut: request.definitionsMax !== undefined}
      : yield* takeDue(tx, isGone || isOvertaken ? {...request, room: 0} : request)
  const newest = claimed.length > 0 ? token : last
  const hadRoom = claimed.length < room && !isCut
  const mayBeLocked = hadRoom && !isGone && tx.dialect.locking
  const [nextDue, isLocked] = yield* together(
    outlookOf(tx, nodeId, hadRoom),
    mayBeLocked ? isAnyLocked(tx, nodeId) : together(),
  )
  if (isLocked !== true) return {claimed, newest, ...nextDue}
  const nextDueInMs = Math.min(LOCKED_RETRY_MS, nextDue.nextDueInMs ?? LOCKED_RETRY_MS)
  return {claimed, newest, ...nextDue, nextDueInMs}
}

function* repeatClaim(nodeId: string, token: string): Query<ClaimedExecution[]> {
  const rows = yield* all<ClaimableRow>(
    `${CLAIMABLE} AND e.status = 'running' AND e.claim_token = ? AND j.deleted_at IS NULL
      ORDER BY e.not_before, e.group_id, e.slot, e.attempt`,
    [nodeId, token],
  )
  // The job was edited since the first try, whose reply was lost: the new definition will run.
  yield* sendEach(
    REDEFINE,
    rows
      .filter((row) => row.revision !== row.job_revision)
      .map((row) => [row.job_revision, ...keyValues(keyOf(row)), token]),
  )
  return rows.map((row) => claimedOf({...row, revision: row.job_revision}, token))
}

/** `isCut`: more could be due than the length of the definitions allows. */
interface Taken {
  readonly claimed: readonly ClaimedExecution[]
  readonly isCut: boolean
}

function* takeDue(tx: Transaction, request: ClaimRequest): Query<Taken> {
  const {nodeId, token, incarnation, room, definitionsMax} = request
  if (room <= 0) return {claimed: [], isCut: false}
  // Skip locked rows: they are changing, and the next claim sees the result. So the statement never waits,
  // and the definitions, which it does not lock, are those of its start.
  const lock = tx.dialect.locking ? ' FOR UPDATE OF e SKIP LOCKED' : ''
  const found = yield* all<ClaimableRow>(
    `${CLAIMABLE} AND ${IS_DUE}
      ORDER BY e.not_before, e.group_id, e.slot, e.attempt LIMIT ?${lock}`,
    [nodeId, tx.now, room],
  )
  const rows = definitionsMax === undefined ? found : withinLength(found, definitionsMax)
  if (rows.length === 0) return {claimed: [], isCut: false}
  yield* sendEach(
    TAKE,
    rows.map((row) => [tx.now, row.job_revision, token, incarnation, ...keyValues(keyOf(row))]),
  )
  yield* send(
    `INSERT INTO node_claims (node_id, token) VALUES (?, ?)
      ON CONFLICT (node_id) DO UPDATE SET token = excluded.token`,
    [nodeId, token],
  )
  const claimed = rows.map((row) => {
    const taken = {status: 'running', started_at: tx.now, revision: row.job_revision} as const
    return claimedOf({...row, ...taken}, token)
  })
  return {claimed, isCut: rows.length < found.length}
}

/** The first rows, at least one, whose definitions together have this length at most. */
function withinLength(rows: readonly ClaimableRow[], max: number): readonly ClaimableRow[] {
  let length = 0
  const end = rows.findIndex(({definition}, index) => {
    length += definition.length
    return index > 0 && length > max
  })
  return end === -1 ? rows : rows.slice(0, end)
}

function claimedOf(row: ClaimableRow, token: string): ClaimedExecution {
  const spec = specOf(row.definition)
  const {cause, scheduled_at: scheduledAt} = row
  return {execution: executionOf(row), token, spec, cause, scheduledAt}
}

/**
 * True if a due execution was skipped because another transaction locked it: the end of an execution locks
 * the executions of the same launch on other nodes.
 */
function* isAnyLocked(tx: Transaction, nodeId: string): Query<boolean> {
  const row = yield* one(
    `SELECT 1 AS found FROM executions e JOIN jobs j ON j.id = e.job_id WHERE e.node_id = ? AND
      ${IS_DUE} LIMIT 1`,
    [nodeId, tx.now],
  )
  return row !== null
}

function* outlookOf(
  tx: Transaction,
  nodeId: string,
  hadRoom: boolean,
): Query<Pick<ClaimResult, 'waiting' | 'nextDueInMs'>> {
  const [due, next] = yield* together(
    one(
      `SELECT 1 AS found FROM executions
        WHERE node_id = ? AND status = 'pending' AND not_before <= ? LIMIT 1`,
      [nodeId, tx.now],
    ),
    one<{next_at: number | null}>(
      `SELECT min(not_before) AS next_at FROM executions
        WHERE node_id = ? AND status = 'pending' AND not_before > ?`,
      [nodeId, tx.now],
    ),
  )
  const waiting = hadRoom || due === null ? 0 : 1
  const nextAt = next?.next_at ?? null
  return {waiting, nextDueInMs: nextAt === null ? null : nextAt - tx.now}
}

interface ClaimableRow extends ExecutionRow {
  readonly definition: string
  readonly job_revision: number
  readonly cause: LaunchCause
  readonly scheduled_at: number
}

const ASKER = ' AND EXISTS (SELECT 1 FROM members WHERE id = ? AND incarnation = ?)'

/** Running executions of one incarnation of a node. */
export function* activeClaims(
  tx: Transaction,
  {nodeId, incarnation, asker}: Parameters<MemberStore['activeClaims']>[0],
): Query<readonly ActiveClaim[]> {
  const rows = yield* all<ExecutionRow & {readonly claim_token: string}>(
    `SELECT group_id, node_name, attempt, job_name, claim_token, started_at FROM executions
      WHERE node_id = ? AND status = 'running' AND incarnation = ?${asker === undefined ? '' : ASKER}
      ORDER BY group_id, attempt, node_name`,
    [nodeId, incarnation, ...(asker === undefined ? [] : [nodeId, asker])],
  )
  return rows.map((row) => ({
    key: keyOf(row),
    token: row.claim_token,
    job: row.job_name,
    ageMs: Math.max(0, tx.now - (row.started_at ?? tx.now)),
  }))
}

export function* verifyClaims(
  _tx: Transaction,
  claims: readonly ExecutionClaim[],
): Query<readonly ClaimStatus[]> {
  const rows = yield* oneEach<{status: string}>(
    `SELECT status FROM executions
      WHERE ${BY_KEY} AND status IN ('running', 'lost') AND claim_token = ?`,
    claims.map(({key, token}) => [...keyValues(key), token]),
  )
  // Lost claims are rare; definitions are read only for them.
  const lost = claims.filter((_claim, index) => rows[index]?.status === 'lost')
  const mayContinue = yield* continuing(lost)
  return claims.map((claim, index) => {
    if (rows[index]?.status === 'running') return 'active'
    return mayContinue.has(claim) ? 'lost_may_continue' : 'revoked'
  })
}

/** Lost claims whose process may continue: not cancelled, no later attempt, and the job allows it. */
function* continuing(lost: readonly ExecutionClaim[]): Query<ReadonlySet<ExecutionClaim>> {
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
      return row != null && !endsWhenDisconnected(specOf(row.definition))
    }),
  )
}

/**
 * Running executions with a cancel request; the deletion of a job requests it too. All of them after the
 * deadline of a drain.
 */
export function* cancelled(tx: Transaction, nodeId: string): Query<readonly ExecutionKey[]> {
  const rows = yield* all<ExecutionRow>(
    `SELECT group_id, node_name, attempt FROM executions
      WHERE node_id = ? AND status = 'running' AND (cancel_requested_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM members m
          WHERE m.id = ? AND m.cordoned_at IS NOT NULL AND m.drain_until <= ?))
      ORDER BY group_id, attempt, node_name`,
    [nodeId, nodeId, tx.now],
  )
  return rows.map(keyOf)
}

/** Resets the row to the values of one that was never claimed. */
const RELEASE = `UPDATE executions SET status = 'pending', not_before = ?, started_at = NULL,
  revision = 0, claim_token = '', incarnation = '', cancel_reason = NULL WHERE ${BY_KEY}`

/** Undoes claims whose executions were never started. Counts nothing as ended; returns the released ones. */
export function* releaseClaims(
  tx: Transaction,
  claims: readonly ExecutionClaim[],
): Query<readonly ReleasedExecution[]> {
  // The locks of a finish: release, finish and deletion of the job follow one another.
  const {batch} = yield* loadFinishBatch(tx, claims)
  const released = claims.flatMap(({key, token}): ReleasedExecution[] => {
    const execution = releasedOf(batch, {key, token}, tx.now)
    return execution === null ? [] : [{key, token, execution}]
  })
  yield* sendEach(
    RELEASE,
    released.map(({key}) => [tx.now, ...keyValues(key)]),
  )
  return released
}
