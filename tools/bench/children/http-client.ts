/**
 * Clients of the API in a separate process, so that they do not delay the server's event loop. They still
 * share the cores: a latency measured here is an upper bound.
 */
import {Agent, request} from 'node:http'
import {quantile} from '../figures.ts'
import {answerQuestions} from '../link.ts'

/** A keep-alive connection for each client. */
const agent = new Agent({keepAlive: true, maxSockets: 256})

/** A server that hangs fails its measurement. */
const REPLY_LIMIT_MS = 30_000

export interface Latencies {
  readonly count: number
  readonly p50Ms: number
  readonly p99Ms: number
}

export interface ProbeInput {
  readonly url: string
  readonly everyMs: number
  readonly ms: number
}

export interface WalkInput {
  readonly urls: readonly string[]
  readonly count: number
  /** Absent or `''` = none. */
  readonly token?: string
}

export interface SubmitInput {
  readonly url: string
  readonly clients: number
  readonly ms: number
  /** Prefix that makes the job names unique. */
  readonly prefix: string
}

export const handlers = {
  /** Requests `url` at a steady pace, without waiting for the previous reply. */
  probe: async ({url, everyMs, ms}: ProbeInput): Promise<Latencies> => {
    const asked: Promise<number>[] = []
    const beganAt = performance.now()
    for (let index = 0; index * everyMs < ms; index += 1) {
      const waitMs = beganAt + index * everyMs - performance.now()
      if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs))
      asked.push(timed(() => call('GET', url, null, 200)))
    }
    return latencies(await Promise.all(asked))
  },

  /** Requests the URLs in turn, one at a time, `count` requests in all. */
  walk: async ({urls, count, token = ''}: WalkInput): Promise<Latencies> => {
    const durations: number[] = []
    for (let index = 0; index < count; index += 1) {
      const url = urls[index % urls.length]!
      durations.push(await timed(() => call('GET', url, null, 200, token)))
    }
    return latencies(durations)
  },

  /** Submits new jobs; each client submits one after another. */
  submit: async ({url, clients, ms, prefix}: SubmitInput) => {
    const durations: number[] = []
    const beganAt = performance.now()
    const client = async (_: unknown, number: number) => {
      for (let index = 0; performance.now() - beganAt < ms; index += 1) {
        const body = JSON.stringify(plainJob(`${prefix}-${number}-${index}`))
        durations.push(await timed(() => call('POST', url, body, 201)))
      }
    }
    await Promise.all(Array.from({length: clients}, client))
    const perSecond = (durations.length * 1000) / (performance.now() - beganAt)
    return {perSecond, ...latencies(durations)}
  },
}

function plainJob(name: string) {
  return {
    name,
    schedule: '@every 8760h',
    executor: 'shell',
    executor_config: {command: 'true'},
  }
}

async function timed(work: () => Promise<void>): Promise<number> {
  const beganAt = performance.now()
  await work()
  return performance.now() - beganAt
}

function latencies(durations: readonly number[]): Latencies {
  return {
    count: durations.length,
    p50Ms: quantile(durations, 0.5),
    p99Ms: quantile(durations, 0.99),
  }
}

/** Resolves when the whole reply was read; rejects on another status than expected. */
function call(
  method: string,
  url: string,
  body: string | null,
  expected: number,
  token = '',
): Promise<void> {
  const headers = {
    ...(token === '' ? {} : {'x-service-token': token}),
    ...(body === null
      ? {}
      : {'content-type': 'application/json', 'content-length': Buffer.byteLength(body)}),
  }
  return new Promise((resolve, reject) => {
    const sent = request(url, {method, agent, headers}, (response) => {
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode === expected) resolve()
        else reject(new Error(`${method} ${url} answered ${response.statusCode}`))
      })
      response.resume()
    })
    sent.setTimeout(REPLY_LIMIT_MS, () => sent.destroy(new Error(`no reply to ${method} ${url}`)))
    sent.on('error', reject)
    sent.end(body ?? undefined)
  })
}

answerQuestions(handlers)
