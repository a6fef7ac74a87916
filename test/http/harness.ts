/**
 * A whole API on a free port of this machine, over a store in memory and a clock that the test turns. What
 * nodes and the leader would do is done by `launch`, `claim` and `finish` here, straight through the store.
 */
import {mkdtemp, rm} from 'node:fs/promises'
import {request as httpRequest, type Agent, type IncomingHttpHeaders} from 'node:http'
import type {AddressInfo} from 'node:net'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import type {TestContext} from 'node:test'
import type {FastifyInstance} from 'fastify'
import type {FinalStatus} from '../../src/core/execution.ts'
import type {StringMap} from '../../src/core/job.ts'
import {matchTargets} from '../../src/core/target.ts'
import {announceFinished} from '../../src/node/finisher.ts'
import type {Answer, FailedRequest, HttpOptions} from '../../src/http/options.ts'
import {createHttpServer} from '../../src/http/server.ts'
import type {OperationsDependencies} from '../../src/operations/context.ts'
import {createOperations} from '../../src/operations/operations.ts'
import type {ClaimedExecution} from '../../src/ports/node-store.ts'
import type {Store} from '../../src/ports/store.ts'
import {openMemoryStore} from '../../src/store/sqlite/store.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {claimAs} from '../support/single-calls.ts'

export const NODE_NAME = 'node-a'
const NODE_ID = 'id-of-node-a'
const LIFE = 'first-life'
const HOLDER = 'holder'
const LEASE_MS = 3_600_000
const FRESH_MS = 10_000
const TURNS_MAX = 100_000

export interface Reply {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  /** Parsed; `undefined` when it is not JSON. */
  // Tests look at many shapes; what they expect is asserted there.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any
}

export interface CallOptions {
  readonly headers?: Readonly<Record<string, string | string[]>>
  /** Objects are sent as JSON with its content type, texts and bytes as they are without one. */
  readonly body?: unknown
  /** Absent = a connection of its own. */
  readonly agent?: Agent
}

export interface ApiOptions extends Partial<HttpOptions> {
  readonly dependencies?: Partial<OperationsDependencies>
  readonly wrapStore?: (store: Store) => Store
}

/** Starts an API that ends with the test. */
export async function startApi(test: TestContext, options: ApiOptions = {}): Promise<Api> {
  const api = new Api(options)
  await api.open()
  test.after(() => api.close())
  return api
}

export class Api {
  readonly clock = new VirtualClock()
  readonly random = new SeededRandom(7)
  readonly events = new RecordedEvents()
  readonly wakeup = new TestWakeup()
  readonly faults: {error: unknown; request: FailedRequest}[] = []
  readonly answers: Answer[] = []
  readonly store: Store
  left = 0
  leads = true
  app!: FastifyInstance
  url = ''
  readonly #options: ApiOptions
  #directory = ''
  #term = 0

  constructor(options: ApiOptions) {
    this.#options = options
    const store = openMemoryStore({clock: this.clock, random: this.random})
    this.store = options.wrapStore?.(store) ?? store
  }

  get directory(): string {
    return this.#directory
  }

  async open(): Promise<void> {
    this.#directory = await mkdtemp(join(tmpdir(), 'belfry-http-'))
    const {dependencies, wrapStore: _wrapStore, ...http} = this.#options
    const operations = createOperations({
      store: this.store,
      clock: this.clock,
      random: this.random,
      wakeup: this.wakeup,
      events: this.events,
      executors: knownOnly({shell: checkShell, http: () => NOTHING_FOUND}),
      processors: knownProcessors,
      node: {id: NODE_ID, name: NODE_NAME, version: '0.1.0', startedAt: this.clock.now(), tags: {}},
      settings: {
        defaultTimezone: () => 'UTC',
        dataDirectory: this.#directory,
        tokenConfigured: (http.token ?? null) !== null,
        runsAsRoot: false,
      },
      hasTarget: async (tags: StringMap) =>
        matchTargets(tags, await this.store.candidates(), 'one').nodes.length > 0,
      isLeader: () => this.leads,
      announce: (outcomes) => announceFinished(outcomes, this),
      leave: () => void (this.left += 1),
      ...dependencies,
    })
    this.app = createHttpServer(operations, {
      nodeName: NODE_NAME,
      version: '0.1.0',
      token: null,
      allowHosts: [],
      tls: null,
      ui: true,
      clock: this.clock,
      random: this.random,
      events: this.events,
      ready: async () => ({ok: true, checks: {store: 'ok'}}),
      metrics: async () => ({contentType: 'text/plain; version=0.0.4', body: 'up 1\n'}),
      failed: (error, request) => void this.faults.push({error, request}),
      answered: (answer) => void this.answers.push(answer),
      ...http,
    })
    await this.app.listen({host: '127.0.0.1', port: 0})
    this.url = `http://127.0.0.1:${this.port}`
  }

  get port(): number {
    return (this.app.server.address() as AddressInfo).port
  }

  async close(): Promise<void> {
    await this.app.close()
    await this.store.close()
    await rm(this.#directory, {recursive: true, force: true})
  }

  async call(method: string, path: string, options: CallOptions = {}): Promise<Reply> {
    const {headers, bytes} = encoded(options)
    const {agent = false} = options
    return new Promise((resolve, reject) => {
      const sent = httpRequest(
        {host: '127.0.0.1', port: this.port, method, path, headers, agent},
        (response) => {
          const pieces: Buffer[] = []
          response.on('data', (piece: Buffer) => pieces.push(piece))
          response.on('error', reject)
          response.on('end', () => {
            const text = Buffer.concat(pieces).toString('utf8')
            const status = response.statusCode ?? 0
            resolve({status, headers: response.headers, text, json: parsed(text)})
          })
        },
      )
      sent.on('error', reject)
      sent.end(bytes)
    })
  }

  /**
   * Lets time and the network go on until the condition holds; what needs more turns than this never will.
   */
  async eventually(reached: () => boolean, stepMs = 0): Promise<void> {
    for (let turn = 0; !reached(); turn += 1) {
      if (turn > TURNS_MAX) throw new Error(`never reached: ${reached.toString()}`)
      await this.clock.advance(stepMs)
    }
  }

  /** Resolves work that needs timers due at once, and the network. */
  async finishing<Result>(work: Promise<Result>): Promise<Result> {
    let done = false
    const watched = work.finally(() => void (done = true))
    watched.catch(() => {})
    await this.eventually(() => done)
    return watched
  }

  get = (path: string, headers: Record<string, string> = {}) => this.call('GET', path, {headers})
  post = (path: string, body?: unknown, headers: Record<string, string> = {}) =>
    this.call('POST', path, {body, headers})
  delete = (path: string) => this.call('DELETE', path)

  /** Creates a plain job and answers it. */
  async job(name: string, more: Record<string, unknown> = {}) {
    const body = {name, schedule: '@manually', executor: 'shell', ...more}
    const reply = await this.post('/v1/jobs', withCommand(body))
    if (reply.status !== 201) throw new Error(`job not stored: ${reply.text}`)
    return reply.json
  }

  /** This node becomes a member and the leader. */
  async join(tags: StringMap = {}): Promise<void> {
    const member = {
      id: NODE_ID,
      name: NODE_NAME,
      incarnation: LIFE,
      address: '127.0.0.1',
      port: 8080,
      tags: {role: 'belfry', ...tags},
      server: true,
      runs: true,
      version: '0.1.0',
      slots: 16,
    }
    await this.store.join({member}, FRESH_MS)
    const lease = await this.store.acquireLease({holder: HOLDER, nodeId: NODE_ID, ttlMs: LEASE_MS})
    this.#term = lease?.term ?? 0
  }

  /** Launches every waiting request on this node. */
  async launch(): Promise<void> {
    const {requests} = await this.store.loadRequests({afterGroup: 0, limit: 100})
    await this.store.applyLaunches({
      term: this.#term,
      dues: [],
      requests: requests.map(({launch}) => ({
        group: launch.group,
        kind: 'launch',
        targets: [{nodeId: NODE_ID, nodeName: NODE_NAME}],
        forbid: false,
      })),
    })
  }

  async claim(): Promise<readonly ClaimedExecution[]> {
    const {claimed} = await claimAs(this.store, {
      nodeId: NODE_ID,
      incarnation: LIFE,
      token: this.random.id(),
      room: 16,
    })
    return claimed
  }

  /** Runs a job by hand up to the claim. */
  async running(name: string): Promise<ClaimedExecution> {
    await this.post(`/v1/jobs/${name}?force`)
    await this.launch()
    const claimed = await this.claim()
    const found = claimed.find(({execution}) => execution.jobName === name)
    if (found === undefined) throw new Error(`nothing of ${name} was claimed`)
    return found
  }

  async write({execution, token}: ClaimedExecution, offset: number, text: string | Uint8Array) {
    await this.store.appendOutput([
      {key: execution, token, offset, bytes: Buffer.from(text as string)},
    ])
    const id = `${execution.group}-${execution.node}-${execution.attempt}`
    this.events.emit('execution_output', {job: execution.jobName, execution: id, total_bytes: 0})
  }

  async finish(
    {execution, token}: ClaimedExecution,
    status: FinalStatus = 'succeeded',
    end: {text?: string | Uint8Array; head?: string; foot?: string; offset?: number} = {},
  ): Promise<void> {
    const bytes = Buffer.from((end.text ?? '') as string)
    const offset = end.offset ?? 0
    await this.store.finish([
      {
        key: execution,
        token,
        status,
        durationMs: 5,
        exitCode: status === 'succeeded' ? 0 : 1,
        reason: '',
        outputHead: end.head ?? '',
        outputFoot: end.foot ?? '',
        output: {offset, bytes, totalBytes: offset + bytes.length},
        dropOutput: false,
        jitter: 0.5,
      },
    ])
  }
}

function encoded({headers = {}, body}: CallOptions) {
  if (body === undefined) return {headers: {...headers}, bytes: undefined}
  if (typeof body === 'string' || body instanceof Uint8Array) {
    const bytes = Buffer.from(body as string)
    return {headers: {'content-length': String(bytes.length), ...headers}, bytes}
  }
  const bytes = Buffer.from(JSON.stringify(body))
  const own = {'content-type': 'application/json', 'content-length': String(bytes.length)}
  return {headers: {...own, ...headers}, bytes}
}

function withCommand(body: Record<string, unknown>): Record<string, unknown> {
  return 'executor_config' in body ? body : {...body, executor_config: {command: 'true'}}
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Texts and pages are answers too.
    return undefined
  }
}

type Check = (config: StringMap) => {problems: string[]; warnings: string[]}

const NOTHING_FOUND = {problems: [], warnings: []}

function checkShell(config: StringMap): {problems: string[]; warnings: string[]} {
  const warnings = (config.command ?? '') === '' ? ['command: is missing, so runs will fail'] : []
  const problems = config.timeout === 'soon' ? ['timeout: is not a length of time, write 30s'] : []
  return {problems, warnings}
}

function knownOnly(checks: Record<string, Check>): OperationsDependencies['executors'] {
  return {
    names: () => Object.keys(checks).toSorted(),
    get: (name) => {
      const check = checks[name]
      return check === undefined ? null : {name, check}
    },
  }
}

const knownProcessors: OperationsDependencies['processors'] = {
  names: () => ['files', 'log'],
  get: (name) =>
    name === 'files' || name === 'log'
      ? {
          name,
          check: (config) =>
            Object.keys(config)
              .filter((key) => key !== 'forward' && key !== 'log_dir')
              .map((key) => `${key}: is not known`),
        }
      : null,
}

/** Resolves with what a stream has sent once `enough` holds for it; the stream stays open. */
export class Stream {
  text = ''
  ended = false
  status = 0
  headers: IncomingHttpHeaders = {}
  readonly #waiting = new Set<() => void>()
  #close: () => void = () => {}

  static async open(api: Api, path: string, headers: Record<string, string> = {}): Promise<Stream> {
    const stream = new Stream()
    await new Promise<void>((resolve, reject) => {
      const sent = httpRequest(
        {
          host: '127.0.0.1',
          port: api.port,
          path,
          headers: {accept: 'text/event-stream', ...headers},
          agent: false,
        },
        (response) => {
          stream.status = response.statusCode ?? 0
          stream.headers = response.headers
          response.setEncoding('utf8')
          response.on('data', (piece: string) => stream.#heard(piece))
          response.on('close', () => stream.#over())
          response.on('error', () => stream.#over())
          resolve()
        },
      )
      sent.on('error', reject)
      stream.#close = () => sent.destroy()
      sent.end()
    })
    return stream
  }

  async until(enough: (text: string) => boolean): Promise<string> {
    while (!enough(this.text)) {
      if (this.ended) throw new Error(`the stream ended with: ${this.text}`)
      await new Promise<void>((resolve) => this.#waiting.add(resolve))
    }
    return this.text
  }

  async end(): Promise<string> {
    while (!this.ended) await new Promise<void>((resolve) => this.#waiting.add(resolve))
    return this.text
  }

  close(): void {
    this.#close()
  }

  #heard(piece: string): void {
    this.text += piece
    this.#wake()
  }

  #over(): void {
    this.ended = true
    this.#wake()
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve()
    this.#waiting.clear()
  }
}
