/**
 * A complete HTTP API on a free local port, with a store in memory and a virtual clock. `launch`, `claim` and
 * `finish` play the leader and the nodes, directly through the store.
 */
import assert from 'node:assert/strict'
import {randomBytes} from 'node:crypto'
import {mkdtemp, rm} from 'node:fs/promises'
import {request as httpRequest, type Agent, type IncomingHttpHeaders} from 'node:http'
import type {AddressInfo} from 'node:net'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, type TestContext} from 'node:test'
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {checkedLimits, type Limits} from '../../src/config/limits.ts'
import type {FinalStatus} from '../../src/core/execution.ts'
import type {StringMap} from '../../src/core/job.ts'
import {countTargets} from '../../src/core/target.ts'
import {HTTP_PARAMETERS} from '../../src/executors/http-parameters.ts'
import {SHELL_PARAMETERS} from '../../src/executors/shell-parameters.ts'
import {announceFinished} from '../../src/node/finisher.ts'
import {errorsOf, REQUEST_ERRORS, type RouteDescription} from '../../src/http/api/describe-route.ts'
import {asRefusal} from '../../src/http/api/errors.ts'
import {
  CLOSE_TIMEOUT_MS,
  type FailedRequest,
  type HttpOptions,
  type SentReply,
} from '../../src/http/options.ts'
import {createHttpServer} from '../../src/http/server.ts'
import type {OperationsDependencies} from '../../src/operations/context.ts'
import {AccessTable} from '../../src/identity/token-cache.ts'
import {openChannels} from '../../src/notices/channels/open-channels.ts'
import {NetworkGuard} from '../../src/platform/network-guard.ts'
import {SecretVault} from '../../src/platform/secret-vault.ts'
import {createOperations} from '../../src/operations/operations.ts'
import type {ClaimedExecution} from '../../src/ports/node-store.ts'
import type {Store} from '../../src/ports/store.ts'
import {openMemoryStore} from '../../src/store/sqlite/store.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {clientStoreOf} from '../support/client-store.ts'
import {DEFINITION_TRAITS} from '../support/definition-traits.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {TestWakeup} from '../support/test-wakeup.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {claimAs} from '../support/single-calls.ts'
import {SOON_MS} from '../support/waiting.ts'

export const NODE_NAME = 'node-a'
export const SESSION_IDLE_MS = 1_800_000
export const SESSION_MAX_MS = 7_200_000
const NODE_ID = 'id-of-node-a'
export const INCARNATION = 'first-incarnation'
const HOLDER = 'holder'
const LEASE_MS = 3_600_000
const FRESH_MS = 10_000
export const RUNS_PER_MINUTE = 60
const CLOSE_TURNS_MAX = 1_000
const TURNS_MAX = 100_000

export interface Reply {
  readonly status: number
  readonly headers: IncomingHttpHeaders
  readonly text: string
  /** Parsed; `undefined` when it is not JSON. */
  // Tests read many shapes and assert on their content.
  // oxlint-disable-next-line typescript/no-explicit-any
  readonly json: any
}

export interface CallOptions {
  readonly headers?: Readonly<Record<string, string | string[]>>
  /** Objects are sent as JSON with a content type, strings and bytes unchanged without one. */
  readonly body?: unknown
  /** Absent = a new connection. */
  readonly agent?: Agent
}

export interface ApiOptions extends Partial<Omit<HttpOptions, 'limits'>> {
  readonly limits?: Partial<Limits>
  /** The token of the configuration. */
  readonly token?: string | null
  readonly dependencies?: Partial<OperationsDependencies>
  /** Addresses that channels of notices may use. */
  readonly addresses?: NetworkGuard
  readonly wrapStore?: (store: Store) => Store
}

/** Errors that routes of this test file answered although their declarations lack them. */
const undeclared = new Set<string>()

after(() => assert.deepEqual([...undeclared], [], 'the routes must declare these errors'))

function noteUndeclared(
  error: unknown,
  {method, routeOptions: {url = '', config}}: FastifyRequest,
): void {
  const code = asRefusal(error)?.code ?? 'internal'
  if (config.operationId === undefined || REQUEST_ERRORS.includes(code)) return
  // The route of a HEAD request is that of its GET.
  const route = {...(config as RouteDescription), method: method === 'HEAD' ? 'GET' : method, url}
  if (!errorsOf(route).includes(code)) undeclared.add(`${method} ${url}: ${code}`)
}

/** Starts an API that is closed after the test. */
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
  readonly replies: SentReply[] = []
  readonly store: Store
  /** The facade for clients over `store`. */
  readonly clients: Store
  readonly access: AccessTable
  readonly vault = new SecretVault(randomBytes(32), null)
  leaveCalls = 0
  isLeader = true
  app!: FastifyInstance
  url = ''
  readonly #options: ApiOptions
  #directory = ''
  #term = 0

  constructor(options: ApiOptions) {
    this.#options = options
    const store = openMemoryStore({
      clock: this.clock,
      random: this.random,
      openSecret: (name, ciphertext) => this.vault.open(name, ciphertext),
    })
    this.store = options.wrapStore?.(store) ?? store
    this.clients = clientStoreOf(this.store, this.clock)
    const {token = null, oidc} = options
    this.access = new AccessTable({
      ...this.#parts,
      store: this.clients,
      traits: DEFINITION_TRAITS,
      token,
      personOwnerPrefix: oidc?.owners,
    })
  }

  get #parts() {
    const {store, clock, wakeup, events} = this
    return {store, clock, wakeup, events}
  }

  get directory(): string {
    return this.#directory
  }

  async open(): Promise<void> {
    await this.build()
    await this.app.listen({host: '127.0.0.1', port: 0})
    this.url = `http://127.0.0.1:${this.port}`
  }

  /** The server, not listening yet. */
  async build(): Promise<void> {
    const {access} = this
    this.#directory = await mkdtemp(join(tmpdir(), 'belfry-http-'))
    const {
      dependencies,
      wrapStore: _wrapStore,
      token: _token,
      addresses = new NetworkGuard([], []),
      limits,
      ...http
    } = this.#options
    const operations = createOperations({
      store: this.clients,
      clock: this.clock,
      random: this.random,
      wakeup: this.wakeup,
      events: this.events,
      executors: executorsOf({shell: checkShell, http: () => NO_FINDINGS}),
      processors: PROCESSORS,
      node: {id: NODE_ID, name: NODE_NAME, version: '0.1.0', startedAt: this.clock.now(), tags: {}},
      settings: {
        defaultTimezone: () => 'UTC',
        dataDirectory: this.#directory,
        runsPerMinute: RUNS_PER_MINUTE,
        sessionIdleMs: SESSION_IDLE_MS,
        sessionMaxMs: SESSION_MAX_MS,
        limits: checkedLimits(),
        get tokenConfigured() {
          return access.isLocked
        },
        runsAsRoot: false,
        targets: {defaultTarget: 'one', targetWaitMs: 600_000},
        keepLaunches: 1_000,
        makesBackups: false,
      },
      countTargets: async (tags: StringMap) =>
        countTargets(tags, await this.clients.candidates(), 'one'),
      isLeader: () => this.isLeader,
      channels: openChannels({
        store: this.clients,
        vault: this.vault,
        clock: this.clock,
        addresses,
      }),
      vault: this.vault,
      access,
      announce: (outcomes) => announceFinished(outcomes, this),
      leave: () => void (this.leaveCalls += 1),
      ...dependencies,
    })
    this.app = createHttpServer(operations, {
      nodeName: NODE_NAME,
      version: '0.1.0',
      access,
      allowHosts: [],
      corsOrigins: [],
      tls: null,
      ui: true,
      clock: this.clock,
      random: this.random,
      events: this.events,
      ready: async () => ({ok: true, checks: {store: 'ok'}, details: {store: 'ok'}}),
      metrics: async () => ({contentType: 'text/plain; version=0.0.4', body: 'up 1\n'}),
      onFault: (error, request) => void this.faults.push({error, request}),
      onReply: (reply) => void this.replies.push(reply),
      limits: {...checkedLimits(), ...limits},
      ...http,
    })
    this.app.addHook('onRoute', (route) => {
      route.errorHandler = (error, request) => {
        noteUndeclared(error, request)
        throw error
      }
    })
  }

  get port(): number {
    return (this.app.server.address() as AddressInfo).port
  }

  async close(): Promise<void> {
    const state = {isClosed: false}
    const closing = this.app.close().then(() => void (state.isClosed = true))
    // A request that a test left in progress ends by the clock.
    for (let turn = 0; turn < CLOSE_TURNS_MAX && !state.isClosed; turn += 1)
      await this.clock.advance(CLOSE_TIMEOUT_MS)
    await closing
    await this.access.stop()
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
          const chunks: Buffer[] = []
          response.on('data', (chunk: Buffer) => chunks.push(chunk))
          response.on('error', reject)
          response.on('end', () => {
            const text = Buffer.concat(chunks).toString('utf8')
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
   * Advances time and the network until the condition holds. Throws after `TURNS_MAX` turns, but not before
   * the network had time for its part.
   */
  async eventually(condition: () => boolean, stepMs = 0): Promise<void> {
    const startedAt = performance.now()
    for (let turn = 0; !condition(); turn += 1) {
      const isLate = turn > TURNS_MAX && performance.now() - startedAt > SOON_MS
      if (isLate) throw new Error(`condition never true: ${condition.toString()}`)
      await this.clock.advance(stepMs)
    }
  }

  /** Waits for work that needs timers due now, and the network. */
  async settled<Result>(work: Promise<Result>): Promise<Result> {
    let isDone = false
    const watched = work.finally(() => void (isDone = true))
    watched.catch(() => {})
    await this.eventually(() => isDone)
    return watched
  }

  get = (path: string, headers: Record<string, string> = {}) => this.call('GET', path, {headers})
  post = (path: string, body?: unknown, headers: Record<string, string> = {}) =>
    this.call('POST', path, {body, headers})
  delete = (path: string) => this.call('DELETE', path)

  /** Creates a plain job and returns it. */
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
      incarnation: INCARNATION,
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
      requests: requests.map(({launch, job}) => ({
        group: launch.group,
        revision: job.revision,
        kind: 'launch',
        targets: [{nodeId: NODE_ID, nodeName: NODE_NAME}],
        forbid: false,
      })),
    })
  }

  /** Every waiting request finds no node that matches. */
  async findNoNode(): Promise<void> {
    const {requests} = await this.store.loadRequests({afterGroup: 0, limit: 100})
    await this.store.applyLaunches({
      term: this.#term,
      dues: [],
      requests: requests.map(({launch: {group}, job: {revision}}) => {
        return {group, revision, kind: 'stay', reason: 'waits_for_node'}
      }),
    })
  }

  async claim(): Promise<readonly ClaimedExecution[]> {
    const {claimed} = await claimAs(this.store, {
      nodeId: NODE_ID,
      incarnation: INCARNATION,
      token: this.random.id(),
      room: 16,
    })
    return claimed
  }

  /** Requests a run of a job and claims it. */
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
        startedAfterMs: 0,
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

/** Uploads `content` to `/v1/restore`. */
export async function restore(api: Api, content: string | object, query = '', part = 'file') {
  const form = new FormData()
  const text = typeof content === 'string' ? content : JSON.stringify(content)
  form.set('before', 'ignored')
  form.set(part, new Blob([text]), 'jobs.json')
  const reply = await fetch(`${api.url}/v1/restore${query}`, {method: 'POST', body: form})
  // oxlint-disable-next-line typescript/no-explicit-any
  return {status: reply.status, headers: reply.headers, json: (await reply.json()) as any}
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
    // Some replies are not JSON.
    return undefined
  }
}

type Check = (config: StringMap) => {problems: string[]; warnings: string[]}

const NO_FINDINGS = {problems: [], warnings: []}

function checkShell(config: StringMap): {problems: string[]; warnings: string[]} {
  const warnings = (config.command ?? '') === '' ? ['command: is missing, so runs will fail'] : []
  const problems = config.timeout === 'soon' ? ['timeout: is not a length of time, write 30s'] : []
  return {problems, warnings}
}

function executorsOf(checks: Record<string, Check>): OperationsDependencies['executors'] {
  return {
    names: () => Object.keys(checks).toSorted(),
    get: (name) => {
      const check = checks[name]
      const secretParameters = name === 'shell' ? ['env'] : ['url', 'headers', 'body']
      const parameters = name === 'shell' ? SHELL_PARAMETERS : HTTP_PARAMETERS
      return check === undefined ? null : {name, check, secretParameters, parameters}
    },
  }
}

const PROCESSORS: OperationsDependencies['processors'] = {
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

/** An open event stream and the text received so far. */
export class Stream {
  text = ''
  ended = false
  status = 0
  headers: IncomingHttpHeaders = {}
  readonly #waiters = new Set<() => void>()
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
          response.on('data', (chunk: string) => stream.#received(chunk))
          response.on('close', () => stream.#ended())
          response.on('error', () => stream.#ended())
          resolve()
        },
      )
      sent.on('error', reject)
      stream.#close = () => sent.destroy()
      sent.end()
    })
    return stream
  }

  /** Resolves with the text once the condition holds for it. The stream stays open. */
  async until(condition: (text: string) => boolean): Promise<string> {
    while (!condition(this.text)) {
      if (this.ended) throw new Error(`the stream ended with: ${this.text}`)
      await new Promise<void>((resolve) => this.#waiters.add(resolve))
    }
    return this.text
  }

  async end(): Promise<string> {
    while (!this.ended) await new Promise<void>((resolve) => this.#waiters.add(resolve))
    return this.text
  }

  close(): void {
    this.#close()
  }

  #received(chunk: string): void {
    this.text += chunk
    this.#wake()
  }

  #ended(): void {
    this.ended = true
    this.#wake()
  }

  #wake(): void {
    for (const resolve of this.#waiters) resolve()
    this.#waiters.clear()
  }
}
