/**
 * Faults: processes killed, stopped or frozen, network links cut, the store stopped. Each is injected and
 * reverted, and recorded with its times, so that the audit can compute its cost and match lost executions
 * to the death of their node.
 */
import assert from 'node:assert/strict'
import {until, within} from '../../test/support/waiting.ts'
import {AGENT_FLAGS, elapse} from './load.ts'
import type {ClusterProcess} from './cluster-process.ts'

/** Limit for restarting a node: the store may be down, or the node's name still taken. */
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
  /** Title in a report, e.g. `leader: kill`. */
  readonly title: string
  /** Affected node; `null` = the store, which affects all. */
  readonly node: string | null
  readonly wasLeader: boolean
  /** ms since the epoch; `to` = when the fault was reverted, `Infinity` until then. */
  readonly from: number
  to: number
}

/** How long a fault lasts: resolves after some time, or on an event that a test waits for. */
export type Hold = () => Promise<unknown>

export class Faults {
  readonly #cluster: ClusterProcess
  readonly happened: Fault[] = []
  /** Behaviour of a node that no fault explains. */
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
      if (code !== 0)
        this.problems.push(`${name} received SIGTERM and exited with ${code ?? signal}`)
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

  /** Partition: a server cannot reach the store, or an agent any server; packets are dropped silently. */
  async cut(name: string, hold: Hold, heal: 'brings' | 'breaks'): Promise<void> {
    const isServer = this.#cluster.serverNames.includes(name)
    const links = isServer
      ? [await this.#cluster.toStore(name)]
      : await this.#cluster.toServers(name)
    await this.#during(isServer ? 'cut from the store' : 'cut from the servers', name, async () => {
      for (const link of links) link.cut()
      await hold()
      for (const link of links) link.heal(heal)
    })
  }

  /** Kills PostgreSQL; starts it again after `hold`. */
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

  /** Restarts nodes that exited without a fault, and records that as a problem. */
  async startDead(): Promise<void> {
    for (const name of [...this.#cluster.serverNames, ...this.#cluster.agentNames]) {
      const program = this.#cluster.program(name)
      const isFault = this.happened.some(({node, to}) => node === name && to === Infinity)
      if (!program.isGone() || isFault) continue
      this.problems.push(`${name} exited without a fault: ${program.stderr().slice(-2_000)}`)
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

  /** Name of the leader; `null` without one, or if no server answers. */
  async #leader(): Promise<string | null> {
    for (const server of this.#cluster.responsive()) {
      const answer = await server.get('/leader').catch(() => null)
      if (answer?.status === 200) return String(answer.json.Name)
    }
    return null
  }

  /** Restarts a node as a supervisor does: repeatedly until it stays up. */
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
