/**
 * Durability of the database, read from the server: whether an acknowledged commit survives a power failure,
 * and whether it survives a failover. Reported and warned about; no decision depends on it.
 */
import {all, one, type Query} from '../sql/query.ts'

export interface EngineDurability {
  /** The stored version, which may be that of the next release. */
  readonly schemaVersion: number
  readonly engineVersion: string
  readonly durability: Readonly<Record<string, string>>
  readonly warnings: readonly string[]
}

interface SettingsRow {
  readonly server_version: string
  readonly fsync: string
  readonly full_page_writes: string
  readonly synchronous_commit: string
  readonly synchronous_standby_names: string
  readonly data_checksums: string
}

interface StandbyRow {
  readonly pid: number
  /** `null` = the role may not see it. */
  readonly sync_state: string | null
}

/** `hosts`: the number of hosts in the address; several mean that failovers are expected. */
export function* readDurability(hosts: number): Query<EngineDurability> {
  const schema = yield* one<{version: number}>(`SELECT max(version) AS version FROM schema_version`)
  const [settings] = yield* all<SettingsRow>(
    `SELECT current_setting('server_version') AS server_version,
      current_setting('fsync') AS fsync,
      current_setting('full_page_writes') AS full_page_writes,
      current_setting('synchronous_commit') AS synchronous_commit,
      current_setting('synchronous_standby_names') AS synchronous_standby_names,
      current_setting('data_checksums') AS data_checksums`,
  )
  const standbys = yield* all<StandbyRow>(`SELECT pid, sync_state FROM pg_stat_replication`)
  const {server_version: engineVersion, ...known} = settings!
  return {
    schemaVersion: schema!.version,
    engineVersion: engineVersion.split(' ')[0] ?? engineVersion,
    durability: {...known, standbys: describeStandbys(standbys)},
    warnings: [...warningsOf(known, standbys, hosts)],
  }
}

function describeStandbys(standbys: readonly StandbyRow[]): string {
  if (standbys.length === 0) return 'none'
  const counts = new Map<string, number>()
  for (const {sync_state: state} of standbys) {
    const text = state ?? 'not shown to this role'
    counts.set(text, (counts.get(text) ?? 0) + 1)
  }
  return [...counts].map(([state, count]) => `${count} ${state}`).join(', ')
}

function* warningsOf(
  settings: Omit<SettingsRow, 'server_version'>,
  standbys: readonly StandbyRow[],
  hosts: number,
): Generator<string> {
  if (settings.fsync !== 'on')
    yield 'PostgreSQL runs with fsync off: a power cut may lose acknowledged writes and damage the database'
  else if (settings.full_page_writes !== 'on')
    yield 'PostgreSQL runs with full_page_writes off: a power cut may damage the database'
  const names = settings.synchronous_standby_names
  if (standbys.length === 0 && hosts > 1 && names === '')
    yield (
      `no standby is connected, though --store names ${hosts} hosts: there is nothing to fail over to ` +
      '(connect one, and set synchronous_standby_names)'
    )
  if (standbys.length > 0 && names === '')
    yield (
      'the standbys are asynchronous: a failover may lose acknowledged launches ' +
      '(set synchronous_standby_names)'
    )
  const isSeen = standbys.some(({sync_state: state}) => state === 'sync' || state === 'quorum')
  const isHidden = standbys.some(({sync_state: state}) => state === null)
  if (names !== '' && !isSeen && !isHidden)
    yield 'no synchronous standby is connected: writes wait until one is'
}
