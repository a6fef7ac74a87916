/**
 * Sends output to syslog, one message a line: to the server that `--syslog` names (RFC 5424 over UDP or
 * TCP), or to the local one through logger(1), which someone else starts for us, because this process never
 * forks.
 */
import {existsSync} from 'node:fs'

import type {Clock} from '../ports/runtime.ts'
import type {Parameter, Run} from '../ports/executor.ts'
import type {Processor, ProcessorRun, ProcessorStream} from '../ports/processor.ts'
import {LineCutter} from './lines.ts'
import {checkCommon, FORWARD} from './parameters.ts'
import {openSyslogLink} from './syslog-link.ts'

/** With its header a message stays below the 1,024 bytes every receiver takes. */
const LINE_BYTES_MAX = 800

/** What one logger(1) is given: it is started once for so much. */
const LOGGER_BYTES_MAX = 48 * 1024

const PARAMETERS: readonly Parameter[] = [FORWARD]

/** Facility user, severity info. */
const PRIORITY = 14

export interface SyslogOptions {
  readonly nodeName: string
  readonly clock: Clock
  /** `udp://host:port` or `tcp://host:port`; `null` = the local syslog. */
  readonly syslogUrl: string | null
  /** Where the local syslog listens; when it is not there, there is none. */
  readonly localSocket: string
  /**
   * Runs a program with an input to its end; answers `''`, or a sentence that says why it failed. `null` =
   * cannot.
   */
  readonly runProgram: ((argv: readonly string[], input: Uint8Array) => Promise<string>) | null
}

export function createSyslogProcessor(options: SyslogOptions): Processor {
  return {
    name: 'syslog',
    parameters: PARAMETERS,
    check: (config) => checkCommon('syslog', PARAMETERS, config),
    open: (request) =>
      options.syslogUrl === null ? openLocal(request, options) : openRemote(request, options),
  }
}

async function openRemote({run}: ProcessorRun, options: SyslogOptions): Promise<ProcessorStream> {
  const url = options.syslogUrl!
  const link = await openSyslogLink(url)
  const lines = new LineCutter(LINE_BYTES_MAX)
  const send = (texts: readonly string[]): Promise<void> =>
    link.send(texts.map((text) => messageOf(text, run, options)))
  return {
    write: async (bytes) => {
      const whole = [...lines.push(bytes)]
      if (whole.length > 0) await send(whole)
    },
    end: async () => {
      try {
        const rest = lines.rest()
        if (rest !== null) await send([rest])
      } finally {
        await link.close()
      }
      return `output sent to syslog at ${url}`
    },
  }
}

/** One RFC 5424 message, without framing. */
function messageOf(line: string, run: Run, options: SyslogOptions): Buffer {
  const instant = new Date(options.clock.now()).toISOString()
  const header = `<${PRIORITY}>1 ${instant} ${options.nodeName} belfry ${run.executionId} - -`
  return Buffer.from(`${header} ${run.jobName}: ${printable(line)}`)
}

/** Output must not look like several messages, nor steer a terminal that shows the log. */
function printable(line: string): string {
  // eslint-disable-next-line no-control-regex -- control characters are what it is about
  return line.replace(/[\u0000-\u0008\u000a-\u001f\u007f]/g, '?')
}

async function openLocal({run}: ProcessorRun, options: SyslogOptions): Promise<ProcessorStream> {
  const {runProgram} = options
  // logger(1) itself says nothing and succeeds when nobody listens.
  if (runProgram === null || !existsSync(options.localSocket)) {
    throw new Error('there is no local syslog; name one with --syslog')
  }
  const lines = new LineCutter(LINE_BYTES_MAX)
  let batch: string[] = []
  let batchBytes = 0
  const flush = async (): Promise<void> => {
    if (batch.length === 0) return
    const input = Buffer.from(batch.join(''))
    batch = []
    batchBytes = 0
    const problem = await runProgram(['logger', '-t', 'belfry', '-p', 'user.info'], input)
    if (problem !== '') throw new Error(`logger could not reach the local syslog: ${problem}`)
  }
  const add = async (line: string): Promise<void> => {
    const text = `${run.jobName} ${run.executionId}: ${printable(line)}\n`
    batch.push(text)
    batchBytes += text.length
    if (batchBytes >= LOGGER_BYTES_MAX) await flush()
  }
  return {
    write: async (bytes) => {
      for (const line of lines.push(bytes)) await add(line)
    },
    end: async () => {
      const rest = lines.rest()
      if (rest !== null) await add(rest)
      await flush()
      return `output sent to the syslog of ${options.nodeName}`
    },
  }
}
