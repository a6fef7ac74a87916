/** Listening on a configured address, and the reasons why that fails, in words for the operator. */
import {lookup} from 'node:dns/promises'
import type {Server} from 'node:http'
import type {AddressInfo} from 'node:net'
import {Server as TlsServer} from 'node:tls'
import type {Address} from '../config/values.ts'
import {listenAlso} from '../http/security/connections.ts'
import {codeOf} from '../lib/error.ts'
import {StartRefused} from './start-refused.ts'

export interface Bound {
  readonly url: string
  readonly address: string
  readonly port: number
}

/** `flag` sets the address. Throws `StartRefused` if it cannot be used. */
export async function bind(
  server: Server,
  requested: Address,
  flag: string,
  listen: () => Promise<unknown>,
): Promise<Bound> {
  try {
    await listen()
  } catch (error) {
    throw new StartRefused(listenProblem(error, requested, flag), {cause: error})
  }
  const {address, port} = server.address() as AddressInfo
  if (requested.host === 'localhost') await listenOnOtherLoopback(server, address, port)
  const host = requested.host.includes(':') ? `[${requested.host}]` : requested.host
  const scheme = server instanceof TlsServer ? 'https' : 'http'
  return {url: `${scheme}://${host}:${port}`, address, port}
}

/** Clients resolve `localhost` to any of its addresses. Best effort: there may be only one of them. */
async function listenOnOtherLoopback(server: Server, first: string, port: number): Promise<void> {
  const found = await lookup('localhost', {all: true})
  const host = found.find(({address}) => address !== first)?.address
  if (host !== undefined) await listenAlso(server, {host, port})
}

function listenProblem(error: unknown, {host, port}: Address, flag: string): string {
  const code = codeOf(error)
  const problem = `${flag === '--http' ? 'The server' : 'The agent'} cannot listen on ${host}:${port}`
  if (code === 'EADDRINUSE')
    return `${problem}: the port is in use. Stop the process that uses it, or choose another ${flag}.`
  if (code === 'EACCES')
    return `${problem}: this user may not use the port. Choose a port above 1023 with ${flag}.`
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
    return `${problem}: ${host} is not an address of this machine. Choose another ${flag}.`
  return `${problem}: ${code}. Choose another ${flag}.`
}
