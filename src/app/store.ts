/** Opening of a server's store: the configured engine, its wakeup, and the settings all servers share. */
import type {Config} from '../config/server.ts'
import {findZone} from '../core/schedule/zone.ts'
import {assert} from '../lib/assert.ts'
import type {SecretVault} from '../platform/secret-vault.ts'
import type {HeldLock} from '../platform/directory-lock.ts'
import {localWakeup} from '../platform/wakeup.ts'
import type {Events} from '../ports/events.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import type {OpenSecret} from '../store/sql/facade.ts'
import {describeAddress, parseAddress} from '../store/postgres/url.ts'
import {migratedTo, migratedProblem} from '../store/sqlite/files.ts'
import type {Log} from '../telemetry/log.ts'
import {formatOptionalTime} from '../lib/rfc3339.ts'
import {openVault} from './secrets.ts'
import {StartRefused} from './start-refused.ts'
import {checkPostgresChoice, checkSqliteChoice} from './store-choice.ts'

export interface StoreParts {
  readonly config: Config
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly log: Log
  /** The store is corrupt, and this process must end; with a sentence for the operator. */
  readonly onDamage: (sentence: string) => void
}

export interface OpenedStore {
  readonly store: Store
  /** Encrypts and decrypts secrets. */
  readonly vault: SecretVault
  /** The facade for requests of clients: with deadlines, and reads that do not delay those of the process. */
  readonly forClients: Store
  /** Notifies all servers of the cluster on PostgreSQL. */
  readonly wakeup: Wakeup
  /** Closes the wakeup and the store, and unlocks the data directory. */
  close(): Promise<void>
}

const FIRING_PAUSED =
  'Planned times are not launched: the store was put back from a backup, and the times since then may ' +
  'have run. Run `belfry resume` to plan all jobs from now on.'

/**
 * Imports only the configured engine. `lock` is that of the data directory: it is released with the store,
 * also when the store cannot be opened. Throws `StartRefused`.
 */
export async function openStore(
  parts: StoreParts,
  lock: HeldLock,
  nodeId: string,
): Promise<OpenedStore> {
  const {engine} = parts.config.store
  const open = engine === 'postgres' ? openPostgres : openSqlite
  // Nothing is claimed before the vault is open.
  let vault: SecretVault | null = null
  const openSecret: OpenSecret = (name, ciphertext) => vault?.open(name, ciphertext) ?? null
  const opened = await open(parts, lock, openSecret)
  try {
    const {store} = parts.config
    if (store.engine === 'postgres')
      await checkPostgresChoice(parts.config, opened.store, nodeId, shownAddress(store.url))
    vault = await openVault(parts.config, opened.store, (sentence) =>
      parts.log.logger.warn(sentence),
    )
    await logState(opened.store, parts)
    return {...opened, vault}
  } catch (error) {
    await opened.close()
    throw error
  }
}

async function logState(store: Store, parts: StoreParts): Promise<void> {
  const {warnings} = await store.info()
  for (const warning of warnings) parts.log.logger.warn(warning)
  const paused = await store.pausedSinceRestore()
  if (paused !== null) parts.log.logger.warn({reason: paused}, FIRING_PAUSED)
  for (const {jobs, until, reason} of await store.firingPauses())
    parts.log.logger.warn(
      {jobs, until: formatOptionalTime(until) ?? '', reason},
      'planned times of these jobs are skipped: firing is paused. To end it, run belfry unpause --firing',
    )
}

/** The address without user and password. */
function shownAddress(url: string): string {
  const parsed = parseAddress(url)
  return parsed.ok ? describeAddress(parsed.address) : 'PostgreSQL'
}

type Opened = Omit<OpenedStore, 'vault'>

async function openSqlite(
  parts: StoreParts,
  lock: HeldLock,
  openSecret: OpenSecret,
): Promise<Opened> {
  const {config, clock, random, events, log, onDamage} = parts
  try {
    checkSqliteChoice(config)
  } catch (error) {
    lock.release()
    throw error
  }
  const {openSqliteStore} = await import('../store/sqlite/store.ts')
  const opened = await openSqliteStore({
    dataDir: config.dataDirectory,
    lock,
    openSecret,
    outputTailBytes: config.limits.outputTailBytes,
    commitItemsMax: config.limits.commitItemsMax,
    clock,
    random,
    events,
    onDamage,
  })
  if (!opened.ok) throw new StartRefused(opened.problem)
  const {uncleanStop, checked} = opened.recovered
  if (uncleanStop)
    log.logger.warn(
      checked
        ? 'unclean shutdown detected, integrity check passed'
        : 'unclean shutdown detected; only the process ended, so the store needs no check',
    )
  const {store, forClients} = opened
  // Checked under the lock: without it, a migration may still be in progress.
  const moved = migratedTo(config.dataDirectory)
  if (moved !== null) {
    await store.close()
    throw new StartRefused(migratedProblem(config.dataDirectory, moved))
  }
  return {store, forClients, wakeup: localWakeup(), close: () => store.close()}
}

async function openPostgres(
  {config, clock, random, events}: StoreParts,
  lock: HeldLock,
  openSecret: OpenSecret,
): Promise<Opened> {
  assert(config.store.engine === 'postgres', 'the caller checks the engine')
  const {openPostgresStore} = await import('../store/postgres/store.ts')
  const opened = await openPostgresStore({
    url: config.store.url,
    clock,
    random,
    openSecret,
    outputTailBytes: config.limits.outputTailBytes,
    commitItemsMax: config.limits.commitItemsMax,
    events,
  })
  if (!opened.ok) {
    lock.release()
    throw new StartRefused(opened.problem)
  }
  const {store, forClients} = opened
  const wakeup = opened.wakeupOver(localWakeup())
  const close = async () => {
    await wakeup.close()
    await store.close()
    lock.release()
  }
  return {store, forClients, wakeup, close}
}

/** Returns the default time zone of jobs. The first server stores its own, and later servers use that. */
export async function agreeZone(store: Store, {config, log}: StoreParts): Promise<string> {
  const own = config.timezone
  const agreed = await store.agreeTimezone(own)
  // The zone of the machine may differ; only one that was configured is a wish of the operator. An earlier
  // release stored a zone as it was spelt.
  if (config.isTimezoneSet && findZone(agreed)?.name !== own) {
    log.logger.warn(
      {own, agreed},
      'the --timezone of this server is ignored: the cluster already has another one. To change ' +
        'that, run belfry settings set timezone with this zone',
    )
  }
  return agreed
}
