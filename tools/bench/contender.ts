/**
 * A server that is compared with another: ours, or any server on this machine with the same HTTP interface.
 * Uses only what both have: jobs are created and deleted one by one. All its jobs have one prefix.
 */
import {randomBytes} from 'node:crypto'

/** Definition without the prefix of its name. */
export interface PlainJob {
  readonly name: string
  readonly schedule: string
  readonly config: Readonly<Record<string, string>>
}

const REQUEST_LIMIT_MS = 30_000
const CLIENTS = 50
const PAGE = 1_000
/** Pages read by `remove`: a server that ignores `_start` must not keep it busy for ever. */
const PAGES_MAX = 1_000
const PREFIX_BYTES = 4
const LOOPBACK = /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/
const NOT_FOUND = 404

/** URL of the API of a peer, ending in `/v1`. Throws unless it is plain HTTP on the loopback. */
export function peerApi(text: string): string {
  const url = URL.parse(text)
  if (url === null || url.protocol !== 'http:' || !LOOPBACK.test(url.hostname))
    throw new Error(
      `--peer must be an http URL on 127.0.0.1, [::1] or localhost: ${text} is not. ` +
        'Start the peer on this machine.',
    )
  return `${url.origin}/v1`
}

export class Contender {
  readonly label: string
  readonly api: string
  /** Start of the names of all its jobs. */
  readonly prefix = `bench-${randomBytes(PREFIX_BYTES).toString('hex')}-`

  /** Time for each job in the last `create`, ms. */
  createMs = 0

  constructor(label: string, api: string) {
    this.label = label
    this.api = api
  }

  /** Creates jobs of the shell executor, many requests at a time. */
  async create(jobs: readonly PlainJob[]): Promise<void> {
    const beganAt = performance.now()
    await forEach(jobs, ({name, schedule, config}) =>
      this.#call('POST', '/jobs', {
        name: `${this.prefix}${name}`,
        schedule,
        executor: 'shell',
        executor_config: config,
      }),
    )
    this.createMs = (performance.now() - beganAt) / jobs.length
  }

  /** Deletes every job with the prefix, also those of interrupted requests. */
  async remove(): Promise<void> {
    let start = 0
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const range = `_start=${start}&_end=${start + PAGE}`
      const reply = await this.#call('GET', `/jobs?${range}&_sort=name&_order=ASC`)
      const names = ((await reply!.json()) as readonly {name: string}[]).map(({name}) => name)
      const own = names.filter((name) => name.startsWith(this.prefix))
      await forEach(own, (name) => this.#call('DELETE', `/jobs/${name}`))
      if (names.length !== PAGE) return
      start += names.length - own.length
    }
    throw new Error(`${this.label} still lists jobs after ${PAGES_MAX} pages`)
  }

  /** False if it is gone, or blocked. */
  async isAnswering(): Promise<boolean> {
    const reply = this.#call('GET', '/')
    return reply.then(
      () => true,
      () => false,
    )
  }

  /** The reply; `null` if the job does not exist. Never follows a redirect to another machine. */
  async #call(method: string, path: string, body?: unknown): Promise<Response | null> {
    const reply = await fetch(`${this.api}${path}`, {
      method,
      redirect: 'error',
      signal: AbortSignal.timeout(REQUEST_LIMIT_MS),
      ...(body === undefined
        ? {}
        : {body: JSON.stringify(body), headers: {'content-type': 'application/json'}}),
    }).catch((cause: unknown) => {
      throw new Error(`${this.label} does not answer ${method} ${path}: ${reason(cause)}`, {cause})
    })
    if (method === 'GET' && reply.ok) return reply
    const text = await reply.text()
    if (reply.ok) return reply
    if (reply.status === NOT_FOUND && method === 'DELETE') return null
    throw new Error(`${this.label} answered ${method} ${path} with ${reply.status}: ${text}`)
  }
}

/** fetch hides the reason in the cause. */
function reason(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error
  return cause instanceof Error ? cause.message || cause.name : String(cause)
}

async function forEach<Item>(
  items: readonly Item[],
  work: (item: Item) => Promise<unknown>,
): Promise<void> {
  let next = 0
  const client = async () => {
    while (next < items.length) await work(items[next++]!)
  }
  const clients = Array.from({length: CLIENTS}, () =>
    client().finally(() => {
      // No other client starts a request after a failure.
      next = items.length
    }),
  )
  const failed = (await Promise.allSettled(clients)).find(({status}) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
}
