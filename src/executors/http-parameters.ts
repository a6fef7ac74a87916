/**
 * Parses the parameters of an http job into a request and the expected response, or into problems. Validation
 * and start use the same parser. It has no side effects.
 */
import {isAbsolute} from 'node:path'
import type {StringMap} from '../core/job.ts'
import {fillSecrets, fillUrlSecrets, secretsIn} from '../core/secret.ts'
import {parseLength} from '../lib/duration.ts'
import {type HeaderPair, headerProblem, splitHeader} from '../lib/http-header.ts'
import {withDefaults} from './parameters.ts'

export const HTTP_PARAMETERS = {
  url: '',
  method: 'GET',
  headers: '',
  body: '',
  timeout: '30s',
  expectCode: '2xx',
  expectBody: '',
  debug: 'false',
  tlsNoVerifyPeer: 'false',
  tlsCertificateFile: '',
  tlsCertificateKeyFile: '',
  tlsRootCAsFile: '',
}

type Given = Readonly<Record<keyof typeof HTTP_PARAMETERS, string>>

export interface HttpPlan {
  /** URL without user and password; `null` when it is missing or invalid. */
  readonly url: URL | null
  readonly method: Method
  readonly headers: readonly HeaderPair[]
  /** `''` = none. */
  readonly body: string
  readonly timeoutMs: number
  /** Inclusive. */
  readonly expectedCodes: readonly (readonly [from: number, to: number])[]
  /** `''` = anything. */
  readonly expectBody: string
  readonly debug: boolean
  readonly verifyPeer: boolean
  /** Absolute paths; `''` = none. */
  readonly certificateFile: string
  readonly keyFile: string
  readonly rootsFile: string
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const
export type Method = (typeof METHODS)[number]

/** Parameters that may name secrets. */
export const HTTP_SECRETS = ['url', 'headers', 'body'] as const

/** Collects the problems of all parameters. A secret without a value stays a reference. */
export function readHttp(
  config: StringMap,
  secrets: StringMap = {},
): {plan: HttpPlan; problems: string[]} {
  const problems: string[] = []
  const given = withDefaults(HTTP_PARAMETERS, config)
  const address = readUrl(fillUrlSecrets(given.url, secrets), problems)
  const plan = {
    url: address.url,
    method: readMethod(given.method, problems),
    headers: [...address.headers, ...readHeaders(given.headers, secrets, problems)],
    body: fillSecrets(given.body, secrets),
    timeoutMs: readTimeout(given.timeout, problems),
    expectedCodes: readCodes(given.expectCode, problems),
    expectBody: given.expectBody,
    debug: readFlag(given, 'debug', problems),
    verifyPeer: !readFlag(given, 'tlsNoVerifyPeer', problems),
    certificateFile: readPath(given, 'tlsCertificateFile', problems),
    keyFile: readPath(given, 'tlsCertificateKeyFile', problems),
    rootsFile: readPath(given, 'tlsRootCAsFile', problems),
  }
  if ((plan.certificateFile === '') !== (plan.keyFile === '')) {
    problems.push('tlsCertificateFile and tlsCertificateKeyFile must be set together')
  }
  if (plan.body !== '' && ['GET', 'HEAD'].includes(plan.method)) {
    problems.push(`body cannot be sent with ${plan.method}: set method to POST, PUT or PATCH`)
  }
  return {plan, problems}
}

/** User and password in the URL become a header, so no message or redirect shows them. */
function readUrl(text: string, problems: string[]): {url: URL | null; headers: HeaderPair[]} {
  if (text === '') return {url: null, headers: []}
  const url = URL.parse(text)
  if (url === null || !['http:', 'https:'].includes(url.protocol)) {
    problems.push('url must be an absolute URL that begins with http:// or https://')
    return {url: null, headers: []}
  }
  const headers: HeaderPair[] = []
  if (url.username !== '' || url.password !== '') {
    const credentials = readCredentials(url)
    if (credentials === null) problems.push('url must percent-encode its user and password')
    else headers.push(['Authorization', `Basic ${Buffer.from(credentials).toString('base64')}`])
    url.username = ''
    url.password = ''
  }
  url.hash = ''
  return {url, headers}
}

function readCredentials(url: URL): string | null {
  try {
    return `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`
  } catch {
    return null // a "%" that does not start an escape
  }
}

function readMethod(text: string, problems: string[]): Method {
  const method = METHODS.find((each) => each === text.toUpperCase())
  if (method !== undefined) return method
  problems.push(`method must be one of ${METHODS.join(', ')}, not ${JSON.stringify(text)}`)
  return 'GET'
}

function readHeaders(text: string, secrets: StringMap, problems: string[]): HeaderPair[] {
  const pairs: HeaderPair[] = []
  const named = secretsIn(text)
  for (const written of splitHeaders(text.trim())) {
    // Escaped in JSON: the right to use it is decided by the text.
    if (written !== null && secretsIn(written[1]).some((name) => !named.includes(name)))
      problems.push('headers must name a secret without escapes, as ${secret:NAME}')
    const pair = written === null ? null : filled(written, secrets)
    const problem = pair === null ? 'headers must be "Name: value" texts' : headerProblem(pair)
    if (problem === null) pairs.push(pair!)
    else problems.push(problem)
  }
  return pairs
}

function filled([name, value]: HeaderPair, secrets: StringMap): HeaderPair {
  return [name, fillSecrets(value, secrets)]
}

/** `null` for an entry that is not a pair. */
function splitHeaders(text: string): (HeaderPair | null)[] {
  if (text === '') return []
  if (!/^[[{]/.test(text))
    return text
      .split(/\r?\n/)
      .filter((line) => line.trim() !== '')
      .map(splitHeader)
  const value = parseJson(text)
  if (Array.isArray(value))
    return value.map((each) => (typeof each === 'string' ? splitHeader(each) : null))
  if (typeof value !== 'object' || value === null) return [null]
  return Object.entries(value).map(([name, each]) =>
    typeof each === 'string' ? [name, each] : null,
  )
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null // reported as an entry that is not a pair
  }
}

function readTimeout(text: string, problems: string[]): number {
  const timeoutMs = /^\d{1,9}(\.\d{1,3})?$/.test(text) ? Number(text) * 1000 : parseLength(text)
  if (timeoutMs !== null && timeoutMs > 0) return Math.max(1, Math.round(timeoutMs))
  problems.push(
    `timeout must be seconds, or a duration like 30s or 1m30s, longer than 0, not ${JSON.stringify(text)}`,
  )
  return 0
}

function readCodes(text: string, problems: string[]): (readonly [number, number])[] {
  const ranges: (readonly [number, number])[] = []
  for (const part of (text.trim() || HTTP_PARAMETERS.expectCode).split(',')) {
    const match = /^(?:([1-5])xx|([1-5]\d\d)(?:-([1-5]\d\d))?)$/i.exec(part.trim())
    if (match === null) {
      problems.push(
        `expectCode must be codes like 200,201 or 2xx or 200-204, not ${JSON.stringify(text)}`,
      )
    } else if (match[1] !== undefined)
      ranges.push([Number(match[1]) * 100, Number(match[1]) * 100 + 99])
    else ranges.push([Number(match[2]), Number(match[3] ?? match[2])])
  }
  return ranges
}

function readFlag(given: Given, name: keyof Given, problems: string[]): boolean {
  const text = given[name].toLowerCase()
  if (!['true', 'false'].includes(text)) {
    problems.push(`${name} must be "true" or "false", not ${JSON.stringify(given[name])}`)
  }
  return text === 'true'
}

function readPath(given: Given, name: keyof Given, problems: string[]): string {
  const path = given[name]
  if (path === '' || (isAbsolute(path) && !path.includes('\0'))) return path
  problems.push(`${name} must be an absolute path, not ${JSON.stringify(path)}`)
  return ''
}
