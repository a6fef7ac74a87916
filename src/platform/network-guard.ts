/**
 * Access control for network addresses that users name: targets of http jobs and channels of notices. It
 * checks the address of the connection, never the host name, so DNS rebinding has no effect.
 */
import {lookup, type LookupAddress, type LookupOptions} from 'node:dns'
import {connect as connectSocket, isIP, type Socket} from 'node:net'
import ipaddr from 'ipaddr.js'
import type {buildConnector} from 'undici'

type Address = ipaddr.IPv4 | ipaddr.IPv6
type Range = readonly [Address, number]

/** Link-local ranges and metadata services that return the machine's credentials: always denied. */
const NEVER = [
  '169.254.0.0/16',
  'fe80::/10',
  'fd00:ec2::/32', // Amazon
  'fd20:ce::254/128', // Google
  '100.100.100.200/32', // Alibaba
  '192.0.0.192/32', // Oracle
  '168.63.129.16/32', // Azure
].map((text) => parseRange(text)!)

/** IPv6 ranges that embed an IPv4 address, and the places of its bytes. */
const CARRIERS: readonly (readonly [range: Range, bytes: readonly number[]])[] = [
  [parseRange('64:ff9b::/96')!, [12, 13, 14, 15]], // NAT64
  // NAT64 of a local network (RFC 8215): its prefix may have 48, 56, 64 or 96 bits (RFC 6052).
  [parseRange('64:ff9b:1::/48')!, [6, 7, 9, 10]],
  [parseRange('64:ff9b:1::/48')!, [7, 9, 10, 11]],
  [parseRange('64:ff9b:1::/48')!, [9, 10, 11, 12]],
  [parseRange('64:ff9b:1::/48')!, [12, 13, 14, 15]],
  [parseRange('::ffff:0:0:0/96')!, [12, 13, 14, 15]], // SIIT
  [parseRange('2002::/16')!, [2, 3, 4, 5]], // 6to4
  [parseRange('::/96')!, [12, 13, 14, 15]], // IPv4-compatible
]

/** A connection to an unspecified address reaches this machine. */
const LOOPBACK = {ipv4: ipaddr.parse('127.0.0.1'), ipv6: ipaddr.parse('::1')}

/** Parses an address or a CIDR range; `null` when `text` is neither. */
export function parseRange(text: string): Range | null {
  if (ipaddr.isValidCIDR(text)) return ipaddr.parseCIDR(text)
  if (isIP(text) === 0) return null
  const address = ipaddr.parse(text)
  return [address, address.kind() === 'ipv4' ? 32 : 128]
}

export class AddressDenied extends Error {
  override readonly name = 'AddressDenied'
}

/** Finds all addresses of a host name, as `dns.lookup` does. */
export type LookUp = (
  host: string,
  options: LookupOptions & {readonly all: true},
  callback: (error: Error | null, addresses: LookupAddress[]) => void,
) => void

export class NetworkGuard {
  readonly #allow: readonly Range[]
  readonly #deny: readonly Range[]
  readonly #lookUpAll: LookUp

  /** `allow` are exceptions to `deny`. Throws for an invalid range. */
  constructor(allow: readonly string[], deny: readonly string[], lookUpAll: LookUp = lookup) {
    this.#allow = allow.map((text) => mustParse(text, '--net-allow'))
    this.#deny = deny.map((text) => mustParse(text, '--net-deny'))
    this.#lookUpAll = lookUpAll
  }

  /** Why connections to the IP address `text` are denied; `null` = allowed. */
  denial(text: string): string | null {
    if (isIP(text) === 0) return `${text} is not an IP address`
    const bare = text.split('%')[0]!
    const forms = formsOf(ipaddr.process(bare))
    if (forms.some((form) => contains(NEVER, form))) {
      return `${bare} is a link-local or cloud metadata address; jobs cannot connect to it`
    }
    const denied = forms.some((form) => contains(this.#deny, form) && !contains(this.#allow, form))
    return denied ? `${bare} is denied on this node (--net-deny)` : null
  }

  /** A connector that connects to allowed addresses only. `build` is undici's `buildConnector`. */
  connector(
    build: typeof buildConnector,
    options: buildConnector.BuildOptions,
  ): buildConnector.connector {
    const connect = build({
      ...options,
      ...({lookup: this.#guardedLookUp(), autoSelectFamily: true} as object),
    })
    return (target, callback) => {
      const denial = this.#denialOfLiteral(target.hostname)
      if (denial !== null) return callback(new AddressDenied(denial), null)
      connect(target, (error, socket) => {
        if (error !== null) return callback(error, null)
        const late = this.#denialOf(socket)
        if (late === null) return callback(null, socket)
        socket.destroy()
        callback(new AddressDenied(late), null)
      })
    }
  }

  /**
   * Opens a connection without TLS to an allowed address. Rejects with `AddressDenied` or a system
   * error.
   */
  async connect(host: string, port: number, signal: AbortSignal): Promise<Socket> {
    signal.throwIfAborted()
    const denial = this.#denialOfLiteral(host)
    if (denial !== null) throw new AddressDenied(denial)
    const {promise, resolve, reject} = Promise.withResolvers<Socket>()
    const socket = connectSocket({
      host: withoutBrackets(host),
      port,
      lookup: this.#guardedLookUp(),
      autoSelectFamily: true,
    })
    const abort = () => reject(signal.reason)
    signal.addEventListener('abort', abort, {once: true})
    socket.once('error', reject)
    socket.once('connect', () => {
      const late = this.#denialOf(socket)
      if (late === null) resolve(socket)
      else reject(new AddressDenied(late))
    })
    try {
      return await promise
    } catch (error) {
      socket.destroy()
      throw error
    } finally {
      signal.removeEventListener('abort', abort)
    }
  }

  /**
   * An address needs no look-up, so it is checked before the connection. `null` = allowed, or a host
   * name.
   */
  #denialOfLiteral(host: string): string | null {
    const bare = withoutBrackets(host)
    return isIP(bare) === 0 ? null : this.denial(bare)
  }

  /** Checks the established connection. */
  #denialOf(socket: Socket): string | null {
    return socket.remoteAddress === undefined
      ? 'the connection was lost'
      : this.denial(socket.remoteAddress)
  }

  /** Leaves out denied addresses; the connection uses the others without another look-up. */
  #guardedLookUp() {
    return (
      host: string,
      options: LookupOptions,
      callback: (error: Error | null, addresses: LookupAddress[]) => void,
    ): void =>
      this.#lookUpAll(host, {...options, all: true}, (error, addresses) => {
        if (error !== null) return callback(error, [])
        const open = addresses.filter((each) => this.denial(each.address) === null)
        if (open.length > 0) return callback(null, open)
        const denial = this.denial(addresses[0]?.address ?? '') ?? 'it has no address'
        callback(new AddressDenied(`${host}: ${denial}`), [])
      })
  }
}

/** True for 127.0.0.0/8 and ::1, also mapped: data to it never leaves this machine. */
export function isLoopback(text: string): boolean {
  return isIP(text) !== 0 && ipaddr.process(text.split('%')[0]!).range() === 'loopback'
}

/** URLs write an IPv6 address in brackets. */
function withoutBrackets(host: string): string {
  return host.replace(/^\[|\]$/g, '')
}

function mustParse(text: string, flag: string): Range {
  const range = parseRange(text)
  if (range === null)
    throw new Error(`${flag} ${JSON.stringify(text)} is not a CIDR range like 10.0.0.0/8`)
  return range
}

/** The address, the IPv4 addresses embedded in it, and the loopback address that it stands for. */
function formsOf(address: Address): Address[] {
  const forms: Address[] = [address]
  for (const [range, places] of CARRIERS) {
    if (!contains([range], address)) continue
    const bytes = address.toByteArray()
    forms.push(ipaddr.fromByteArray(places.map((place) => bytes[place]!)))
  }
  const unspecified = forms.filter((form) => form.range() === 'unspecified')
  return [...forms, ...unspecified.map((form) => LOOPBACK[form.kind()])]
}

function contains(ranges: readonly Range[], address: Address): boolean {
  return ranges.some(([base, bits]) => base.kind() === address.kind() && address.match(base, bits))
}
