/** The store of a server: opening the one that was chosen, and what all servers on it must agree about. */
import type {Config} from '../config/server.ts'
import {assert} from '../lib/assert.ts'
import {lockDirectory} from '../platform/directory-lock.ts'
import {localWakeup} from '../platform/wakeup.ts'
import type {Events} from '../ports/events.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import {openPostgresStore} from '../store/postgres/store.ts'
import {migratedTo, migratedProblem} from '../store/sqlite/files.ts'
import {openSqliteStore} from '../store/sqlite/store.ts'
import type {Log} from '../telemetry/log.ts'
import {StartRefused} from './start-refused.ts'

export interface StoreParts {
  readonly config: Config
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly log: Log
}

/** A store, the bells that go with it, and how to let both go. */
export interface OpenedStore {
  readonly store: Store
  /** On a cluster heard by all its servers. */
  readonly wakeup: Wakeup
  close(): Promise<void>
}

/** Throws `StartRefused`. */
export async function openStore(parts: StoreParts): Promise<OpenedStore> {
  const {engine} = parts.config.store
  const opened = engine === 'postgres' ? await openPostgres(parts) : await openSqlite(parts)
  const {warnings} = await opened.store.info()
  for (const warning of warnings) parts.log.logger.warn(warning)
  return opened
}

async function openSqlite({config, clock, random, events, log}: StoreParts): Promise<OpenedStore> {
  const opened = await openSqliteStore({
    dataDir: config.dataDirectory,
    outputKeptBytes: config.limits.outputTailBytes,
    commitItemsMax: config.limits.commitItemsMax,
    clock,
    random,
    events,
  })
  if (!opened.ok) throw new StartRefused(opened.problem)
  if (opened.recovered.uncleanStop) {
    log.logger.warn('the last stop was not a clean one; the store was checked and is whole')
  }
  const {store} = opened
  // Only now: while the directory was somebody else's, the store may have been on its way.
  const moved = migratedTo(config.dataDirectory)
  if (moved !== null) {
    await store.close()
    throw new StartRefused(migratedProblem(config.dataDirectory, moved))
  }
  return {store, wakeup: localWakeup(), close: () => store.close()}
}

/** The data directory still holds the node's identity and what it runs: one process at a time has it. */
async function openPostgres({config, clock, random, events}: StoreParts): Promise<OpenedStore> {
  assert(config.store.engine === 'postgres', 'asked for only when it was chosen')
  const lock = lockDirectory(config.dataDirectory)
  if (!lock.ok) throw new StartRefused(lock.problem)
  const opened = await openPostgresStore({
    url: config.store.url,
    clock,
    random,
    outputKeptBytes: config.limits.outputTailBytes,
    commitItemsMax: config.limits.commitItemsMax,
    events,
  })
  if (!opened.ok) {
    lock.release()
    throw new StartRefused(opened.problem)
  }
  const {store} = opened
  const wakeup = opened.wakeupOver(localWakeup())
  const close = async () => {
    await wakeup.close()
    await store.close()
    lock.release()
  }
  return {store, wakeup, close}
}

/** The zone of jobs that name none: the first server's is stored and stays in force. */
export async function agreeZone(store: Store, {config, log}: StoreParts): Promise<string> {
  const own = config.timezone
  const agreed = await store.agreeTimezone(own)
  if (agreed !== own) {
    log.logger.warn(
      {own, agreed},
      'the default time zone stored first stays in force; this server was told another',
    )
  }
  return agreed
}
