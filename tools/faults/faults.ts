/**
 * What goes wrong: processes killed, stopped, frozen, networks cut, the store away. Each fault is carried out
 * whole, its end included, and written down with its times, so that a verdict can say what it cost and
 * whether a lost execution is explained by the death of its node.
 */
import assert from 'node:assert/strict'
import {until, within} from '../../test/support/waiting.ts'
import {AGENT_FLAGS, elapse} from './load.ts'
import type {ClusterProcess} from './cluster-process.ts'

/** How often a node is started until it is there: the store may be away, or its place still taken. */
const START_WITHIN_MS = 120_000
const STOP_WITHIN_MS = 60_000

export type FaultKind =
  | 'kill'
  | 'stop'
  | 'freeze'
  | 'cut from the store'
  | 'cut from the servers'
  | 'store killed'
  | 'store frozen'

export interface Fault {
  readonly kind: FaultKind
  /** As a report names it, e.g. `leader: kill`. */
  readonly title: string
  /** Whom it meets; `null` = the store, hence all. */
  readonly node: string | null
  readonly wasLeader: boolean
  /** ms since the epoch; `to` = when what was wrong was right again, `Infinity` until then. */
  readonly from: number
  to: number
}

/** Ends what a fault keeps up: after some time, or after something that a test waits for. */
export type Hold = () => Promise<unknown>

export class Faults {
  readonly #cluster: ClusterProcess
  readonly happened: Fault[] = []
  /** What a node did that no fault explains. */
  readonly problems: string[] = []

  constructor(cluster: ClusterProcess) {
    this.#cluster = cluster
  }

  /** kill -9; the node is started again on its data directory after `hold`. */
  async kill(name: string, hold: Hold = async () => undefined): Promise<void> {
    await this.#during('kill', name, async () => {
      const program = this.#cluster.program(name)
      program.signal('SIGKILL')
      await program.gone
      await hold()
      await this.#startAgain(name)
    })
  }

  /** SIGTERM; started again once it has ended, and after `hold`. */
  async stop(name: string, hold: Hold = async () => undefined): Promise<void> {
    await this.#during('stop', name, async () => {
      const program = this.#cluster.program(name)
      program.signal('SIGTERM')
      const {code, signal} = await within(program.exit, `${name} ends`, STOP_WITHIN_MS)
      if (code !== 0) this.problems.push(`${name} was told to end, and ended by ${code ?? signal}`)
      await hold()
      await this.#startAgain(name)
    })
  }

  /** SIGSTOP, and SIGCONT after `hold`. */
  async freeze(name: string, hold: Hold): Promise<void> {
    await this.#during('freeze', name, async () => {
      this.#cluster.freeze(name)
      try {
        await hold()
      } finally {
        this.#cluster.wake(name)
      }
    })
  }

  /** A server does not reach the store, or an agent no server, and nobody is told. */
  async cut(name: string, hold: Hold, heal: 'brings' | 'breaks'): Promise<void> {
    const isServer = this.#cluster.serverNames.includes(name)
    const stretches = isServer
      ? [await this.#cluster.toStore(name)]
      : await this.#cluster.toServers(name)
    await this.#during(isServer ? 'cut from the store' : 'cut from the servers', name, async () => {
      for (const stretch of stretches) stretch.cut()
      await hold()
      for (const stretch of stretches) stretch.heal(heal)
    })
  }

  /** PostgreSQL ends at once, and is started again after `hold`. */
  async killStore(hold: Hold): Promise<void> {
    await this.#during('store killed', null, async () => {
      await this.#cluster.postgres.kill()
      await hold()
      await this.#cluster.postgres.resume()
    })
  }

  async freezeStore(hold: Hold): Promise<void> {
    await this.#during('store frozen', null, async () => {
      this.#cluster.signalStore('SIGSTOP')
      try {
        await hold()
      } finally {
        this.#cluster.signalStore('SIGCONT')
      }
    })
  }

  /** Nodes whose process is gone though nothing has ended it: that must not be. Starts them again. */
  async startDead(): Promise<void> {
    for (const name of [...this.#cluster.serverNames, ...this.#cluster.agentNames]) {
      const program = this.#cluster.program(name)
      if (!program.isGone()) continue
      this.problems.push(`${name} has ended by itself: ${program.stderr().slice(-2_000)}`)
      await this.#startAgain(name)
    }
  }

  async #during(kind: FaultKind, node: string | null, work: () => Promise<void>): Promise<void> {
    const {happened} = this
    const leader = await this.#leader()
    const isServer = node !== null && this.#cluster.serverNames.includes(node)
    const role = node === leader ? 'leader' : isServer ? 'server' : 'agent'
    const title = node === null ? kind : `${role}: ${kind}`
    const wasLeader = node === leader
    const fault: Fault = {kind, title, node, wasLeader, from: Date.now(), to: Infinity}
    happened.push(fault)
    await work()
    fault.to = Date.now()
  }

  /** `null` while there is none, or none can say. */
  async #leader(): Promise<string | null> {
    for (const server of this.#cluster.awake()) {
      const answer = await server.get('/leader').catch(() => null)
      if (answer?.status === 200) return String(answer.json.Name)
    }
    return null
  }

  /** As a supervisor does: until it stays. */
  async #startAgain(name: string): Promise<void> {
    const isServer = this.#cluster.serverNames.includes(name)
    const start = (): Promise<unknown> =>
      isServer
        ? this.#cluster.startServer(name)
        : this.#cluster.startAgent(name, {flags: AGENT_FLAGS})
    let refused: unknown = null
    await until(
      `${name} starts again`,
      async () => {
        try {
          await start()
          return true
        } catch (error) {
          refused = error
          await elapse(500)
          return false
        }
      },
      START_WITHIN_MS,
    ).catch((error: unknown) => assert.fail(`${String(error)}; ${String(refused)}`))
  }
}
