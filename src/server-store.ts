/** The store of a server: opening the one that was chosen, and what all servers on it must agree about. */
import type {Config} from './config.ts'
import type {Clock} from './ports/clock.ts'
import type {Events} from './ports/events.ts'
import type {Random} from './ports/random.ts'
import type {Store} from './ports/store.ts'
import {StartRefused} from './start-refused.ts'
import {openSqliteStore} from './stores/sqlite/store.ts'
import type {Log} from './system/log.ts'

export interface StoreParts {
  readonly config: Config
  readonly clock: Clock
  readonly random: Random
  readonly events: Events
  readonly log: Log
}

/** Throws `StartRefused`. */
export async function openStore({config, clock, random, events, log}: StoreParts): Promise<Store> {
  const {dataDirectory, store, limits} = config
  if (store.engine !== 'sqlite') {
    throw new StartRefused(
      'This version keeps its data in embedded SQLite only; leave out --store.',
    )
  }
  const opened = await openSqliteStore({
    dataDir: dataDirectory,
    outputKeptBytes: limits.outputTailBytes,
    commitItemsMax: limits.commitItemsMax,
    clock,
    random,
    events,
  })
  if (!opened.ok) throw new StartRefused(opened.problem)
  if (opened.recovered.uncleanStop) {
    log.logger.warn('the last stop was not a clean one; the store was checked and is whole')
  }
  const {warnings} = await opened.store.facts()
  for (const warning of warnings) log.logger.warn(warning)
  return opened.store
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
