/**
 * Opens a store on PostgreSQL, for any number of servers at once; it runs the same queries as on SQLite. Its
 * correctness does not depend on who leads: a transaction locks or compares every row it relies on.
 */
import {AssertionFailed} from '../../lib/assert.ts'
import type {BatchQueue} from '../../lib/batch-queue.ts'
import type {Clock, Random, Wakeup} from '../../ports/runtime.ts'
import type {Store} from '../../ports/store.ts'
import {clientStore, type OpenSecret, processStore, type StoreEngine} from '../sql/facade.ts'
import {type EngineMethods, WRITES} from '../sql/methods.ts'
import type {QueueName, ReaderName} from '../sql/method.ts'
import {DEFAULT_LIMITS} from '../sql/query.ts'
import {identity} from '../sql/cluster/settings.ts'
import {schemaReport} from '../sql/migrations.ts'
import {writeQueue, type WriteQueueOptions} from '../sql/write-queue.ts'
import {writeBackupInThread} from './backup-thread.ts'
import {type CommitParts, committer} from './commit.ts'
import type {SessionKind, StoreTime} from './connection.ts'
import {readDurability} from './durability.ts'
import {NoPrimary, textOf} from './errors.ts'
import {SessionPool} from './pool.ts'
import {Primary} from './primary.ts'
import {Reader, type ReaderParts} from './reader.ts'
import {prepareSchema} from './schema.ts'
import {Statements} from './statements.ts'
import {type Address, describeAddress, parseAddress} from './url.ts'
import {type ClosableWakeup, postgresWakeup} from './wakeup.ts'
import {sharedWrites, type Write} from './write-plan.ts'

/** Queues that share connections. Each uses one at a time: with one for each, no queue waits for another. */
const SHARED_QUEUES = [
  'joins',
  'jobs',
  'launch',
  'claim',
  'output',
  'finish',
  'upkeep',
  'other',
] as const
/**
 * Connections of one server: these, 1 for the lease, 1 for heartbeats and 1 for notifications. Services read
 * one at a time each: launcher, failure detector, reassigner. Two lists at a time use up two processors.
 */
const CONNECTIONS: Connections = {
  writes: SHARED_QUEUES.length,
  reads: {services: 3, nodes: 2, requests: 4, lists: 2},
}
/** Lists that may wait for a session: those behind them would miss their deadline. */
const LISTS_WAITING_MAX = 8

interface Connections {
  readonly writes: number
  readonly reads: Readonly<Record<ReaderName, number>>
}

const LEASE: SessionKind = {purpose: 'lease', limits: 'short', indexScansOnly: true}
const MEMBERS: SessionKind = {purpose: 'heartbeats', limits: 'short', indexScansOnly: true}
const WRITE: SessionKind = {purpose: 'writes', limits: 'short', indexScansOnly: true}
const READ: SessionKind = {purpose: 'reads', limits: 'short', indexScansOnly: true}
/** Requests of clients may filter and sort whole tables. */
const CLIENT_READ: SessionKind = {purpose: 'requests', limits: 'short', indexScansOnly: false}
const LONG_WORK: SessionKind = {purpose: 'upkeep', limits: 'long', indexScansOnly: false}

const APPLICATION = 'belfry'

export interface PostgresStoreOptions extends WriteQueueOptions {
  /** `postgres://user:password@host:port,host:port/database?…`; only the primary is used. */
  readonly url: string
  /** Measures timeouts. The current time comes from the database. */
  readonly clock: Clock
  /** Generates the identity of a new store, and the keys of receipts. */
  readonly random: Random
  /** Last bytes of each execution's output that are kept; default 256 KiB. */
  readonly outputTailBytes?: number
  /** Decrypts the secrets that claims name; default: none can be decrypted. */
  readonly openSecret?: OpenSecret
  /** Maximum connections for writes and for reads. Three more have their own purpose. */
  readonly connections?: Connections
  /** Maps the server's time, ms since the epoch, to the store's; default: the same. */
  readonly time?: StoreTime
}

export type OpenedPostgresStore =
  | {
      readonly ok: true
      readonly store: Store
      /** The facade for the requests of clients, whose reads never delay those of this process. */
      readonly forClients: Store
      /** Wakeups of all servers, on top of those of this process. Must be closed before the store. */
      readonly wakeupOver: (local: Wakeup) => ClosableWakeup
    }
  /** `problem` is one sentence without secrets. */
  | {readonly ok: false; readonly problem: string}

/** Connects to the primary, migrates its schema to this version, and opens the store. */
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
  let onLeaseSessionEnd = () => {}
  const stores = assemble(options, address, primary, statements, () => onLeaseSessionEnd())
  const {schema} = address
  const {random} = options
  const wakeupOver = (local: Wakeup) => {
    // A leader renews at once: candidates see that its connection is closed.
    onLeaseSessionEnd = () => local.notify('lead')
    return postgresWakeup({primary, schema, clock, random, local})
  }
  return {ok: true, ...stores, wakeupOver}
}

/** Returns the problem, as a sentence without its subject, or `null`. */
async function prepare(
  options: PostgresStoreOptions,
  {schema}: Address,
  primary: Primary,
  statements: Statements,
): Promise<string | null> {
  try {
    const session = await primary.connect(LONG_WORK)
    try {
      const {random} = options
      const fresh = {clusterId: random.id(), incarnation: random.id()}
      const report = schemaReport(options)
      const request = {schema, fresh, onChange: report.began}
      const prepared = await prepareSchema(session, statements, request)
      if (prepared.ok) report.ended()
      return prepared.ok ? null : prepared.problem
    } finally {
      await session.close()
    }
  } catch (error) {
    if (error instanceof AssertionFailed) throw error
    return `cannot be opened: ${error instanceof NoPrimary ? error.reasons : textOf(error)}`
  }
}

function assemble(
  options: PostgresStoreOptions,
  address: Address,
  primary: Primary,
  statements: Statements,
  onLeaseSessionEnd: () => void,
): {readonly store: Store; readonly forClients: Store} {
  const {clock, random, time = (serverNow) => serverNow, outputTailBytes} = options
  const {connections = CONNECTIONS} = options
  const limits = {outputTailBytes: outputTailBytes ?? DEFAULT_LIMITS.outputTailBytes}
  const parts = {primary, statements, time, limits, clock}
  const pool = (kind: SessionKind, sessionsMax: number, onSessionEnd = () => {}) =>
    new SessionPool({primary, kind, sessionsMax, clock, onSessionEnd})
  const pools = {
    lease: pool(LEASE, 1, onLeaseSessionEnd),
    members: pool(MEMBERS, 1),
    writes: pool(WRITE, connections.writes),
  }
  const queues = queuesOf(options, parts, pools)
  const readers = readersOf(parts, connections.reads)
  const engine: StoreEngine = {
    write: (name, input) => {
      const {queue, hasReceipt} = WRITES[name]
      return queues[queue].add({name, input, ...(hasReceipt ? {receipt: random.id()} : {})})
    },
    read: (query, _isLong, reader) => readers[reader].snapshot(query),
  }
  let closing: Promise<void> | null = null
  const close = async () => {
    await Promise.all(Object.values(queues).map((queue) => queue.drain()))
    const closed = [...Object.values(pools), ...Object.values(readers)].map((part) => part.close())
    await Promise.all(closed)
  }
  const own = (reader: Reader): EngineMethods => ({
    info: async () => {
      const stored = await reader.snapshot(identity)
      const found = await reader.snapshot(() => readDurability(address.hosts.length))
      return {engine: 'postgres', ...stored, ...found}
    },
    backup: (target) =>
      writeBackupInThread({url: options.url, target, applicationName: APPLICATION}),
    close: () => (closing ??= close()),
  })
  return {
    store: processStore(engine, own(readers.services), options.openSecret),
    forClients: clientStore(engine, own(readers.requests), clock),
  }
}

function readersOf(
  parts: Omit<ReaderParts, 'pool'> & {readonly clock: Clock},
  sessions: Connections['reads'],
): Readonly<Record<ReaderName, Reader>> {
  const {primary, clock} = parts
  const reader = (kind: SessionKind, sessionsMax: number, waitingMax?: number) =>
    new Reader({...parts, pool: new SessionPool({primary, kind, sessionsMax, waitingMax, clock})})
  return {
    services: reader(READ, sessions.services),
    nodes: reader(READ, sessions.nodes),
    requests: reader(CLIENT_READ, sessions.requests),
    lists: reader(CLIENT_READ, sessions.lists, LISTS_WAITING_MAX),
  }
}

function queuesOf(
  options: PostgresStoreOptions,
  parts: CommitParts,
  pools: {readonly lease: SessionPool; readonly members: SessionPool; readonly writes: SessionPool},
): Record<QueueName, BatchQueue<Write, unknown>> {
  const queue = (pool: SessionPool) =>
    writeQueue<Write>(options, committer(parts, pool), {shared: sharedWrites})
  const shared = Object.fromEntries(
    SHARED_QUEUES.map((name) => [name, queue(pools.writes)]),
  ) as Record<(typeof SHARED_QUEUES)[number], BatchQueue<Write, unknown>>
  return {
    lease: queue(pools.lease),
    members: queue(pools.members),
    ...shared,
  }
}
