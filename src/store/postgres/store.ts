/**
 * Opening the store on PostgreSQL: the same facade over the same steps as on SQLite, for any number of
 * servers at once. Correct whoever leads: what a step relies on is locked or compared in its transaction.
 */
import {AssertionFailed} from '../../lib/assert.ts'
import type {Events} from '../../ports/events.ts'
import type {Clock, Random, Wakeup} from '../../ports/runtime.ts'
import type {Store} from '../../ports/store.ts'
import {assembleStore, type Runner} from '../sql/methods.ts'
import {DEFAULT_LIMITS} from '../sql/query.ts'
import {writeBackup} from './backup.ts'
import {type TransactParts, Committer} from './commit.ts'
import type {SessionKind, StoreTime} from './connection.ts'
import {readDurability} from './durability.ts'
import {NoPrimary, textOf} from './errors.ts'
import {SessionPool} from './pool.ts'
import {Primary} from './primary.ts'
import {Reader} from './reader.ts'
import {prepareSchema} from './schema.ts'
import {Statements} from './statements.ts'
import {type Address, describeAddress, parseAddress} from './url.ts'
import {type ClosableWakeup, postgresWakeup} from './wakeup.ts'
import {type QueueName, WRITE_PLANS} from './write-plan.ts'
import {WriteQueue} from './write-queue.ts'

/** Lanes that share sessions. Each uses one at a time, so with one for each none waits for another. */
const SHARING_LANES = ['jobs', 'launch', 'claim', 'output', 'finish', 'upkeep', 'other'] as const
/** Connections of one server: these, 1 for the lease, 1 for heartbeats and 1 for bells. */
const CONNECTIONS = {writes: SHARING_LANES.length, reads: 4}

const LEASE: SessionKind = {purpose: 'lease', limits: 'short', byKeys: true}
const MEMBERS: SessionKind = {purpose: 'heartbeats', limits: 'short', byKeys: true}
const WRITES: SessionKind = {purpose: 'writes', limits: 'short', byKeys: true}
const READS: SessionKind = {purpose: 'reads', limits: 'short', byKeys: false}
const LONG_WORK: SessionKind = {purpose: 'upkeep', limits: 'long', byKeys: false}

const APPLICATION = 'belfry'

export interface PostgresStoreOptions {
  /** `postgres://user:password@host:port,host:port/database?…`; only the primary is used. */
  readonly url: string
  /** Measures waiting. What time it is the database says. */
  readonly clock: Clock
  /** Mints the identity of a new store. */
  readonly random: Random
  /** Last bytes of each execution's output that are kept; default 256 KiB. */
  readonly outputKeptBytes?: number
  /** Writes in one transaction at most; default 256. */
  readonly commitItemsMax?: number
  /** Connections at most for writes and for reads, 7 and 4 by default; three more have their own purpose. */
  readonly connections?: {readonly writes: number; readonly reads: number}
  /** Hears of each commit. */
  readonly events?: Pick<Events, 'emit'>
  /** What the store takes the time to be, given the server's, ms since the epoch; the same by default. */
  readonly time?: StoreTime
}

export type OpenedPostgresStore =
  | {
      readonly ok: true
      readonly store: Store
      /** Bells that ring on all servers, over those of this process. To be closed before the store. */
      readonly wakeupOver: (local: Wakeup) => ClosableWakeup
    }
  /** `problem` is one sentence, without anything secret. */
  | {readonly ok: false; readonly problem: string}

/** Reaches the primary, brings its schema to this version, and opens the store. */
export async function openPostgresStore(
  options: PostgresStoreOptions,
): Promise<OpenedPostgresStore> {
  const parsed = parseAddress(options.url)
  if (!parsed.ok) return parsed
  const {address} = parsed
  const {clock} = options
  const primary = new Primary({address, clock, applicationName: APPLICATION})
  const statements = new Statements()
  const problem = await prepare(options, address, primary, statements)
  if (problem !== null)
    return {ok: false, problem: `The store ${describeAddress(address)} ${problem}.`}
  const store = facade(options, address, primary, statements)
  const {schema} = address
  const {random} = options
  const wakeupOver = (local: Wakeup) => postgresWakeup({primary, schema, clock, random, local})
  return {ok: true, store, wakeupOver}
}

/** Answers what is wrong, as a sentence without a subject, or `null`. */
async function prepare(
  {random}: PostgresStoreOptions,
  {schema}: Address,
  primary: Primary,
  statements: Statements,
): Promise<string | null> {
  try {
    const session = await primary.connect(LONG_WORK)
    try {
      const fresh = {clusterId: random.id(), incarnation: random.id()}
      const prepared = await prepareSchema(session, statements, {schema, fresh})
      return prepared.ok ? null : prepared.problem
    } finally {
      await session.close()
    }
  } catch (error) {
    if (error instanceof AssertionFailed) throw error
    return `cannot be opened: ${error instanceof NoPrimary ? error.reasons : textOf(error)}`
  }
}

function facade(
  options: PostgresStoreOptions,
  address: Address,
  primary: Primary,
  statements: Statements,
): Store {
  const {clock, time = (serverNow) => serverNow, outputKeptBytes} = options
  const {connections = CONNECTIONS} = options
  const limits = {outputKeptBytes: outputKeptBytes ?? DEFAULT_LIMITS.outputKeptBytes}
  const parts = {primary, statements, time, limits, clock}
  const pools = {
    lease: new SessionPool(primary, LEASE, 1, clock),
    members: new SessionPool(primary, MEMBERS, 1, clock),
    writes: new SessionPool(primary, WRITES, connections.writes, clock),
    reads: new SessionPool(primary, READS, connections.reads, clock),
  }
  const lanes = lanesOf(options, parts, pools)
  const reader = new Reader({...parts, pool: pools.reads})
  const runner = {
    write: (name, ...input) => lanes[WRITE_PLANS[name].queue].write({name, input}),
    read: (name, ...input) => reader.read(name, input),
    // Name, input and result belong together by the port; here they are data.
  } as Runner
  let closing: Promise<void> | null = null
  const close = async () => {
    await Promise.all(Object.values(lanes).map((lane) => lane.drain()))
    await Promise.all(Object.values(pools).map((pool) => pool.close()))
  }
  return assembleStore(runner, {
    info: async () => {
      const identity = await runner.read('identity')
      const found = await reader.snapshot(() => readDurability(address.hosts.length))
      return {engine: 'postgres', ...identity, ...found}
    },
    backup: async (target) => {
      const session = await primary.connect(LONG_WORK)
      try {
        await writeBackup(session, target)
      } finally {
        await session.close()
      }
    },
    close: () => (closing ??= close()),
  })
}

function lanesOf(
  {events, clock, commitItemsMax}: PostgresStoreOptions,
  parts: TransactParts,
  pools: {readonly lease: SessionPool; readonly members: SessionPool; readonly writes: SessionPool},
): Record<QueueName, WriteQueue> {
  const lane = (pool: SessionPool) =>
    new WriteQueue({
      committer: new Committer(parts, pool),
      clock,
      ...(commitItemsMax === undefined ? {} : {batchMax: commitItemsMax}),
      committed: (items, durationMs) =>
        events?.emit('store_committed', {items, duration_ms: durationMs}),
    })
  const sharing = Object.fromEntries(
    SHARING_LANES.map((name) => [name, lane(pools.writes)]),
  ) as Record<(typeof SHARING_LANES)[number], WriteQueue>
  return {
    lease: lane(pools.lease),
    members: lane(pools.members),
    ...sharing,
  }
}
