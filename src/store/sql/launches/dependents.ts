/**
 * Rows of the dependents of a launch. After a success each dependent gets a request. After another end, or if
 * the launch did not run, each dependent gets a skipped row with the cause, and so do its own dependents. The
 * rows are written in the transaction that closes the launch, unique by (parent's launch, dependent).
 */
import type {LaunchEnd} from '../../../core/finish-batch.ts'
import {reasonText} from '../../../core/launch-reasons.ts'
import type {LaunchRecord, LaunchStatus} from '../../../core/launch-record.ts'
import {recordDecided} from '../notices/facts.ts'
import {noticeScopes} from '../notices/scopes.ts'
import {each, type Query, sendEach, together, type Transaction} from '../query.ts'
import {INSERT_LAUNCH, launchValues} from '../rows.ts'
import {
  type JobIdentity,
  newLaunch,
  type PlannedRows,
  type WrittenRow,
  writePlanned,
} from './launch-rows.ts'

const DEPENDENTS = `SELECT id, name FROM jobs WHERE parent = ? AND deleted_at IS NULL AND parent <> ''
  ORDER BY name`
const INSERT_ONCE = `${INSERT_LAUNCH} ON CONFLICT DO NOTHING`

/** A launch that did not succeed, as the rows of its dependents name it. */
type Parent = Pick<
  LaunchRecord,
  'group' | 'jobName' | 'decision' | 'reason' | 'status' | 'rootGroup'
>

export function* writeDependents(tx: Transaction, ended: readonly LaunchEnd[]): Query<void> {
  const isSuccess = ({status}: LaunchEnd) => status === 'success'
  yield* requestDependents(tx, ended.filter(isSuccess))
  yield* skipDependents(
    tx,
    ended.flatMap((end) => (isSuccess(end) ? [] : end.launch)),
  )
}

/** Writes planned rows as `writePlanned`, and rows of the dependents of those that did not launch. */
export function* writeDecided(
  tx: Transaction,
  planned: readonly PlannedRows[],
  term: number | null,
): Query<WrittenRow[]> {
  const written = yield* writePlanned(tx, planned, term)
  const notRun = written.filter(({launch: {decision}, isNew}) => {
    return isNew && (decision === 'skipped' || decision === 'missed')
  })
  yield* skipDependents(
    tx,
    notRun.map(({launch}) => launch),
  )
  return written
}

/** Inserts a request for each dependent. */
function* requestDependents(tx: Transaction, successes: readonly LaunchEnd[]): Query<void> {
  if (successes.length === 0) return
  const found = yield* each<JobIdentity>(
    `${DEPENDENTS}${tx.dialect.forUpdate}`,
    successes.map(({launch}) => [launch.jobName]),
  )
  const due = found.flatMap((jobs, index) => {
    const {launch, dependents} = successes[index]!
    dependents.push(...jobs.map(({name}) => name))
    return jobs.map((job) => ({job, parent: launch}))
  })
  if (due.length === 0) return
  const groups = yield* tx.dialect.takeNumbers('launch', due.length)
  const rows = due.map(({job, parent}, index) => {
    const row = {
      cause: 'parent',
      decision: 'pending',
      scheduledAt: tx.now,
      ...chain(parent),
    } as const
    return launchValues(newLaunch(job, groups[index]!, tx.now, row))
  })
  yield* sendEach(INSERT_ONCE, rows)
}

/** Inserts a skipped row for each dependent of launches that did not succeed, generation by generation. */
export function* skipDependents(tx: Transaction, launches: readonly Parent[]): Query<void> {
  let parents = launches
  while (parents.length > 0) {
    const [found, scopes] = yield* together(
      each<JobIdentity>(
        DEPENDENTS,
        parents.map(({jobName}) => [jobName]),
      ),
      noticeScopes(),
    )
    const due = found.flatMap((jobs, index) => jobs.map((job) => ({job, parent: parents[index]!})))
    if (due.length === 0) return
    const groups = yield* tx.dialect.takeNumbers('launch', due.length)
    const skipped = due.map(({job, parent}, index) =>
      newLaunch(job, groups[index]!, tx.now, {
        cause: 'parent',
        decision: 'skipped',
        reason: whyNot(parent),
        scheduledAt: tx.now,
        decidedAt: tx.now,
        ...chain(parent),
      }),
    )
    yield* sendEach(INSERT_ONCE, skipped.map(launchValues))
    yield* recordDecided(tx, skipped, new Set(), scopes)
    parents = skipped
  }
}

function chain({
  group,
  rootGroup,
}: Pick<LaunchRecord, 'group' | 'rootGroup'>): Pick<LaunchRecord, 'parentGroup' | 'rootGroup'> {
  return {parentGroup: group, rootGroup: rootGroup ?? group}
}

const ENDED: Readonly<Record<Exclude<LaunchStatus, 'success'>, string>> = {
  failed: 'ended failed',
  partially_failed: 'ended partially failed',
  cancelled: 'was cancelled',
}

function whyNot({group, jobName, decision, reason, status}: Parent): string {
  const parent = `launch ${group} of ${jobName}`
  if (status !== null && status !== 'success')
    return reasonText('parent_failed', `${parent} ${ENDED[status]}`)
  return reasonText('parent_skipped', `${parent} was ${decision}: ${reason.split(':', 1)[0]}`)
}
