/** Opening of a server's store: the configured engine, its wakeup, and the settings all servers share. */
import type {Config} from '../config/server.ts'
import {assert} from '../lib/assert.ts'
import {lockDirectory} from '../platform/directory-lock.ts'
import {localWakeup} from '../platform/wakeup.ts'
import type {Events} from '../ports/events.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import {migratedTo, migratedProblem} from '../store/sqlite/files.ts'
import type {Log} from '../telemetry/log.ts'
import {orRefuse, StartRefused} from './start-refused.ts'

export interface StoreParts {
  readonly config: Config
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly log: Log
}

export interface OpenedStore {
  readonly store: Store
  /** On PostgreSQL, notifies all servers of the cluster. */
  readonly wakeup: Wakeup
  /** Closes the wakeup and the store, and unlocks the data directory. */
  close(): Promise<void>
}

const FIRING_PAUSED =
  'Planned times are not launched: the store was put back from a backup, and the times since then may ' +
  'have run. Run `belfry resume` to plan all jobs from now on.'

/** Imports only the configured engine. Throws `StartRefused`. */
export async function openStore(parts: StoreParts): Promise<OpenedStore> {
  const {engine} = parts.config.store
  const opened = engine === 'postgres' ? await openPostgres(parts) : await openSqlite(parts)
  const {warnings} = await opened.store.info()
  for (const warning of warnings) parts.log.logger.warn(warning)
  const paused = await opened.store.firingPaused()
  if (paused !== null) parts.log.logger.warn({reason: paused}, FIRING_PAUSED)
  return opened
}

async function openSqlite({config, clock, random, events, log}: StoreParts): Promise<OpenedStore> {
  const {openSqliteStore} = await import('../store/sqlite/store.ts')
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
    log.logger.warn('unclean shutdown detected, integrity check passed')
  }
  const {store} = opened
  // Checked under the lock: without it, a migration may still be in progress.
  const moved = migratedTo(config.dataDirectory)
  if (moved !== null) {
    await store.close()
    throw new StartRefused(migratedProblem(config.dataDirectory, moved))
  }
  return {store, wakeup: localWakeup(), close: () => store.close()}
}

/** Locks the data directory too: it holds the node's identity and the files of its executions. */
async function openPostgres({config, clock, random, events}: StoreParts): Promise<OpenedStore> {
  assert(config.store.engine === 'postgres', 'the caller checks the engine')
  const {openPostgresStore} = await import('../store/postgres/store.ts')
  const lock = orRefuse(lockDirectory(config.dataDirectory))
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

/** Returns the default time zone of jobs. The first server stores its own, and later servers use that. */
export async function agreeZone(store: Store, {config, log}: StoreParts): Promise<string> {
  const own = config.timezone
  const agreed = await store.agreeTimezone(own)
  if (agreed !== own) {
    log.logger.warn(
      {own, agreed},
      'the default time zone of this server is ignored: the cluster already has another one',
    )
  }
  return agreed
}
