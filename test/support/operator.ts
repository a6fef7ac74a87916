/**
 * The people who use a simulated cluster: they change jobs, pauses, the time zone and nodes, and remember
 * each change outside of the store. `check` compares the store with what they asked for.
 */
import assert from 'node:assert/strict'
import type {ExecutionRecord} from '../../src/core/execution.ts'
import {matchesText} from '../../src/core/access/glob.ts'
import type {JobRecord, JobSpec} from '../../src/core/job.ts'
import type {LaunchRecord} from '../../src/core/launch-record.ts'
import {scheduleOf} from '../../src/core/next-time.ts'
import {zoneOf} from '../../src/core/schedule/parse.ts'
import type {SchedulingChange} from '../../src/core/node.ts'
import type {JobFixture} from './fixtures.ts'
import type {World} from './world.ts'

/** Executions claimed before a cordon may start within this time, until their node learns of it. */
const START_MS = 5_000

/** A definition in force: for planned times after `from`, up to and including `to`. */
interface Version {
  readonly spec: JobSpec
  readonly anchorAt: number
  readonly from: number
  readonly to: number
}

interface Pause {
  readonly glob: string
  readonly from: number
  /** Exclusive. */
  to: number
}

interface Cordon {
  readonly node: string
  readonly from: number
  to: number
}

export class Operator {
  readonly #world: World
  /** Versions of each job that exists, by internal id, oldest first. */
  readonly #versions = new Map<number, Version[]>()
  /** Default zones, each with the time of the change to it, oldest first. */
  readonly #zones = [{zone: 'UTC', at: -Infinity}]
  readonly #pauses: Pause[] = []
  readonly #cordons: Cordon[] = []
  /** When no node reached the store. */
  readonly #outages: {readonly from: number; to: number}[] = []
  /** Deadlines of drains; `to` = when the node was uncordoned. */
  readonly #drains: {readonly node: string; readonly until: number; to: number}[] = []
  /** Launches of which an execution was cancelled: none of their retries starts. */
  readonly #cancelled = new Set<number>()

  constructor(world: World) {
    this.#world = world
  }

  async submit(job: JobFixture): Promise<void> {
    this.#remember(await this.#world.submit(job))
  }

  /** Imports definitions as from a file. */
  async restore(specs: readonly JobSpec[]): Promise<void> {
    const counters = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
    const entries = specs.map((spec) => ({spec, counters}))
    const {kind} = await this.#world.store.restore(entries, {disabled: false})
    assert.equal(kind, 'restored')
    await this.#notify('launch')
    for (const {name} of specs) this.#remember(await this.#world.job(name))
  }

  async toggle(name: string): Promise<void> {
    const result = await this.#world.store.toggle(name)
    assert.equal(result.kind, 'toggled')
    await this.#notify('launch')
    this.#remember(await this.#world.job(name))
  }

  /** Deletes the job, after a last look at its planned times. */
  async delete(name: string): Promise<void> {
    const job = await this.#world.job(name)
    await this.#checkTimes(job)
    const {kind} = await this.#world.store.deleteJob(name)
    assert.equal(kind, 'deleted')
    this.#versions.delete(job.id)
    await this.#notify('cancel')
  }

  async cancel(name: string, execution: ExecutionRecord): Promise<void> {
    if ((await this.#world.cancel(name, execution)) === 'requested')
      this.#cancelled.add(execution.group)
  }

  async setTimezone(zone: string): Promise<void> {
    const before = await this.#world.store.setTimezone(zone)
    if (before !== zone) this.#zones.push({zone, at: this.#now})
    await this.#notify('launch')
  }

  /** `afterMs`: when the pause ends by itself; `null` = never. */
  async pause(glob: string, afterMs: number | null): Promise<void> {
    const until = afterMs === null ? null : {afterMs}
    const result = await this.#world.store.pauseFiring({jobs: glob, reason: '', until})
    assert.equal(result.kind, 'paused')
    this.#endPauses(glob)
    const to = afterMs === null ? Infinity : this.#now + afterMs
    this.#pauses.push({glob, from: this.#now, to})
    await this.#notify('launch')
  }

  async resume(glob: string): Promise<void> {
    await this.#world.store.endFiringPause(glob)
    this.#endPauses(glob)
    await this.#notify('launch')
  }

  /** No node reaches the store from now on; or all do again. */
  setOutage(isOutage: boolean): void {
    const last = this.#outages.at(-1)
    if (last !== undefined) last.to = Math.min(last.to, this.#now)
    if (isOutage) this.#outages.push({from: this.#now, to: Infinity})
  }

  /** Globs of the pauses in force. */
  get paused(): readonly string[] {
    return this.#pauses.filter(({to}) => to > this.#now).map(({glob}) => glob)
  }

  /** Cordons, drains or uncordons a node that has joined. */
  async schedule(node: string, change: SchedulingChange): Promise<void> {
    const {clock, store} = this.#world
    const member = await store.setScheduling({nodeId: `id-of-${node}`, change})
    assert(member !== null, `${node} is a member`)
    const open = this.#cordons.find((each) => each.node === node && each.to === Infinity)
    if (change.kind === 'uncordon')
      for (const each of [...this.#cordons, ...this.#drains])
        if (each.node === node) each.to = Math.min(each.to, this.#now)
    if (change.kind !== 'uncordon' && open === undefined)
      this.#cordons.push({node, from: this.#now, to: Infinity})
    if (change.kind === 'drain')
      this.#drains.push({node, until: this.#now + change.deadlineMs, to: Infinity})
    for (const topic of ['run', 'cancel', 'launch'] as const) this.#world.notify(topic)
    await clock.settle()
  }

  /** Asserts that the store did what was asked for, and nothing else. */
  async check(names: readonly string[]): Promise<void> {
    for (const name of names) {
      await this.#checkTimes(await this.#world.job(name))
      await this.#checkExecutions(name)
    }
  }

  get #now(): number {
    return this.#world.clock.now()
  }

  async #notify(topic: 'launch' | 'cancel'): Promise<void> {
    this.#world.notify(topic)
    await this.#world.clock.settle()
  }

  #endPauses(glob: string): void {
    for (const pause of this.#pauses)
      if (pause.glob === glob) pause.to = Math.min(pause.to, this.#now)
  }

  #remember({id, spec, anchorAt}: JobRecord): void {
    const versions = this.#versions.get(id) ?? []
    const last = versions.at(-1)
    if (last !== undefined) versions[versions.length - 1] = {...last, to: this.#now}
    versions.push({spec, anchorAt, from: this.#now, to: Infinity})
    this.#versions.set(id, versions)
  }

  /**
   * Times that the job planned until now, oldest first: in the zone that was in force at each, and those of a
   * span in which it was disabled in the zone at its end.
   */
  #plannedTimes(job: JobRecord): number[] {
    const times: number[] = []
    for (const {spec, anchorAt, from, to} of this.#versions.get(job.id)!) {
      const zones = spec.disabled
        ? this.#zones
            .filter(({at}) => at <= to)
            .slice(-1)
            .map((zone) => ({...zone, at: from}))
        : this.#zones
      for (const [index, {zone, at}] of zones.entries()) {
        const end = Math.min(to, zones[index + 1]?.at ?? Infinity, this.#now)
        const schedule = scheduleOf(spec, anchorAt, zone)
        let time = schedule?.next(Math.max(from, at)) ?? null
        for (; time !== null && time <= end; time = schedule!.next(time)) times.push(time)
      }
    }
    return times
  }

  /** Every planned time until `next` is in exactly one row, and no row covers another time. */
  async #checkTimes(job: JobRecord): Promise<void> {
    const {name} = job.spec
    const rows = (await this.#world.launches(name)).filter(({cause}) => cause === 'schedule')
    const due = this.#plannedTimes(job).filter((time) => time < (job.nextAt ?? Infinity))
    let at = 0
    for (const row of rows) {
      const first = at
      while (at < due.length && due[at]! <= row.scheduledUntil) at += 1
      const own = due.slice(first, at)
      if (row.count === 0 && own.length === 0) continue
      const isExact =
        own[0] === row.scheduledAt && own.at(-1) === row.scheduledUntil && own.length === row.count
      const planned = own.map(timeOf).join(' ')
      assert(isExact, `${name}: ${lineOf(row)} stands for the planned times ${planned}`)
      this.#checkPause(row)
      this.#checkEdit(job, row, own)
      this.#checkDisabled(job, row, own)
    }
    const left = due.slice(at).map(timeOf).join(' ')
    assert.equal(left, '', `${name}: planned times without a row before ${timeOf(job.nextAt ?? 0)}`)
  }

  /** No paused time was launched, and no time was skipped without a pause. */
  #checkPause(row: LaunchRecord): void {
    const {jobName, scheduledAt, scheduledUntil, decidedAt, decision, reason} = row
    if (decidedAt === null) return
    const earlier = this.#pauses.filter(
      ({glob, from}) => from <= decidedAt && matchesText(glob, jobName),
    )
    if (reason.startsWith('firing_paused')) {
      const isPaused = earlier.some(({to}) => scheduledUntil < to)
      assert(isPaused, `${jobName}: ${lineOf(row)} without a pause`)
    }
    if (decision !== 'launched') return
    const covering = earlier.find(({from, to}) => {
      return from < decidedAt && (decidedAt < to || (from < scheduledAt && scheduledAt < to))
    })
    assert(covering === undefined, `${jobName}: ${lineOf(row)} during the pause ${covering?.glob}`)
  }

  /** Times of a span in which the job was disabled are in rows that say so, and no other times are. */
  #checkDisabled({id, spec: {name}}: JobRecord, row: LaunchRecord, times: readonly number[]): void {
    const versions = this.#versions.get(id)!
    for (const time of times) {
      const version = versions.find(({from, to}) => from < time && time <= to)
      const isSaid = row.reason.startsWith('disabled: ')
      assert.equal(isSaid, version?.spec.disabled, `${name}: ${lineOf(row)} at ${timeOf(time)}`)
    }
  }

  /** A time is missed by an edit only if the schedule, or the zone that it depends on, changed then. */
  #checkEdit({id, spec: {name}}: JobRecord, row: LaunchRecord, times: readonly number[]): void {
    const {scheduledAt, decidedAt, reason} = row
    if (reason !== 'edited' || decidedAt === null) return
    const versions = this.#versions.get(id)!
    const index = versions.findIndex(({from, to}) => from < decidedAt && decidedAt <= to)
    const before = versions[index]!
    const after = versions[index + 1]
    if (after?.from === decidedAt && planOf(after.spec) !== planOf(before.spec)) return
    const changes = this.#zones.filter(({at}) => scheduledAt <= at && at <= decidedAt)
    const {spec, anchorAt} = before
    const isMoved = changes.some(({zone, at}) => {
      const schedule = scheduleOf(spec, anchorAt, zone)
      return times.some((time) => time <= at && schedule?.next(time - 1) !== time)
    })
    assert(isOfZone(spec) && isMoved, `${name}: ${lineOf(row)}, but nothing moved it`)
  }

  async #checkExecutions(name: string): Promise<void> {
    for (const execution of await this.#world.executions(name)) {
      const {group, node, attempt, status, reason, startedAt, finishedAt} = execution
      const id = `${name} ${group}-${node}-${attempt}`
      if (status === 'cancelled') assert(this.#cancelled.has(group), `${id} was cancelled unasked`)
      assert.notEqual(reason, 'not_requested', `${id} was stopped without a request`)
      if (startedAt === null) continue
      const cordon = this.#cordons.find(
        (each) => each.node === node && each.from + START_MS < startedAt && startedAt < each.to,
      )
      // A node that did not reach the store could not learn of it.
      const isExcused = this.#outages.some(
        ({from, to}) => from < startedAt && to > (cordon?.from ?? Infinity),
      )
      assert(
        cordon === undefined || isExcused,
        `${id} started on a cordoned node at ${timeOf(startedAt)}`,
      )
      if (reason !== 'node_drained') continue
      const isDrained = this.#drains.some(({node: drained, until, to}) => {
        return drained === node && until <= finishedAt! && startedAt < to
      })
      assert(isDrained, `${id} was stopped without a deadline`)
    }
  }
}

/** True if its planned times depend on the default zone. */
function isOfZone({schedule, timezone}: JobSpec): boolean {
  return zoneOf(schedule, timezone) === ''
}

/** Fields that its planned times follow from. */
function planOf({schedule, timezone, disabled}: JobSpec): string {
  return JSON.stringify([schedule, timezone, disabled])
}

function timeOf(at: number): string {
  return new Date(at).toISOString().slice(11, 19)
}

function lineOf({scheduledAt, scheduledUntil, count, decision, reason, decidedAt}: LaunchRecord) {
  const times = `${timeOf(scheduledAt)}..${timeOf(scheduledUntil)} ×${count}`
  return `${times} ${decision} ${reason} at ${timeOf(decidedAt ?? 0)}`
}
