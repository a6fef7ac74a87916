/**
 * Simulated cluster: one real store in memory, one virtual clock, any number of simulated nodes, and queries
 * for assertions. `check` asserts the invariants, whatever faults a test injected.
 */
import assert from 'node:assert/strict'
import type {ExecutionRecord} from '../../src/core/execution.ts'
import {countFinish} from '../../src/core/finish.ts'
import type {JobRecord} from '../../src/core/job.ts'
import type {LaunchRecord} from '../../src/core/launch-record.ts'
import {scheduleOf} from '../../src/core/next-time.ts'
import type {Topic} from '../../src/ports/runtime.ts'
import {openMemoryStore} from '../../src/store/sqlite/store.ts'
import {NOON, type JobFixture} from './fixtures.ts'
import {StartLogRecord} from './start-log-record.ts'
import {SimulatedNode, type SimulatedNodeSettings} from './simulated-node.ts'
import type {Started} from './scripted-executor.ts'
import {SeededRandom} from './seeded-random.ts'
import {VirtualClock} from './virtual-clock.ts'

const ALL = {start: 0, end: null}

export class World {
  readonly clock: VirtualClock
  readonly random: SeededRandom
  readonly store
  readonly nodes: SimulatedNode[] = []
  readonly #records = new Map<string, StartLogRecord>()
  /** Jobs whose forced runs may overlap: `check` skips their overlap check. */
  readonly overlapping = new Set<string>()
  /** Jobs that were disabled or rescheduled: `check` does not expect a row for every planned time. */
  readonly interrupted = new Set<string>()

  constructor(seed = 1, startAt = NOON) {
    this.clock = new VirtualClock(startAt)
    this.random = new SeededRandom(seed)
    this.store = openMemoryStore({clock: this.clock, random: this.random})
  }

  /** Start log of a node, as its disk keeps it. */
  recordOf(node: string): StartLogRecord {
    const known = this.#records.get(node) ?? new StartLogRecord()
    this.#records.set(node, known)
    return known
  }

  /** Starts a node and lets it acquire the lease if it is free. */
  async start(settings: Partial<SimulatedNodeSettings> = {}): Promise<SimulatedNode> {
    const node = new SimulatedNode(this, settings)
    this.nodes.push(node)
    await this.clock.finish(node.start())
    await this.clock.settle()
    return node
  }

  /** Stores a job and notifies, as the operation does. */
  async submit(job: JobFixture, {runOnCreate = false} = {}): Promise<JobRecord> {
    const request = {ifMatch: null, createOnly: false, idempotency: null, runOnCreate}
    const result = await this.store.submit({spec: job.spec, ...request})
    assert.ok(result.kind === 'stored', `${job.spec.name}: ${result.kind}`)
    this.notify('launch')
    await this.clock.settle()
    return result.job
  }

  /** Requests a manual run; returns its launch group. */
  async runByHand(name: string, forced = false): Promise<number> {
    const result = await this.store.requestRun({name, forced, idempotency: null})
    assert.ok(result.kind === 'accepted', `${name}: ${result.kind}`)
    this.notify('launch')
    await this.clock.settle()
    return result.group
  }

  async cancel(name: string, {group, node, attempt}: ExecutionRecord): Promise<string> {
    const {kind} = await this.store.cancelExecution(name, {group, node, attempt})
    this.notify('cancel')
    this.notify('launch')
    await this.clock.settle()
    return kind
  }

  notify(topic: Topic): void {
    for (const node of this.nodes) node.wakeup.notify(topic)
  }

  /** Launch records of a job, oldest first. */
  async launches(name: string): Promise<LaunchRecord[]> {
    const page = await this.store.launches(name, {...ALL, decision: null})
    assert.ok(page !== null, `${name} is there`)
    return page.rows.toSorted((a, b) => a.scheduledAt - b.scheduledAt || a.group - b.group)
  }

  /** Rows as lines: `12:00:00 launched`, `12:01:00..12:05:00 ×5 missed catch_up_latest`. */
  async launchLines(name: string): Promise<string[]> {
    const time = (at: number) => new Date(at).toISOString().slice(11, 19)
    return (await this.launches(name)).map((row) => {
      const until = row.count === 1 ? '' : `..${time(row.scheduledUntil)} ×${row.count}`
      return `${time(row.scheduledAt)}${until} ${row.decision} ${row.reason}`.trimEnd()
    })
  }

  /** Stored reasons of the job's launches, oldest first. */
  async launchReasons(name: string): Promise<string[]> {
    return (await this.launches(name)).map(({reason}) => reason)
  }

  /** Executions of a job, ordered by group, slot, attempt. */
  async executions(name: string): Promise<ExecutionRecord[]> {
    const query = {...ALL, sort: 'id', order: 'asc', status: null, outputBytes: 0} as const
    const page = await this.store.executions(name, query)
    assert.ok(page !== null, `${name} is there`)
    return page.rows.toSorted(
      (a, b) => a.group - b.group || a.slot - b.slot || a.attempt - b.attempt,
    )
  }

  async statuses(name: string): Promise<string[]> {
    return (await this.executions(name)).map(({status}) => status)
  }

  async job(name: string): Promise<JobRecord> {
    const job = await this.store.job(name)
    assert.ok(job !== null, `${name} is there`)
    return job
  }

  /** Every start of a job's executions, on all nodes. */
  starts(name: string): Started[] {
    return [...new Set(this.nodes.map(({executor}) => executor))].flatMap((each) => each.of(name))
  }

  /** Asserts the invariants over all stored rows and all starts. */
  async check(names: readonly string[]): Promise<void> {
    const seen = new Set<string>()
    for (const {run} of [...new Set(this.nodes.map(({executor}) => executor))].flatMap(
      ({started}) => started,
    )) {
      assert.ok(!seen.has(run.executionId), `${run.executionId} started twice`)
      seen.add(run.executionId)
    }
    for (const name of names) {
      const job = await this.store.job(name)
      if (job === null) continue
      await this.#checkTimes(job)
      await this.#checkFold(job)
      if (job.spec.concurrency === 'forbid' && !this.overlapping.has(name)) this.#checkOverlap(name)
    }
  }

  /** Every planned time from the first row to `next` is covered by exactly one row. */
  async #checkTimes(job: JobRecord): Promise<void> {
    const {name} = job.spec
    const rows = (await this.launches(name)).filter(({cause}) => cause === 'schedule')
    const schedule = scheduleOf(job.spec, job.anchorAt, 'UTC')
    const isWhole = schedule?.kind === 'every' || schedule?.kind === 'cron'
    const whole = isWhole && !this.interrupted.has(name) ? schedule : null
    let last = whole === null ? -Infinity : job.createdAt
    for (const row of rows) {
      assert.ok(row.scheduledAt > last, `${name}: ${row.scheduledAt} has two rows`)
      if (whole !== null) {
        assert.equal(
          whole.count(last + 1, row.scheduledAt),
          0,
          `${name}: a planned time has no row`,
        )
        const count = whole.count(row.scheduledAt, row.scheduledUntil + 1)
        assert.equal(row.count, count, `${name}: count of a row`)
      }
      last = row.scheduledUntil
    }
    if (whole !== null && job.nextAt !== null)
      assert.equal(whole.next(last), job.nextAt, `${name}: next follows the last row`)
  }

  /** Counters are the fold of the finished executions; a launch is open exactly while work is owed. */
  async #checkFold(job: JobRecord): Promise<void> {
    const {name} = job.spec
    const executions = await this.executions(name)
    let counters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
    const unfinished = new Set<number>()
    for (const {status, finishedAt, group} of executions) {
      if (status === 'pending' || status === 'running') unfinished.add(group)
      else counters = countFinish(counters, status, finishedAt!) as typeof counters
    }
    assert.deepEqual(job.counters, counters, `${name}: counters are the fold`)
    for (const {group, open, decision} of await this.launches(name)) {
      const owed = decision === 'pending' || (decision === 'launched' && unfinished.has(group))
      assert.equal(open, owed, `${name}: launch ${group} is open while work is owed`)
    }
  }

  #checkOverlap(name: string): void {
    const runs = this.starts(name).toSorted((a, b) => a.startedAt - b.startedAt)
    runs.slice(1).forEach((run, index) => {
      const before = runs[index]!
      const apart = before.endedAt !== null && before.endedAt <= run.startedAt
      const same = before.run.executionId.split('-')[0] === run.run.executionId.split('-')[0]
      assert.ok(apart || same, `${name}: ${before.run.executionId} and ${run.run.executionId}`)
    })
  }
}
