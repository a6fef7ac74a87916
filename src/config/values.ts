/**
 * Readers of setting texts, one for each kind. A reader returns the value, or a problem that completes the
 * sentence "`--flag` …". It reads no files and no other settings. A problem never repeats a secret.
 */
import {isIP} from 'node:net'
import ipaddr from 'ipaddr.js'
import type {OptionKind} from './option.ts'
import {backupSchedule} from '../core/backup.ts'
import {NODE_NAME_PATTERN, SYSTEM_TAGS} from '../core/node.ts'
import type {GroupGrant} from '../core/access/person.ts'
import {findZone} from '../core/schedule/zone.ts'
import {parseByteSize} from '../lib/byte-size.ts'
import {parseLength} from '../lib/duration.ts'

export type Reading<Value> =
  {readonly ok: true; readonly value: Value} | {readonly ok: false; readonly problem: string}

/** A listen address. `host` has no brackets. */
export interface Address {
  readonly host: string
  readonly port: number
  /** Only this machine can connect. */
  readonly loopback: boolean
}

export type StoreChoice =
  {readonly engine: 'sqlite'} | {readonly engine: 'postgres'; readonly url: string}

export type Tag = readonly [key: string, value: string]

export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'silent'

/** `auto`: text on a terminal, JSON elsewhere. */
export const LOG_FORMATS = ['auto', 'json', 'pretty'] as const
export type LogFormat = (typeof LOG_FORMATS)[number]

export const NODE_NAME_LENGTH_MAX = 63
const NODE_NAME = new RegExp(`^${NODE_NAME_PATTERN}$`)
const HOST_NAME = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,252}$/
/** Shorter tokens can be guessed. */
const TOKEN_LENGTH_MIN = 16
/** Random tokens of 16 hexadecimal digits fall below this once in 90, those of 32 once in 28,000,000. */
const TOKEN_CHARACTERS_MIN = 8
/** Longer tokens exceed the header limits of proxies. */
const TOKEN_LENGTH_MAX = 1024
const TAG_TEXT_MAX = 256
const SLOTS_MAX = 10_000
const COUNT_MAX = 1_000_000
const DAYS_MAX = 36_500
const LOG_LEVELS: readonly LogLevel[] = ['trace', 'debug', 'info', 'warn', 'error', 'silent']

const good = <Value>(value: Value): Reading<Value> => ({ok: true, value})
const bad = (problem: string): {readonly ok: false; readonly problem: string} => ({
  ok: false,
  problem,
})
const mustBe = (what: string, text: string) => bad(`must be ${what}, not ${JSON.stringify(text)}`)

export const READERS = {
  address: readAddress,
  directory: (text: string) => (text === '' ? bad('must not be empty') : good(text)),
  store: readStore,
  nodeName: (text: string) =>
    NODE_NAME.test(text) ? good(text) : mustBe('1 to 63 letters, digits, ".", "_" or "-"', text),
  tag: readTag,
  token: readToken,
  file: (text: string) => (text === '' ? bad('must not be empty') : good(text)),
  hostName: (text: string) =>
    HOST_NAME.test(text)
      ? good(text.toLowerCase())
      : mustBe('a host name without a port such as jobs.example.org', text),
  origin: readOrigin,
  timezone: (text: string) => {
    const zone = findZone(text)
    return zone === null ? mustBe('an IANA time zone such as Europe/Berlin', text) : good(zone.name)
  },
  slots: (text: string) => readInteger(text, 1, SLOTS_MAX),
  switch: readSwitch,
  grace: (text: string) =>
    text === 'infinite' ? good(Infinity) : readDuration(text, ', or "infinite"'),
  duration: (text: string) => readDuration(text, ''),
  target: (text: string): Reading<'one' | 'all'> =>
    text === 'one' || text === 'all' ? good(text) : mustBe('"one" or "all"', text),
  count: (text: string) => readInteger(text, 1, COUNT_MAX),
  days: (text: string) => readInteger(text, 1, DAYS_MAX),
  size: readSize,
  syslog: readSyslog,
  network: readNetwork,
  account: (text: string) =>
    text === '*' || /^[A-Za-z_][A-Za-z0-9._-]{0,63}(:[A-Za-z_][A-Za-z0-9._-]{0,63})?$/.test(text)
      ? good(text)
      : mustBe('"user", "user:group" or "*"', text),
  logLevel: (text: string) => {
    const level = LOG_LEVELS.find((known) => known === text)
    return level === undefined ? mustBe(`one of ${LOG_LEVELS.join(', ')}`, text) : good(level)
  },
  logFormat: (text: string) => {
    const format = LOG_FORMATS.find((known) => known === text)
    return format === undefined ? mustBe(`one of ${LOG_FORMATS.join(', ')}`, text) : good(format)
  },
  serverUrl: readServerUrl,
  issuer: readIssuer,
  groupGrant: readGroupGrant,
  jobPattern: (text: string) =>
    /^[\p{Ll}0-9_*-]{1,128}$/u.test(text)
      ? good(text)
      : mustBe('the name of a job, in which "*" stands for any text', text),
  schedule: readSchedule,
  text: (text: string) =>
    /^[\x20-\x7e]{1,256}$/.test(text) && text.trim() === text
      ? good(text)
      : mustBe('1 to 256 printable ASCII characters', text),
} satisfies Record<OptionKind, (text: string) => Reading<unknown>>

/** The default zone is a setting of the cluster and known later: the check uses UTC. */
function readSchedule(text: string): Reading<string> {
  const parsed = backupSchedule(text, 'UTC')
  if (!parsed.ok) return bad(`must be a schedule: ${parsed.problem}`)
  return parsed.schedule.kind === 'manual'
    ? bad('must be a schedule with planned times, such as @daily')
    : good(text)
}

/** Type of the value that a kind's reader returns. */
export type ValueOf<Kind extends OptionKind> = Extract<
  ReturnType<(typeof READERS)[Kind]>,
  {readonly ok: true}
>['value']

function readAddress(text: string): Reading<Address> {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text)
  const host = match?.[1] ?? match?.[2] ?? ''
  const port = Number(match?.[3])
  const known = match?.[1] === undefined ? isHost(host) : isIP(host) === 6
  if (match === null || !known || port > 65_535)
    return mustBe('host:port such as 127.0.0.1:8080, [::1]:8080 or 0.0.0.0:8080', text)
  return good({host: host.toLowerCase(), port, loopback: isLoopback(host)})
}

/** Origin in the form of the header `Origin`. */
function readOrigin(text: string): Reading<string> {
  const url = URL.parse(text)
  const isWeb = url?.protocol === 'http:' || url?.protocol === 'https:'
  // A browser never sends a pattern, which would match nothing.
  if (!isWeb || url.href !== `${url.origin}/` || url.host.includes('*'))
    return mustBe('scheme://host or scheme://host:port such as https://ops.example.org', text)
  return good(url.origin)
}

/** Plain HTTP only for a provider on this machine. */
function readIssuer(text: string): Reading<string> {
  const url = URL.parse(text)
  const isPlain = url?.protocol === 'http:' && isLoopback(url.hostname.replaceAll(/[[\]]/g, ''))
  const isBare = url?.username === '' && url.password === '' && url.search === '' && url.hash === ''
  if (isBare && (isPlain || url.protocol === 'https:')) return good(text)
  const wanted = 'an https URL such as https://login.example.org, or http on this machine'
  return text.includes('@') ? bad(`must be ${wanted}`) : mustBe(wanted, text)
}

/** Names of groups may contain `=`, grants never. */
function readGroupGrant(text: string): Reading<GroupGrant> {
  const at = text.lastIndexOf('=')
  const group = text.slice(0, Math.max(at, 0))
  const named = text.slice(at + 1)
  const policy = /^policy:([A-Za-z0-9._-]{1,128})$/.exec(named)?.[1]
  if (group !== '' && policy !== undefined) return good({group, grant: {policy}})
  if (group !== '' && (named === 'management' || named === 'read'))
    return good({group, grant: named})
  return mustBe('group=management, group=read or group=policy:name', text)
}

/** A name or an IPv4 address. A text of digits and dots that is no address is neither. */
function isHost(text: string): boolean {
  if (/^[\d.]+$/.test(text)) return isIP(text) === 4
  return HOST_NAME.test(text)
}

/** Names are not resolved: only `localhost` counts as this machine. */
export function isLoopback(host: string): boolean {
  if (isIP(host) === 0) return host.toLowerCase() === 'localhost'
  return ipaddr.process(host).range() === 'loopback'
}

/** A PostgreSQL URL may name several hosts, which `URL.parse` rejects. The store reads the rest. */
function readStore(text: string): Reading<StoreChoice> {
  if (text === 'sqlite') return good({engine: 'sqlite'})
  if (/^postgres(ql)?:\/\/[^\s/]+(\/\S*)?$/.test(text)) return good({engine: 'postgres', url: text})
  return bad('must be "sqlite" or a URL such as postgres://user:password@host:5432/database')
}

function readTag(text: string): Reading<Tag> {
  const at = text.indexOf('=')
  const key = text.slice(0, at)
  const value = text.slice(at + 1)
  if (at < 1 || value === '' || text.length > TAG_TEXT_MAX || /\s/.test(key))
    return mustBe('key=value such as disk=fast', text)
  if (SYSTEM_TAGS.some((tag) => tag === key))
    return bad(`cannot set the tag "${key}": Belfry sets it. Choose another key`)
  return good([key, value])
}

/** A token is sent in a header, so it is printable ASCII without spaces. */
export function readToken(text: string): Reading<string> {
  if (text === '') return bad(`must not be empty. Use ${TOKEN_LENGTH_MIN} characters or more`)
  if (!/^[\x21-\x7e]+$/.test(text)) return bad('must be printable ASCII without spaces')
  if (text.length < TOKEN_LENGTH_MIN)
    return bad(`must have at least ${TOKEN_LENGTH_MIN} characters`)
  if (text.length > TOKEN_LENGTH_MAX) return bad(`must have at most ${TOKEN_LENGTH_MAX} characters`)
  if (new Set(text).size < TOKEN_CHARACTERS_MIN)
    return bad(
      `must have at least ${TOKEN_CHARACTERS_MIN} different characters, so that it cannot be guessed. ` +
        'Make one with: openssl rand -hex 24',
    )
  return good(text)
}

function readSwitch(text: string): Reading<boolean> {
  if (['true', 'yes', '1'].includes(text.toLowerCase())) return good(true)
  if (['false', 'no', '0'].includes(text.toLowerCase())) return good(false)
  return mustBe('true or false', text)
}

function readDuration(text: string, also: string): Reading<number> {
  const ms = parseLength(text)
  return ms === null ? mustBe(`a duration such as 30s or 1h30m${also}`, text) : good(ms)
}

function readInteger(text: string, least: number, most: number): Reading<number> {
  const value = /^\d{1,9}$/.test(text) ? Number(text) : NaN
  return value >= least && value <= most
    ? good(value)
    : mustBe(`a whole number from ${least} to ${most}`, text)
}

/** Size in bytes. */
function readSize(text: string): Reading<number> {
  const bytes = parseByteSize(text)
  if (bytes === null) return mustBe('a size such as 2GiB, 500MB or 1048576', text)
  return Number.isSafeInteger(bytes) ? good(bytes) : mustBe('a size below 8 PiB', text)
}

function readSyslog(text: string): Reading<string> {
  const url = URL.parse(text)
  const isValid =
    url !== null &&
    (url.protocol === 'udp:' || url.protocol === 'tcp:') &&
    url.hostname !== '' &&
    ['', '/'].includes(url.pathname) &&
    url.username === ''
  return isValid ? good(text) : mustBe('udp://host:port or tcp://host:port', text)
}

function readNetwork(text: string): Reading<string> {
  if (isIP(text) !== 0 || ipaddr.isValidCIDR(text)) return good(text)
  return mustBe('an address or a range such as 10.0.0.0/8', text)
}

/**
 * The origin of a server; without a scheme it is HTTP, as for clients. The URL has no other path than `/v1`,
 * and no secret: logs show the URL.
 */
function readServerUrl(text: string): Reading<string> {
  const url = URL.parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(text) ? text : `http://${text}`)
  const isValid =
    url !== null &&
    (url.protocol === 'http:' || url.protocol === 'https:') &&
    url.username === '' &&
    url.password === '' &&
    ['', '/', '/v1', '/v1/'].includes(url.pathname) &&
    url.search === '' &&
    url.hash === ''
  if (isValid) return good(url.origin)
  const wanted = 'the URL of a server such as https://belfry.example.org:8080'
  // Text with an "@" may contain a password.
  return text.includes('@') ? bad(`must be ${wanted}`) : mustBe(wanted, text)
}
