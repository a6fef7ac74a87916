/**
 * Settings of `belfry server`, as one frozen, checked `Config`. All settings are checked here, before any
 * file or socket is opened, and each error says what to do. Later code reads no environment and no command
 * line.
 */
import {resolve} from 'node:path'
import {findZone} from '../core/schedule/zone.ts'
import {formatDuration} from '../lib/duration.ts'
import {SERVER_COMMAND} from './commands.ts'
import {MEMBER_KEPT_MIN_MS} from './limits.ts'
import {readTls, rejectExposed, type TlsTexts} from './listen.ts'
import {nodeConfig, type NodeConfig} from './node.ts'
import {OPTIONS} from './options.ts'
import {oidcConfig, type OidcConfig} from './oidc.ts'
import {
  deepFreeze,
  type Host,
  ParseError,
  readSettings,
  resultOf,
  unknownVariables,
  type Values as ValuesOf,
} from './read.ts'
import {type Address, isLoopback, type StoreChoice} from './values.ts'

/** Durations in ms. Without a token, the server answers this machine only. */
export interface Config extends NodeConfig {
  readonly http: Address
  readonly store: StoreChoice
  /** PEM texts; `null` = plain HTTP. */
  readonly tls: TlsTexts | null
  readonly insecure: boolean
  /** Absolute path; `null` = not set. */
  readonly secretKeyFile: string | null
  readonly discardSecrets: boolean
  /** Start even if the data directory has had another store. */
  readonly newStore: boolean
  readonly allowHosts: readonly string[]
  readonly corsOrigins: readonly string[]
  /** `null` = people sign in with tokens only. */
  readonly oidc: OidcConfig | null
  readonly sessionIdleMs: number
  readonly sessionMaxMs: number
  readonly timezone: string
  /** False: it is that of the machine. */
  readonly isTimezoneSet: boolean
  readonly run: boolean
  readonly ui: boolean
  /** URL at which browsers reach the servers; `''` = not set. */
  readonly publicUrl: string
  readonly lateAfterMs: number
  readonly targetWaitMs: number
  readonly defaultTarget: 'one' | 'all'
  /** Run requests of one token for one job. */
  readonly runsPerMinute: number
  /** Patterns of the jobs with series of their own. */
  readonly metricsJobs: readonly string[]
  readonly keepLaunches: number
  /** Launches whose executions are kept. */
  readonly keepExecutions: number
  readonly keepMs: number
  readonly keepOutputBytes: number
  readonly keepLeftMs: number
  readonly keepFailedMs: number
  readonly keepAuditMs: number
  readonly keepAuditEntries: number
  readonly keepAuditBytes: number
  /** Scheduled backups; none without a directory. */
  readonly backup: {
    readonly directory: string | null
    readonly schedule: string
    readonly keep: number
  }
}

export type LoadedConfig =
  {readonly ok: true; readonly config: Config} | {readonly ok: false; readonly problem: string}

/** Variables with Belfry's prefix and other purposes: for clients, for agents, and those set for jobs. */
const OTHER_VARIABLES = [
  'SERVER',
  'TIMEOUT',
  'TLS_CA',
  'JOB',
  'EXECUTION',
  'SCHEDULED_AT',
  'ATTEMPT',
  'NODE',
].map((name) => `BELFRY_${name}`)

const FLAGS = {
  address: '--http',
  token: '--token',
  cert: '--tls-cert',
  key: '--tls-key',
  insecure: '--insecure',
  store: '--store',
}
const LATE_AFTER_MIN_MS = 1_000
const SESSION_IDLE_MIN_MS = 300_000
const DAY_MS = 86_400_000

type Values = ValuesOf<typeof OPTIONS>

/** The adapter's check of a store URL; `subject` is the subject of `problem`. */
export type AddressReader = (
  url: string,
  subject: string,
) =>
  | {readonly ok: true; readonly address: {readonly password: string | null}}
  | {readonly ok: false; readonly problem: string}

/** `argv` follows the word `server`. `problem` is the message for the operator. */
export function loadConfig(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  host: Host,
  readAddress: AddressReader,
): LoadedConfig {
  return resultOf(() => {
    const values = readSettings({...SERVER_COMMAND, options: OPTIONS}, {argv, env, host})
    return build(values, host, unknownVariables(env, OTHER_VARIABLES), readAddress)
  })
}

function build(
  values: Values,
  host: Host,
  unknown: readonly string[],
  readAddress: AddressReader,
): Config {
  const node = nodeConfig(values, host, unknown)
  const {store, warnings} = storeOf(values, readAddress)
  const config: Config = {
    ...node,
    warnings: [...node.warnings, ...warnings],
    http: values.one('http')!,
    store,
    tls: readTls(values.raw('tls-cert'), values.raw('tls-key'), FLAGS, host),
    insecure: values.one('insecure') ?? false,
    secretKeyFile: secretKeyFileOf(values, host),
    newStore: values.one('new-store') ?? false,
    discardSecrets: values.one('discard-secrets') ?? false,
    allowHosts: allowedHosts(values),
    corsOrigins: values.many('cors-origin'),
    oidc: oidcConfig(values, host),
    sessionIdleMs: values.one('session-idle')!,
    sessionMaxMs: values.one('session-max')!,
    timezone: values.one('timezone') ?? findZone(host.timezone)?.name ?? 'UTC',
    isTimezoneSet: values.one('timezone') !== undefined,
    run: !(values.one('no-run') ?? false),
    ui: !(values.one('no-ui') ?? false),
    publicUrl: values.one('public-url') ?? '',
    lateAfterMs: values.one('late-after')!,
    targetWaitMs: values.one('target-wait')!,
    defaultTarget: values.one('default-target')!,
    runsPerMinute: values.one('run-rate')!,
    metricsJobs: values.many('metrics-jobs'),
    keepLaunches: values.one('keep-launches')!,
    keepExecutions: values.one('keep-executions')!,
    keepMs: values.one('keep-days')! * DAY_MS,
    keepOutputBytes: values.one('keep-output-bytes')!,
    keepLeftMs: values.one('keep-left')!,
    keepFailedMs: values.one('keep-failed')!,
    keepAuditMs: values.one('keep-audit-days')! * DAY_MS,
    keepAuditEntries: values.one('keep-audit-entries')!,
    keepAuditBytes: values.one('keep-audit-bytes')!,
    backup: backupOf(values, host),
  }
  rejectUnsafe(config)
  rejectPlainPages(values.one('public-url'), config)
  return deepFreeze(config)
}

/** Browsers use the name of the public URL. */
function allowedHosts(values: Values): readonly string[] {
  const publicUrl = values.one('public-url')
  const named = values.many('allow-host')
  return publicUrl === undefined ? named : [...named, new URL(publicUrl).hostname]
}

/** Throws `ParseError` for unsafe combinations of settings. */
function rejectUnsafe(config: Config): void {
  // A shorter time would make every planned time late.
  if (config.lateAfterMs < LATE_AFTER_MIN_MS)
    throw new ParseError('--late-after must be at least 1s.')
  if (Math.min(config.keepLeftMs, config.keepFailedMs) < MEMBER_KEPT_MIN_MS)
    throw new ParseError(
      '--keep-left and --keep-failed must be at least 1m: a restarting node must stay listed.',
    )
  if (config.sessionIdleMs < SESSION_IDLE_MIN_MS)
    throw new ParseError(
      '--session-idle must be 5m or more: servers learn of a use by another server up to two minutes late.',
    )
  if (config.sessionMaxMs < config.sessionIdleMs) {
    const most = formatDuration(config.sessionMaxMs)
    throw new ParseError(`--session-idle must not exceed --session-max (${most}).`)
  }
  rejectExposed({...config, address: config.http}, FLAGS)
}

/** Browsers would send the cookie of a session in clear text. Throws `ParseError`. */
function rejectPlainPages(publicUrl: string | undefined, {insecure}: Config): void {
  const url = publicUrl === undefined ? null : new URL(publicUrl)
  if (url === null || insecure || url.protocol === 'https:') return
  if (!isLoopback(url.hostname.replaceAll(/[[\]]/g, '')))
    throw new ParseError(
      '--public-url must be an https URL: browsers would send sessions in clear text. To allow that, ' +
        'set --insecure.',
    )
}

/** Checks the address early; the store reads it again when it is opened. */
function storeOf(
  values: Values,
  readAddress: AddressReader,
): {readonly store: StoreChoice; readonly warnings: readonly string[]} {
  const store = values.one('store')!
  if (store.engine === 'sqlite') return {store, warnings: []}
  const place = values.raw('store')?.place ?? FLAGS.store
  const read = readAddress(store.url, place)
  if (!read.ok) throw new ParseError(read.problem)
  const isShown = place === FLAGS.store && read.address.password !== null
  return {store, warnings: isShown ? [PASSWORD_SHOWN] : []}
}

const PASSWORD_SHOWN =
  'The password in --store is on the command line, where every user of this machine can read it. Set it ' +
  'with PGPASSWORD or PGPASSFILE, or put "store" into a file for --config.'

function backupOf(values: Values, host: Host): Config['backup'] {
  const directory = values.one('backup-dir')
  return {
    directory: directory === undefined ? null : resolve(host.directory, directory),
    schedule: values.one('backup-schedule')!,
    keep: values.one('backup-keep')!,
  }
}

/** Read when the store is open. */
function secretKeyFileOf(values: Values, host: Host): string | null {
  const file = values.one('secret-key-file')
  return file === undefined ? null : resolve(host.directory, file)
}
