/**
 * What every node is told, whether it is a server or an agent: the settings both have, read the same way.
 * Where the two differ stands with each.
 */
import {resolve} from 'node:path'
import {checkedLimits, type Limits} from './limits.ts'
import type {Option} from './options.ts'
import {type Given, type Host, nameFrom, slotsOf, tagsOf, tokenOf, type Values} from './read.ts'
import type {LogLevel, Tag} from './values.ts'

/** Lengths in ms; paths absolute. */
export interface NodeConfig {
  readonly nodeName: string
  readonly tags: Readonly<Record<string, string>>
  /** `null` = none. */
  readonly token: string | null
  readonly slots: number
  readonly dataDirectory: string
  /** `Infinity` = as long as it takes. */
  readonly graceMs: number
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

/** The settings that both commands have, as either has read them. */
interface NodeValues {
  one(name: 'name' | 'token' | 'data' | 'syslog' | 'log-root'): string | undefined
  one(name: 'slots' | 'grace'): number | undefined
  one(name: 'log-level'): LogLevel | undefined
  many(name: 'tag'): readonly Tag[]
  many(name: 'net-allow' | 'net-deny' | 'su-allow'): readonly string[]
  given(name: 'token' | 'token-file'): Given | undefined
}

/** `strays` are variables of Belfry's prefix that are no settings. Throws `Refused`. */
export function nodeConfig<Options extends readonly Option[]>(
  valuesOfCommand: Values<Options>,
  host: Host,
  strays: readonly string[],
): NodeConfig {
  // Both commands take these settings from one table, so their kinds are the same.
  const values = valuesOfCommand as unknown as NodeValues
  const logRoot = values.one('log-root')
  return {
    nodeName: values.one('name') ?? nameFrom(host),
    tags: tagsOf(values.many('tag')),
    token: tokenOf(values.one('token'), values.given, host),
    slots: values.one('slots') ?? slotsOf(host),
    dataDirectory: resolve(host.directory, values.one('data')!),
    graceMs: values.one('grace')!,
    syslogUrl: values.one('syslog') ?? null,
    logRoot: logRoot === undefined ? null : resolve(host.directory, logRoot),
    netAllow: values.many('net-allow'),
    netDeny: values.many('net-deny'),
    suAllow: values.many('su-allow'),
    logLevel: values.one('log-level')!,
    limits: checkedLimits(),
    warnings: strays.map((name) => `${name} is set, but Belfry knows no such setting.`),
  }
}
