/**
 * Opens a store on SQLite: on a file, with the writer in its own thread, or in memory, in one thread and
 * driven by an injected clock. Both run the same queries.
 */
import {assert} from '../../lib/assert.ts'
import type {HeldLock} from '../../platform/directory-lock.ts'
import type {Clock, Random} from '../../ports/runtime.ts'
import type {Store, StoreInfo} from '../../ports/store.ts'
import {clientStore, type OpenSecret, processStore, type StoreEngine} from '../sql/facade.ts'
import {URGENT_QUEUES} from '../sql/method.ts'
import {type EngineMethods, WRITES} from '../sql/methods.ts'
import {DEFAULT_LIMITS, type StoreLimits} from '../sql/query.ts'
import {identity, type Identity} from '../sql/cluster/settings.ts'
import {schemaReport} from '../sql/migrations.ts'
import {writeQueue, type WriteQueueOptions} from '../sql/write-queue.ts'
import {writeBackup} from './backup.ts'
import {Connection} from './connection.ts'
import {decodeAnswers, encodeAnswers, Engine, type WriteRequest} from './engine.ts'
import {failureOf} from './errors.ts'
import {DamageGuard} from './damage-guard.ts'
import {damageAdvice, StoreLock, storeFiles} from './files.ts'
import {FileReader, type Reader, SharedReader} from './reader.ts'
import {type EngineInfo, prepareSchema} from './schema.ts'
import {WriterThread} from './writer.ts'

export interface StoreOptions extends WriteQueueOptions {
  /** Source of every instant that is stored. */
  readonly clock: Clock
  /** Generates the identity of a new store. */
  readonly random: Pick<Random, 'id'>
  /** Last bytes of each execution's output that are kept; default 256 KiB. */
  readonly outputTailBytes?: number
  /** Decrypts the secrets that claims name; default: none can be decrypted. */
  readonly openSecret?: OpenSecret
}

export interface SqliteStoreOptions extends StoreOptions {
  /** Existing directory, writable by this process. */
  readonly dataDir: string
  /** The lock of `dataDir`, if the caller has it: the store releases it. Default: the store locks it. */
  readonly lock?: HeldLock
  /**
   * Called once when the file is found to be corrupt, with a sentence for the operator. Nothing is written
   * from then on, and every call throws `StoreDamaged`. The process must end.
   */
  readonly onDamage?: (sentence: string) => void
}

export type OpenedStore =
  | {
      readonly ok: true
      readonly store: Store
      /** The facade for the requests of clients. */
      readonly forClients: Store
      /** `uncleanStop`: the last process did not close the store. `checked`: the integrity check passed. */
      readonly recovered: {readonly uncleanStop: boolean; readonly checked: boolean}
    }
  /** `problem` is one sentence. */
  | {readonly ok: false; readonly problem: string}

/** Locks the store in `dataDir`, checks it after a crash of the machine, and migrates it. */
export async function openSqliteStore(options: SqliteStoreOptions): Promise<OpenedStore> {
  const {dataDir, clock} = options
  const limits = limitsOf(options)
  const locked = StoreLock.acquire(dataDir, options.lock)
  if (!locked.ok) return locked
  const {lock} = locked
  const {uncleanStop, needsCheck, wasDamaged} = lock
  const {database: file} = storeFiles(dataDir)
  const schema = {fresh: freshIdentity(options), check: false, now: clock.now()}
  const check = wasDamaged ? 'complete' : needsCheck ? 'quick' : 'none'
  const guard = new DamageGuard(({message}) => {
    thread.abandon()
    lock.markDamaged(message)
    const cause = `${message.slice(0, 1).toUpperCase()}${message.slice(1)}`
    const nothingMore = `Nothing more is written to ${file}`
    options.onDamage?.(`${cause}. ${nothingMore}, and this process ends. ${damageAdvice(dataDir)}.`)
  })
  const report = schemaReport(options)
  const data = {file, schema, limits, check} as const
  const {thread, result} = await WriterThread.open(data, guard, report.began)
  if (result.ok) report.ended()
  if (!result.ok) {
    const problem = `The store in ${dataDir} ${result.problem}.`
    if (result.isDamaged === true) lock.markDamaged(result.problem)
    // The next start must repeat a check that failed after an unclean shutdown.
    lock.release({clean: !uncleanStop})
    const advice = result.isDamaged === true ? ` ${damageAdvice(dataDir)}.` : ''
    return {ok: false, problem: `${problem}${advice}`}
  }
  if (wasDamaged) lock.unmarkDamaged()
  let reader: FileReader
  try {
    reader = new FileReader(file, clock, limits, guard)
  } catch (error) {
    await thread.close()
    lock.release({clean: true})
    return {
      ok: false,
      problem: `The store in ${dataDir} cannot be read: ${failureOf(error).message}.`,
    }
  }
  lock.opened()
  const stores = assemble({
    options,
    engineInfo: result.info,
    reader,
    commit: (batch) => thread.commit(batch),
    backup: async (target) => {
      guard.check()
      await backUp(file, target)
    },
    close: async () => {
      // Connections to a damaged file stay open until the process ends: closing the last one would write.
      if (!guard.isDamaged) {
        reader.close()
        // The writer last: it checkpoints the log into the file.
        await thread.close()
      }
      lock.release({clean: thread.isSound})
    },
  })
  return {ok: true, ...stores, recovered: {uncleanStop, checked: check !== 'none'}}
}

/** Opens a store in memory, for tests and simulations. Commits in a microtask after the call. */
export function openMemoryStore(options: StoreOptions): Store {
  const {clock} = options
  const limits = limitsOf(options)
  const connection = new Connection(':memory:', {readOnly: false})
  const schema = {fresh: freshIdentity(options), check: false, now: clock.now()}
  const result = prepareSchema(connection, schema)
  assert(result.ok, 'a new store in memory is valid')
  const engine = new Engine(connection, limits)
  const {store} = assemble({
    options,
    engineInfo: result.info,
    reader: new SharedReader(connection, clock, limits),
    // Encoding makes both stores answer alike: the answers of the writer's thread are text.
    commit: (batch) => Promise.resolve(decodeAnswers(encodeAnswers(engine.commit(batch)))),
    backup: (target) => writeBackup(connection, target),
    close: () => Promise.resolve(connection.close()),
  })
  return store
}

function limitsOf({outputTailBytes = DEFAULT_LIMITS.outputTailBytes}: StoreOptions): StoreLimits {
  return {outputTailBytes}
}

function freshIdentity({random}: StoreOptions): Identity {
  return {clusterId: random.id(), incarnation: random.id()}
}

/** Batches sent to the writer. The second waits there, so that the writer never idles between messages. */
const BATCHES_SENT_MAX = 2

interface Stores {
  readonly store: Store
  /** The facade for the requests of clients. */
  readonly forClients: Store
}

interface Parts {
  readonly options: StoreOptions
  readonly engineInfo: EngineInfo
  readonly reader: Reader
  /** The `flush` of the queue: see `BatchQueueOptions`. */
  readonly commit: (batch: readonly WriteRequest[]) => Promise<readonly unknown[]>
  readonly backup: (target: string) => Promise<void>
  /** Called once, after the last commit. */
  readonly close: () => Promise<void>
}

function assemble({options, engineInfo, reader, commit, backup, close}: Parts): Stores {
  const {clock} = options
  const queue = writeQueue(options, commit, {
    flushesMax: BATCHES_SENT_MAX,
    isUrgent: ({name}) => URGENT_QUEUES.has(WRITES[name].queue),
  })
  let closing: Promise<void> | null = null
  const engine: StoreEngine = {
    write: (name, input) => queue.add({name, input, now: clock.now()}),
    read: (query, isLong) => reader.read(query, isLong),
  }
  const own: EngineMethods = {
    info: async () => infoOf(engineInfo, await reader.read(identity, false)),
    backup,
    close: () => (closing ??= queue.drain().then(close)),
  }
  return {
    store: processStore(engine, own, options.openSecret),
    forClients: clientStore(engine, own, clock),
  }
}

function infoOf(engineInfo: EngineInfo, stored: Identity): StoreInfo {
  const {journal_mode: journal, synchronous} = engineInfo.durability
  const durable = journal === 'memory' || (journal === 'wal' && synchronous === 'full')
  const warning = `a power cut may lose acknowledged writes (journal ${journal}, sync ${synchronous})`
  return {
    engine: 'sqlite',
    ...engineInfo,
    ...stored,
    warnings: durable ? [] : [warning],
  }
}

async function backUp(file: string, target: string): Promise<void> {
  const source = new Connection(file, {readOnly: true})
  try {
    await writeBackup(source, target)
  } finally {
    source.close()
  }
}
