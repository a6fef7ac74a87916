/**
 * Flags, environment and file made into one frozen, checked `Config`. Everything a server may be told is
 * decided here, before anything is opened: what is refused is refused in one sentence that says what to do.
 * Nothing reads the environment or the command line after this.
 */
import {createSecureContext} from 'node:tls'
import {isKnownZone} from '../core/schedule/zone.ts'
import {MEMBER_KEPT_MIN_MS} from './limits.ts'
import {nodeConfig, type NodeConfig} from './node.ts'
import {OPTIONS, SERVER_COMMAND} from './options.ts'
import {
  deepFreeze,
  type Host,
  orProblem,
  readNamed,
  ParseError,
  unknownVariables,
  type Values as ValuesOf,
  valuesOf,
} from './read.ts'
import type {Address, StoreChoice} from './values.ts'

/** Everything a server is told. Lengths in ms. Without a token only this machine is served. */
export interface Config extends NodeConfig {
  readonly http: Address
  readonly store: StoreChoice
  /** PEM texts; `null` = plain HTTP. */
  readonly tls: {readonly cert: string; readonly key: string} | null
  readonly insecure: boolean
  readonly allowHosts: readonly string[]
  readonly timezone: string
  readonly run: boolean
  readonly ui: boolean
  readonly lateAfterMs: number
  readonly targetWaitMs: number
  readonly defaultTarget: 'one' | 'all'
  readonly keepLaunches: number
  /** `null` = no limit by age. */
  readonly keepMs: number | null
  readonly keepOutputBytes: number
  readonly keepLeftMs: number
  readonly keepFailedMs: number
}

export type LoadedConfig =
  {readonly ok: true; readonly config: Config} | {readonly ok: false; readonly problem: string}

/**
 * Variables of that prefix which are not settings of a server: the client's, the agent's, and what a job of
 * Belfry sees.
 */
const OTHER_VARIABLES = [
  'SERVER',
  'TLS_CA',
  'JOB',
  'EXECUTION',
  'SCHEDULED_AT',
  'ATTEMPT',
  'NODE',
].map((name) => `BELFRY_${name}`)

const LATE_AFTER_MIN_MS = 1_000
const DAY_MS = 86_400_000

type Values = ValuesOf<typeof OPTIONS>

/** How the address of a store is read, by the adapter; `subject` begins the sentence about a problem. */
export type AddressReader = (
  url: string,
  subject: string,
) => {readonly ok: true} | {readonly ok: false; readonly problem: string}

/**
 * Reads the flags in `argv` (what follows the word `server`), the environment, and the file they name.
 * `problem` is one sentence.
 */
export function loadConfig(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  host: Host,
  readAddress: AddressReader,
): LoadedConfig {
  return orProblem(() => {
    const values = valuesOf({...SERVER_COMMAND, options: OPTIONS}, {argv, env, host})
    return build(values, host, unknownVariables(env, OTHER_VARIABLES), readAddress)
  })
}

function build(
  values: Values,
  host: Host,
  strays: readonly string[],
  readAddress: AddressReader,
): Config {
  const days = values.one('keep-days')
  const config: Config = {
    ...nodeConfig(values, host, strays),
    http: values.one('http')!,
    store: storeOf(values, readAddress),
    tls: tlsOf(values, host),
    insecure: values.one('insecure') ?? false,
    allowHosts: values.many('allow-host'),
    timezone: values.one('timezone') ?? (isKnownZone(host.timezone) ? host.timezone : 'UTC'),
    run: !(values.one('no-run') ?? false),
    ui: !(values.one('no-ui') ?? false),
    lateAfterMs: values.one('late-after')!,
    targetWaitMs: values.one('target-wait')!,
    defaultTarget: values.one('default-target')!,
    keepLaunches: values.one('keep-launches')!,
    keepMs: days === undefined ? null : days * DAY_MS,
    keepOutputBytes: values.one('keep-output-bytes')!,
    keepLeftMs: values.one('keep-left')!,
    keepFailedMs: values.one('keep-failed')!,
  }
  refuseUnsafe(config)
  return deepFreeze(config)
}

/** What no combination of settings may do. */
function refuseUnsafe(config: Config): void {
  if (config.lateAfterMs < LATE_AFTER_MIN_MS)
    throw new ParseError('--late-after wants at least 1s, else no planned time could be on time.')
  if (Math.min(config.keepLeftMs, config.keepFailedMs) < MEMBER_KEPT_MIN_MS)
    throw new ParseError(
      '--keep-left and --keep-failed want at least 1m, so that a node that restarts stays listed.',
    )
  const {http} = config
  if (http.loopback) return
  const address = `${http.host.includes(':') ? `[${http.host}]` : http.host}:${http.port}`
  if (config.token === null)
    throw new ParseError(
      `--http ${address} can be reached by other machines, so set a token with --token or --token-file.`,
    )
  if (config.tls === null && !config.insecure)
    throw new ParseError(
      `--http ${address} would send the token in the clear; set --tls-cert and --tls-key, ` +
        'or --insecure if something in front speaks TLS.',
    )
}

/** The store reads the address anew when it is opened; what is wrong with it is said already here. */
function storeOf(values: Values, readAddress: AddressReader): StoreChoice {
  const store = values.one('store')!
  if (store.engine === 'sqlite') return store
  const read = readAddress(store.url, values.given('store')?.place ?? '--store')
  if (!read.ok) throw new ParseError(read.problem)
  return store
}

function tlsOf(values: Values, host: Host): Config['tls'] {
  const certFile = values.given('tls-cert')
  const keyFile = values.given('tls-key')
  if (certFile === undefined && keyFile === undefined) return null
  if (certFile === undefined) throw new ParseError('--tls-key needs --tls-cert beside it.')
  if (keyFile === undefined) throw new ParseError('--tls-cert needs --tls-key beside it.')
  const cert = readNamed(certFile, host)
  const key = readNamed(keyFile, host)
  try {
    createSecureContext({cert, key})
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new ParseError(
      `The certificate in ${certFile.texts[0]} and the key in ${keyFile.texts[0]} cannot be used: ${why}.`,
      {cause: error},
    )
  }
  return {cert, key}
}
