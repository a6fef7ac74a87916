/**
 * Sends requests of channels. Follows no redirect, uses no proxy, and never reads the body of an answer.
 */
import {once} from 'node:events'
import {isIP, type Socket} from 'node:net'
import {connect as connectTls} from 'node:tls'
import {callbackify} from 'node:util'
import type {Agent, buildConnector} from 'undici'
import {type Delivery, judgeHttp, parseRetryAfter} from '../../core/notice-delivery.ts'
import type {Attempt} from './attempt.ts'
import type {HttpRequest} from './kind.ts'

/** All header fields of an answer together. */
const HEADER_BYTES_MAX = 16 * 1024

/** Imported by the first request: a server without channels needs none of it. */
const undici = async () => (await import('undici')).default

/**
 * Sends one after the other. A refusal of one does not keep the others back; a receiver that fails gets no
 * more. Rejects if there is no answer.
 */
export async function sendRequests(
  requests: readonly HttpRequest[],
  attempt: Attempt,
): Promise<Delivery> {
  let worst: Delivery | null = null
  for (const request of requests) {
    const delivery = await sendRequest(request, attempt)
    if (delivery.outcome === 'retry') return delivery
    if (worst?.outcome !== 'permanent') worst = delivery
  }
  return worst ?? {outcome: 'sent', cause: 'this channel sends nothing for such a message'}
}

/** Each request has its own connection, so that each connection is checked. */
async function sendRequest(
  {method, url, headers, body}: HttpRequest,
  attempt: Attempt,
): Promise<Delivery> {
  const {request} = await undici()
  const agent = await openAgent(attempt)
  try {
    const answer = await request(url, {
      dispatcher: agent,
      method,
      headers: ['user-agent', 'belfry', ...headers.flat()],
      body: body === '' ? null : body,
      signal: attempt.signal,
    })
    // The status is the whole answer. An error of the rest changes nothing.
    answer.body.on('error', () => undefined).destroy()
    const retryAfter = answer.headers['retry-after']
    const retryAfterMs =
      typeof retryAfter === 'string' ? parseRetryAfter(retryAfter, attempt.clock.now()) : null
    return judgeHttp(answer.statusCode, retryAfterMs)
  } finally {
    await agent.destroy()
  }
}

async function openAgent(attempt: Attempt): Promise<Agent> {
  const {Agent} = await undici()
  const open = callbackify((target: buildConnector.Options) => openSocket(target, attempt))
  return new Agent({
    connect: (target, callback) =>
      open(target, (error, socket) =>
        error === null ? callback(null, socket) : callback(error, null),
      ),
    maxHeaderSize: HEADER_BYTES_MAX,
    pipelining: 1,
    connections: 1,
  })
}

async function openSocket(target: buildConnector.Options, attempt: Attempt): Promise<Socket> {
  const timer = attempt.startConnecting()
  try {
    return await connect(target, attempt)
  } finally {
    timer.cancel()
  }
}

async function connect(
  {hostname, port, protocol}: buildConnector.Options,
  {addresses, roots, signal}: Attempt,
): Promise<Socket> {
  const host = hostname.replace(/^\[|\]$/g, '')
  const isSecure = protocol === 'https:'
  const socket = await addresses.connect(host, Number(port) || (isSecure ? 443 : 80), signal)
  if (!isSecure) return socket
  const secured = connectTls({
    socket,
    host,
    ...(isIP(host) === 0 ? {servername: host} : {}),
    ...(roots === undefined ? {} : {ca: roots}),
  })
  try {
    await once(secured, 'secureConnect', {signal})
  } catch (error) {
    secured.destroy()
    throw error
  }
  return secured
}
