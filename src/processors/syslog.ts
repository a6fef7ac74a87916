/**
 * syslog processor: sends each line of output as one message. Messages go to the server in `--syslog` (RFC
 * 5424 over UDP or TCP), or to the local syslog through logger(1). The process helper starts logger(1),
 * because this process never forks.
 */
import {createSocket} from 'node:dgram'
import {once} from 'node:events'
import {existsSync} from 'node:fs'
import {connect, isIPv6} from 'node:net'
import type {Run} from '../ports/executor.ts'
import type {Processor, ProcessorRun, ProcessorStream} from '../ports/processor.ts'
import type {Clock} from '../ports/runtime.ts'
import {LineCutter} from './lines.ts'
import {checkCommon} from './parameters.ts'

/** Bytes of a line; with its header, a message stays below the 1,024 bytes that every receiver accepts. */
const LINE_BYTES_MAX = 800

/** Batch size of one logger(1). */
const LOGGER_BYTES_MAX = 48 * 1024

const PARAMETERS = ['forward']

/** Facility user, severity info. */
const PRIORITY = 14

export interface SyslogOptions {
  readonly nodeName: string
  readonly clock: Clock
  /** `udp://host:port` or `tcp://host:port`; `null` = the local syslog. */
  readonly syslogUrl: string | null
  /** Socket of the local syslog; if it is missing, there is no local syslog. */
  readonly localSocket: string
  /** Runs a program with an input; resolves to `''` or why it failed. `null` = not possible. */
  readonly runProgram: ((argv: readonly string[], input: Uint8Array) => Promise<string>) | null
}

export function createSyslogProcessor(options: SyslogOptions): Processor {
  return {
    name: 'syslog',
    parameters: PARAMETERS,
    fileParameters: [],
    check: (config) => checkCommon(PARAMETERS, config),
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

/** An RFC 5424 message, without framing. */
function messageOf(line: string, run: Run, options: SyslogOptions): Buffer {
  const instant = new Date(options.clock.now()).toISOString()
  const header = `<${PRIORITY}>1 ${instant} ${options.nodeName} belfry ${run.executionId} - -`
  return Buffer.from(`${header} ${run.jobName}: ${printable(line)}`)
}

/** Replaces control characters: they could forge messages or control a terminal that shows the log. */
function printable(line: string): string {
  // eslint-disable-next-line no-control-regex -- matching control characters is the purpose
  return line.replace(/[\u0000-\u0008\u000a-\u001f\u007f]/g, '?')
}

async function openLocal({run}: ProcessorRun, options: SyslogOptions): Promise<ProcessorStream> {
  const {runProgram} = options
  // logger(1) succeeds even if there is no local syslog.
  if (runProgram === null || !existsSync(options.localSocket)) {
    throw new Error('there is no local syslog; set a syslog server with --syslog')
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

/** A connection to a syslog server: datagrams (RFC 5426) or a stream of counted messages (RFC 6587). */
interface SyslogLink {
  /**
   * Resolves when the messages are accepted: by the system for UDP, under the stream's backpressure for TCP.
   */
  send(messages: readonly Buffer[]): Promise<void>
  close(): Promise<void>
}

/** Default ports of syslog. */
const PORTS: Readonly<Record<string, number>> = {'udp:': 514, 'tcp:': 601}

/** Parses `udp://host:port` or `tcp://host:port`. */
export function parseSyslogUrl(
  text: string,
): {protocol: 'udp' | 'tcp'; host: string; port: number} | {problem: string} {
  const url = URL.parse(text)
  const port = url === null ? undefined : PORTS[url.protocol]
  if (
    url === null ||
    port === undefined ||
    url.hostname === '' ||
    !['', '/'].includes(url.pathname)
  ) {
    return {
      problem: `${JSON.stringify(text)} is not a syslog address like udp://host:514 or tcp://host:601`,
    }
  }
  const protocol = url.protocol === 'udp:' ? 'udp' : 'tcp'
  return {
    protocol,
    host: url.hostname.replace(/^\[|\]$/g, ''),
    port: url.port === '' ? port : Number(url.port),
  }
}

/** Rejects when a TCP server is unreachable. For UDP that cannot be known. */
async function openSyslogLink(text: string): Promise<SyslogLink> {
  const target = parseSyslogUrl(text)
  if ('problem' in target) throw new Error(target.problem)
  return target.protocol === 'udp'
    ? openDatagrams(target.host, target.port)
    : openStream(target.host, target.port)
}

async function openDatagrams(host: string, port: number): Promise<SyslogLink> {
  const socket = createSocket({type: isIPv6(host) ? 'udp6' : 'udp4'})
  socket.unref()
  // A late ICMP error belongs to a message that is already sent; the next send reports an error.
  socket.on('error', () => undefined)
  const sendOne = (message: Buffer): Promise<void> =>
    new Promise((resolve, reject) => {
      socket.send(message, port, host, (error) => (error === null ? resolve() : reject(error)))
    })
  const send = async (messages: readonly Buffer[]): Promise<void> => {
    for (const message of messages) await sendOne(message)
  }
  const close = (): Promise<void> => new Promise((resolve) => socket.close(() => resolve()))
  return {send, close}
}

async function openStream(host: string, port: number): Promise<SyslogLink> {
  const socket = connect({host, port})
  let broken: Error | null = null
  await once(socket, 'connect')
  socket.on('error', (error) => {
    broken = error
  })
  // No data is expected; reading detects that the server closes the connection.
  socket.resume()
  return {
    send: (messages) =>
      new Promise((resolve, reject) => {
        if (broken !== null || socket.destroyed)
          return reject(broken ?? new Error('the syslog server closed the connection'))
        const frames = messages.flatMap((message) => [Buffer.from(`${message.length} `), message])
        socket.write(Buffer.concat(frames), (error) =>
          error instanceof Error ? reject(error) : resolve(),
        )
      }),
    close: () =>
      new Promise((resolve) => {
        if (socket.destroyed) return resolve()
        socket.once('close', () => resolve())
        // The system has accepted all data, so the end of the connection is not awaited.
        socket.end(() => socket.destroy())
      }),
  }
}
