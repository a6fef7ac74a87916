/**
 * Flags, environment and file made into one frozen, checked `Config`. Everything a server may be told is
 * decided here, before anything is opened: what is refused is refused in one sentence that says what to do.
 * Nothing reads the environment or the command line after this.
 */
import {resolve} from 'node:path'
import {createSecureContext} from 'node:tls'
import {checkedLimits, type Limits} from './config-limits.ts'
import {OPTIONS, type KindOf, type Option, type OptionName} from './config-options.ts'
import {
  readEnvironment,
  readFileSettings,
  readFlags,
  unknownVariables,
  type Given,
  type Settings,
} from './config-sources.ts'
import {
  READERS,
  readToken,
  type Address,
  type LogLevel,
  type Reading,
  type StoreChoice,
  type ValueOf,
} from './config-values.ts'
import {isKnownZone} from './core/zone.ts'

/** Everything a server is told. Lengths in ms; paths absolute. */
export interface Config {
  readonly http: Address
  readonly dataDirectory: string
  readonly store: StoreChoice
  readonly nodeName: string
  readonly tags: Readonly<Record<string, string>>
  /** `null` = only this machine is served, and needs none. */
  readonly token: string | null
  /** PEM texts; `null` = plain HTTP. */
  readonly tls: {readonly cert: string; readonly key: string} | null
  readonly insecure: boolean
  readonly allowHosts: readonly string[]
  readonly timezone: string
  readonly slots: number
  readonly run: boolean
  readonly ui: boolean
  /** `Infinity` = as long as it takes. */
  readonly graceMs: number
  readonly lateAfterMs: number
  readonly targetWaitMs: number
  readonly defaultTarget: 'one' | 'all'
  readonly keepLaunches: number
  /** `null` = no limit by age. */
  readonly keepMs: number | null
  readonly keepOutputBytes: number
  /** `null` = the syslog of this machine. */
  readonly syslogUrl: string | null
  /** `null` = anywhere. */
  readonly logRoot: string | null
  readonly netAllow: readonly string[]
  readonly netDeny: readonly string[]
  readonly suAllow: readonly string[]
  readonly logLevel: LogLevel
  readonly limits: Limits
  /** Sentences for the log: accepted, but most likely not meant. */
  readonly warnings: readonly string[]
}

export type LoadedConfig =
  {readonly ok: true; readonly config: Config} | {readonly ok: false; readonly problem: string}

/** What the machine says about itself, and its files. */
export interface Host {
  readonly name: string
  readonly cores: number
  readonly timezone: string
  /** The working directory, absolute. */
  readonly directory: string
  /** The text of a file; throws when it cannot be read. */
  readonly readFile: (path: string) => string
}

/**
 * Variables of that prefix which are not settings of a server: the client's, and what a job of Belfry sees.
 */
const OTHER_VARIABLES = ['SERVER', 'JOB', 'EXECUTION', 'SCHEDULED_AT', 'ATTEMPT', 'NODE'].map(
  (name) => `BELFRY_${name}`,
)

const SLOTS_PER_CORE = 8
const SLOTS_MIN = 16
const LATE_AFTER_MIN_MS = 1_000
const DAY_MS = 86_400_000
const NODE_NAME_LENGTH_MAX = 63

/** Thrown and caught in this file only: the sentence with which a start is refused. */
class Refused extends Error {}

/**
 * Reads the flags in `argv` (what follows the word `server`), the environment, and the file they name.
 * `problem` is one sentence.
 */
export function loadConfig(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  host: Host,
): LoadedConfig {
  try {
    const settings = gather(argv, env, host)
    const strays = unknownVariables(env, OTHER_VARIABLES)
    return {ok: true, config: build(readValues(settings), host, strays)}
  } catch (error) {
    if (error instanceof Refused) return {ok: false, problem: error.message}
    throw error
  }
}

/** The strongest source of each setting. */
function gather(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  host: Host,
): Settings {
  const flags = valueOf(readFlags(argv))
  const environment = readEnvironment(env)
  const file = flags.get('config') ?? environment.get('config')
  const fromFile =
    file === undefined
      ? new Map<string, Given>()
      : valueOf(readFileSettings(file.texts[0]!, readNamed(file, host)))
  return new Map([...fromFile, ...environment, ...flags])
}

function readNamed(given: Given, host: Host): string {
  const path = given.texts[0]!
  if (path === '') throw new Refused(`${given.place} is empty.`)
  try {
    return host.readFile(resolve(host.directory, path))
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : String(error)
    const meaning = FILE_PROBLEMS[why] ?? `cannot be read (${why})`
    throw new Refused(`${given.place} names ${path}, which ${meaning}.`, {cause: error})
  }
}

const FILE_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'may not be read by this user',
  EISDIR: 'is a directory',
}

/** Values by name, read by the kind of each; what was not given and has no fallback is absent. */
interface Values {
  one<Name extends OptionName>(name: Name): ValueOf<KindOf<Name>> | undefined
  many<Name extends OptionName>(name: Name): readonly ValueOf<KindOf<Name>>[]
  given(name: OptionName): Given | undefined
}

function readValues(settings: Settings): Values {
  const values = new Map<string, readonly unknown[]>()
  for (const option of OPTIONS as readonly Option[]) {
    const given = settings.get(option.name) ?? fallbackOf(option)
    if (given !== null) values.set(option.name, given.texts.map(readerOf(option, given)))
  }
  const many = <Name extends OptionName>(name: Name) =>
    (values.get(name) ?? []) as readonly ValueOf<KindOf<Name>>[]
  return {many, one: (name) => many(name)[0], given: (name) => settings.get(name)}
}

function fallbackOf(option: Option): Given | null {
  return option.fallback === null ? null : {place: `--${option.name}`, texts: [option.fallback]}
}

function readerOf(option: Option, given: Given): (text: string) => unknown {
  const read: (text: string) => Reading<unknown> = READERS[option.kind]
  return (text) => {
    const reading = read(text)
    if (!reading.ok) throw new Refused(`${given.place} ${reading.problem}.`)
    return reading.value
  }
}

function build(values: Values, host: Host, strays: readonly string[]): Config {
  const path = (name: 'data' | 'log-root') => {
    const given = values.one(name)
    return given === undefined ? null : resolve(host.directory, given)
  }
  const days = values.one('keep-days')
  const config: Config = {
    http: values.one('http')!,
    dataDirectory: path('data')!,
    store: values.one('store')!,
    nodeName: values.one('name') ?? nameFrom(host.name),
    tags: tagsOf(values),
    token: tokenOf(values, host),
    tls: tlsOf(values, host),
    insecure: values.one('insecure') ?? false,
    allowHosts: values.many('allow-host'),
    timezone: values.one('timezone') ?? (isKnownZone(host.timezone) ? host.timezone : 'UTC'),
    slots: values.one('slots') ?? Math.max(SLOTS_MIN, SLOTS_PER_CORE * host.cores),
    run: !(values.one('no-run') ?? false),
    ui: !(values.one('no-ui') ?? false),
    graceMs: values.one('grace')!,
    lateAfterMs: values.one('late-after')!,
    targetWaitMs: values.one('target-wait')!,
    defaultTarget: values.one('default-target')!,
    keepLaunches: values.one('keep-launches')!,
    keepMs: days === undefined ? null : days * DAY_MS,
    keepOutputBytes: values.one('keep-output-bytes')!,
    syslogUrl: values.one('syslog') ?? null,
    logRoot: path('log-root'),
    netAllow: values.many('net-allow'),
    netDeny: values.many('net-deny'),
    suAllow: values.many('su-allow'),
    logLevel: values.one('log-level')!,
    limits: checkedLimits(),
    warnings: strays.map((name) => `${name} is set, but Belfry knows no such setting.`),
  }
  refuseUnsafe(config)
  return deepFreeze(config)
}

/** What no combination of settings may do. */
function refuseUnsafe(config: Config): void {
  if (config.lateAfterMs < LATE_AFTER_MIN_MS)
    throw new Refused('--late-after wants at least 1s, else no planned time could be on time.')
  const {http} = config
  if (http.loopback) return
  const address = `${http.host.includes(':') ? `[${http.host}]` : http.host}:${http.port}`
  if (config.token === null)
    throw new Refused(
      `--http ${address} can be reached by other machines, so set a token with --token or --token-file.`,
    )
  if (config.tls === null && !config.insecure)
    throw new Refused(
      `--http ${address} would send the token in the clear; set --tls-cert and --tls-key, ` +
        'or --insecure if something in front speaks TLS.',
    )
}

function tagsOf(values: Values): Readonly<Record<string, string>> {
  const tags = values.many('tag')
  const keys = tags.map(([key]) => key)
  const twice = keys.find((key, index) => keys.indexOf(key) !== index)
  if (twice !== undefined)
    throw new Refused(`--tag gives "${twice}" twice; a node has one value for each tag.`)
  return Object.fromEntries(tags)
}

function tokenOf(values: Values, host: Host): string | null {
  const file = values.given('token-file')
  if (file === undefined) return values.one('token') ?? null
  if (values.given('token') !== undefined)
    throw new Refused('Give either --token or --token-file, not both.')
  const reading = readToken(readNamed(file, host).replace(/\r?\n$/, ''))
  if (!reading.ok) throw new Refused(`The token in ${file.texts[0]} ${reading.problem}.`)
  return reading.value
}

function tlsOf(values: Values, host: Host): Config['tls'] {
  const certFile = values.given('tls-cert')
  const keyFile = values.given('tls-key')
  if (certFile === undefined && keyFile === undefined) return null
  if (certFile === undefined) throw new Refused('--tls-key needs --tls-cert beside it.')
  if (keyFile === undefined) throw new Refused('--tls-cert needs --tls-key beside it.')
  const cert = readNamed(certFile, host)
  const key = readNamed(keyFile, host)
  try {
    createSecureContext({cert, key})
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new Refused(
      `The certificate in ${certFile.texts[0]} and the key in ${keyFile.texts[0]} cannot be used: ${why}.`,
      {cause: error},
    )
  }
  return {cert, key}
}

/** The host's name with what a node's name may not hold left out. */
function nameFrom(hostName: string): string {
  const kept = hostName.replaceAll(/[^A-Za-z0-9._-]+/g, '-').slice(0, NODE_NAME_LENGTH_MAX)
  return kept === '' ? 'belfry' : kept
}

/** `source` of a setting, or the end of the start. */
function valueOf(
  source: {readonly ok: true; readonly value: Settings} | {readonly ok: false; problem: string},
): Settings {
  if (!source.ok) throw new Refused(source.problem)
  return source.value
}

function deepFreeze<Value extends object>(value: Value): Value {
  for (const inner of Object.values(value))
    if (typeof inner === 'object' && inner !== null) deepFreeze(inner as object)
  return Object.freeze(value)
}
