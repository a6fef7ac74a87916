/** Settings that servers and agents share, read in the same way. */
import {resolve} from 'node:path'
import {checkedLimits, type Limits} from './limits.ts'
import type {Option} from './option.ts'
import {type Host, ParseError, type RawSetting, readSettingFile, type Values} from './read.ts'
import {type LogFormat, type LogLevel, NODE_NAME_LENGTH_MAX, readToken, type Tag} from './values.ts'

/** Durations in ms; paths absolute. */
export interface NodeConfig {
  readonly nodeName: string
  readonly tags: Readonly<Record<string, string>>
  /** `null` = none. */
  readonly token: string | null
  readonly slots: number
  readonly dataDirectory: string
  /** `Infinity` = wait for all executions. */
  readonly graceMs: number
  /** `null` = the local syslog. */
  readonly syslogUrl: string | null
  /** `null` = anywhere. */
  readonly logRoot: string | null
  readonly netAllow: readonly string[]
  readonly netDeny: readonly string[]
  readonly suAllow: readonly string[]
  /** Empty = all. */
  readonly executorAllow: readonly string[]
  readonly logLevel: LogLevel
  readonly logFormat: LogFormat
  readonly limits: Limits
  /** Log messages about accepted settings that are probably mistakes. */
  readonly warnings: readonly string[]
}

/**
 * A bound on memory and descriptors, not on the load: most jobs wait for something else, and the helper
 * starts commands as fast as the machine can.
 */
const SLOTS_PER_CORE = 64
const SLOTS_MIN = 256

/** Values of the settings that both commands have. */
interface NodeValues {
  one(name: 'name' | 'token' | 'data' | 'syslog' | 'log-root'): string | undefined
  one(name: 'slots' | 'grace'): number | undefined
  one(name: 'log-level'): LogLevel | undefined
  one(name: 'log-format'): LogFormat | undefined
  many(name: 'tag'): readonly Tag[]
  many(name: 'net-allow' | 'net-deny' | 'su-allow' | 'executor-allow'): readonly string[]
  raw(name: 'token' | 'token-file'): RawSetting | undefined
}

/** `unknown`: sentences about variables with Belfry's prefix that are not settings. Throws `ParseError`. */
export function nodeConfig<Options extends readonly Option[]>(
  valuesOfCommand: Values<Options>,
  host: Host,
  unknown: readonly string[],
): NodeConfig {
  // Both commands take these options from one table, so their kinds are the same.
  const values = valuesOfCommand as unknown as NodeValues
  const logRoot = values.one('log-root')
  return {
    nodeName: values.one('name') ?? nameOf(host),
    tags: tagsOf(values.many('tag')),
    token: tokenOf(values, host),
    slots: values.one('slots') ?? Math.max(SLOTS_MIN, SLOTS_PER_CORE * host.cores),
    dataDirectory: resolve(host.directory, values.one('data')!),
    graceMs: values.one('grace')!,
    syslogUrl: values.one('syslog') ?? null,
    logRoot: logRoot === undefined ? null : resolve(host.directory, logRoot),
    netAllow: values.many('net-allow'),
    netDeny: values.many('net-deny'),
    suAllow: values.many('su-allow'),
    executorAllow: values.many('executor-allow'),
    logLevel: values.one('log-level')!,
    logFormat: values.one('log-format')!,
    limits: checkedLimits(),
    warnings: unknown,
  }
}

/** The host name, with the characters replaced that a node name cannot contain. */
function nameOf({name}: Host): string {
  const kept = name.replaceAll(/[^A-Za-z0-9._-]+/g, '-').slice(0, NODE_NAME_LENGTH_MAX)
  return kept === '' ? 'belfry' : kept
}

function tagsOf(tags: readonly Tag[]): Readonly<Record<string, string>> {
  const keys = tags.map(([key]) => key)
  const twice = keys.find((key, index) => keys.indexOf(key) !== index)
  if (twice !== undefined)
    throw new ParseError(`--tag sets "${twice}" twice: a node has one value for each tag.`)
  return Object.fromEntries(tags)
}

/** Token of `--token` or `--token-file`; `null` = none. */
function tokenOf(values: NodeValues, host: Host): string | null {
  const file = values.raw('token-file')
  if (file === undefined) return values.one('token') ?? null
  if (values.raw('token') !== undefined)
    throw new ParseError('--token and --token-file cannot both be set. Remove one of them.')
  return readTokenFile(file, host)
}

/** The token in a file, without its last line break. Throws `ParseError`. */
export function readTokenFile(file: RawSetting, host: Host): string {
  const reading = readToken(readSettingFile(file, host).replace(/\r?\n$/, ''))
  if (!reading.ok) throw new ParseError(`The token in ${file.texts[0]} ${reading.problem}.`)
  return reading.value
}
