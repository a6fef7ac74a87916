/**
 * A way to a syslog server: datagrams (RFC 5426), or a stream with counted messages (RFC 6587). Formats
 * nothing.
 */
import {createSocket} from 'node:dgram'
import {once} from 'node:events'
import {connect, isIPv6} from 'node:net'

export interface SyslogLink {
  /** Resolves when they were taken: by the system for datagrams, with the stream's pressure for TCP. */
  send(messages: readonly Buffer[]): Promise<void>
  close(): Promise<void>
}

/** Where syslog listens unless told otherwise: 514 for datagrams, 601 for streams. */
const PORTS: Readonly<Record<string, number>> = {'udp:': 514, 'tcp:': 601}

/** Host and port of `udp://host:port` or `tcp://host:port`, or a sentence that says what is wrong. */
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

/** Rejects when the server cannot be reached, as far as that can be known (never for datagrams). */
export async function openSyslogLink(text: string): Promise<SyslogLink> {
  const target = parseSyslogUrl(text)
  if ('problem' in target) throw new Error(target.problem)
  return target.protocol === 'udp'
    ? openDatagrams(target.host, target.port)
    : openStream(target.host, target.port)
}

async function openDatagrams(host: string, port: number): Promise<SyslogLink> {
  const socket = createSocket({type: isIPv6(host) ? 'udp6' : 'udp4'})
  socket.unref()
  // A refusal that comes back later belongs to a message that is gone: the next send tells.
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
  // Nothing is expected back; reading notices when the server goes.
  socket.resume()
  return {
    send: (messages) =>
      new Promise((resolve, reject) => {
        if (broken !== null || socket.destroyed)
          return reject(broken ?? new Error('the syslog server hung up'))
        const frames = messages.flatMap((message) => [Buffer.from(`${message.length} `), message])
        socket.write(Buffer.concat(frames), (error) =>
          error instanceof Error ? reject(error) : resolve(),
        )
      }),
    close: () =>
      new Promise((resolve) => {
        if (socket.destroyed) return resolve()
        socket.once('close', () => resolve())
        // Everything was taken by the system; a server that never hangs up is not waited for.
        socket.end(() => socket.destroy())
      }),
  }
}
