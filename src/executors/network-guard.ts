/**
 * Which network addresses a job may be sent to. Judges the address a connection really goes to, never the
 * name, so a name that resolves to something else the second time gains nothing. Opens no connection
 * itself.
 */
import {lookup, type LookupAddress, type LookupOptions} from 'node:dns'
import {isIP, type Socket} from 'node:net'
import ipaddr from 'ipaddr.js'
import {buildConnector} from 'undici'

type Address = ipaddr.IPv4 | ipaddr.IPv6
type Range = readonly [Address, number]

/** Link-local ranges, and where clouds answer with the machine's own credentials: no setting opens these. */
const NEVER = [
  '169.254.0.0/16',
  'fe80::/10',
  'fd00:ec2::/32', // Amazon
  'fd20:ce::254/128', // Google
  '100.100.100.200/32', // Alibaba
  '192.0.0.192/32', // Oracle
  '168.63.129.16/32', // Azure
].map((text) => parseRange(text)!)

/**
 * IPv6 ranges whose addresses carry an IPv4 address, and the byte it starts at: NAT64, 6to4,
 * IPv4-compatible.
 */
const CARRIERS: readonly (readonly [Range, number])[] = [
  [parseRange('64:ff9b::/96')!, 12],
  [parseRange('2002::/16')!, 2],
  [parseRange('::/96')!, 12],
]

/** An address or a CIDR range; `null` when `text` is neither. */
export function parseRange(text: string): Range | null {
  if (ipaddr.isValidCIDR(text)) return ipaddr.parseCIDR(text)
  if (isIP(text) === 0) return null
  const address = ipaddr.parse(text)
  return [address, address.kind() === 'ipv4' ? 32 : 128]
}

export class AddressRefused extends Error {
  override readonly name = 'AddressRefused'
}

export class NetworkGuard {
  readonly #allow: readonly Range[]
  readonly #deny: readonly Range[]

  /** Throws a sentence when a range is none. `allow` are exceptions to `deny`. */
  constructor(allow: readonly string[], deny: readonly string[]) {
    this.#allow = allow.map((text) => mustParse(text, '--net-allow'))
    this.#deny = deny.map((text) => mustParse(text, '--net-deny'))
  }

  /** Why `text`, an IP address, may not be connected to; `null` when it may. */
  refusal(text: string): string | null {
    if (isIP(text) === 0) return `${text} is not an address`
    const bare = text.split('%')[0]!
    const forms = formsOf(ipaddr.process(bare))
    if (forms.some((form) => contains(NEVER, form))) {
      return `${bare} is a link-local or cloud metadata address, to which no job may connect`
    }
    const denied = forms.some((form) => contains(this.#deny, form) && !contains(this.#allow, form))
    return denied ? `${bare} is denied on this node (--net-deny)` : null
  }

  /** A connector for undici that reaches allowed addresses only. `options` as for `buildConnector`. */
  connector(options: buildConnector.BuildOptions): buildConnector.connector {
    const guardedLookup = (
      host: string,
      lookupOptions: LookupOptions,
      callback: (error: Error | null, addresses: LookupAddress[]) => void,
    ): void => this.#lookUp(host, lookupOptions, callback)
    const connect = buildConnector({
      ...options,
      ...({lookup: guardedLookup, autoSelectFamily: true} as object),
    })
    return (target, callback) => {
      const host = target.hostname.replace(/^\[|\]$/g, '')
      // An address needs no look-up, so it is judged here.
      const refusal = isIP(host) === 0 ? null : this.refusal(host)
      if (refusal !== null) return callback(new AddressRefused(refusal), null)
      connect(target, (error, socket) => {
        if (error !== null) return callback(error, null)
        const late = this.#refusalOf(socket)
        if (late === null) return callback(null, socket)
        socket.destroy()
        callback(new AddressRefused(late), null)
      })
    }
  }

  /** The last word, about the connection that is there. */
  #refusalOf(socket: Socket): string | null {
    return socket.remoteAddress === undefined
      ? 'the connection was lost'
      : this.refusal(socket.remoteAddress)
  }

  #lookUp(
    host: string,
    options: LookupOptions,
    callback: (error: Error | null, addresses: LookupAddress[]) => void,
  ): void {
    lookup(host, {...options, all: true}, (error, addresses) => {
      if (error !== null) return callback(error, [])
      const open = addresses.filter((each) => this.refusal(each.address) === null)
      if (open.length > 0) return callback(null, open)
      const refusal = this.refusal(addresses[0]?.address ?? '') ?? 'it has no address'
      callback(new AddressRefused(`${host}: ${refusal}`), [])
    })
  }
}

function mustParse(text: string, flag: string): Range {
  const range = parseRange(text)
  if (range === null)
    throw new Error(`${flag} ${JSON.stringify(text)} is not a CIDR range like 10.0.0.0/8`)
  return range
}

/** The address itself and the IPv4 address it may carry. */
function formsOf(address: Address): Address[] {
  const forms: Address[] = [address]
  for (const [range, offset] of CARRIERS) {
    if (!contains([range], address)) continue
    forms.push(ipaddr.fromByteArray(address.toByteArray().slice(offset, offset + 4)))
  }
  return forms
}

function contains(ranges: readonly Range[], address: Address): boolean {
  return ranges.some(([base, bits]) => base.kind() === address.kind() && address.match(base, bits))
}
