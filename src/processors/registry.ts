/**
 * Registry of processors by name. A new processor needs one file, one line here and one section in
 * docs/reference/processors.md.
 */
import {join} from 'node:path'
import type {Processor} from '../ports/processor.ts'
import type {Clock} from '../ports/runtime.ts'
import {createFilesProcessor} from './files.ts'
import {createLogProcessor, type LogRecord} from './log.ts'
import {createSyslogProcessor, parseSyslogUrl} from './syslog.ts'

export interface ProcessorOptions {
  /** The node's data directory, absolute. */
  readonly dataDir: string
  readonly nodeName: string
  readonly clock: Clock
  /** Every `log_dir` must be below it; `null` = anywhere. */
  readonly logRoot: string | null
  /** `udp://host:port` or `tcp://host:port`; `null` = the local syslog through logger(1). */
  readonly syslogUrl: string | null
  /** Socket of the local syslog, if it differs from the system's default. */
  readonly localSyslogSocket?: string
  /** Logs a sentence that belongs to no execution. */
  readonly warn: (sentence: string) => void
  /** Writes a record of the `log` processor; a promise is awaited. */
  readonly writeLog: (record: LogRecord) => void | Promise<void>
  /**
   * Runs a program with an input, without forking this process; resolves to `''` or why it failed. `null` =
   * not possible on this node: then there is no local syslog.
   */
  readonly runProgram: ((argv: readonly string[], input: Uint8Array) => Promise<string>) | null
}

const LOCAL_SYSLOG_SOCKETS: Readonly<Partial<Record<NodeJS.Platform, string>>> = {
  linux: '/dev/log',
  darwin: '/var/run/syslog',
}

export interface ProcessorRegistry {
  readonly all: readonly Processor[]
  /** `null` when there is no such processor. */
  get(name: string): Processor | null
  /** Names in alphabetical order. */
  names(): readonly string[]
}

/** Throws for an invalid `syslogUrl`. */
export function createProcessors(options: ProcessorOptions): ProcessorRegistry {
  const syslog = options.syslogUrl === null ? null : parseSyslogUrl(options.syslogUrl)
  if (syslog !== null && 'problem' in syslog) throw new Error(`--syslog ${syslog.problem}`)
  const all: readonly Processor[] = [
    createFilesProcessor({
      defaultDirectory: join(options.dataDir, 'logs'),
      root: options.logRoot,
      warn: options.warn,
    }),
    createLogProcessor(options),
    createSyslogProcessor({
      ...options,
      localSocket:
        options.localSyslogSocket ?? LOCAL_SYSLOG_SOCKETS[process.platform] ?? '/dev/log',
    }),
  ]
  const byName = new Map(all.map((processor) => [processor.name, processor]))
  return {
    all,
    get: (name) => byName.get(name) ?? null,
    names: () => [...byName.keys()].toSorted(),
  }
}
