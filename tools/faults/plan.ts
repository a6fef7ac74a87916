/** Draws the next fault by seed: the same seed draws the same faults, but not at the same moments. */
import type {SeededRandom} from '../../test/support/seeded-random.ts'
import type {ClusterProcess} from './cluster-process.ts'
import type {Faults} from './faults.ts'
import {elapse} from './load.ts'

const SECOND_MS = 1_000
/** Pause between two faults: some have recovered by then, others overlap the next one. */
const CALM_MS = {least: SECOND_MS, most: 8 * SECOND_MS}

interface Draw {
  /** Relative probability. */
  readonly weight: number
  readonly go: (random: SeededRandom) => Promise<void>
}

export class FaultPlan {
  readonly #cluster: ClusterProcess
  readonly #faults: Faults
  readonly #random: SeededRandom
  readonly #stop: AbortSignal
  readonly #draws: readonly Draw[]
  readonly #busyNodes = new Set<string>()

  constructor(cluster: ClusterProcess, faults: Faults, random: SeededRandom, stop: AbortSignal) {
    this.#cluster = cluster
    this.#faults = faults
    this.#random = random
    this.#stop = stop
    this.#draws = this.#everything()
  }

  /** Runs one fault after the other, sometimes two at once, until `until` (monotonic ms). */
  async run(until: number, report: (sentence: string) => void): Promise<void> {
    while (performance.now() < until && !this.#stop.aborted) {
      const count = this.#random.chance(0.2) ? 2 : 1
      const before = this.#faults.happened.length
      await Promise.all(Array.from({length: count}, () => this.#one()))
      for (const {title, node, from, to} of this.#faults.happened.slice(before))
        report(
          `${title}${node === null ? '' : ` (${node})`}, ${((to - from) / SECOND_MS).toFixed(1)} s`,
        )
      await this.#faults.startDead()
      await this.#elapse(this.#random.between(CALM_MS.least, CALM_MS.most))
    }
  }

  /** Stops the store for one minute, independent of the draws. */
  async minuteWithoutStore(report: (sentence: string) => void): Promise<void> {
    await this.#faults.killStore(() => this.#elapse(60 * SECOND_MS))
    report('the store was unreachable for a minute')
  }

  async #one(): Promise<void> {
    let left = this.#random.fraction() * this.#draws.reduce((sum, {weight}) => sum + weight, 0)
    const drawn = this.#draws.find(({weight}) => (left -= weight) < 0)
    await drawn!.go(this.#random)
  }

  #everything(): readonly Draw[] {
    const faults = this.#faults
    // No leader while the store is unreachable.
    const leader = () => this.#cluster.leaderName().catch(() => null)
    const server = (random: SeededRandom) => random.pick(this.#cluster.serverNames)
    const agent = (random: SeededRandom) => random.pick(this.#cluster.agentNames)
    const hold = (least: number, most: number) => {
      const ms = this.#random.between(least * SECOND_MS, most * SECOND_MS)
      return () => this.#elapse(ms)
    }
    const onNode = (name: string | null, work: (name: string) => Promise<void>) =>
      name === null ? Promise.resolve() : this.#onFreeNode(name, () => work(name))
    return [
      {weight: 3, go: async () => onNode(await leader(), (name) => faults.kill(name, hold(0, 12)))},
      {
        weight: 2,
        go: async (random) => onNode(server(random), (name) => faults.kill(name, hold(0, 30))),
      },
      {
        weight: 2,
        go: async (random) => onNode(agent(random), (name) => faults.kill(name, hold(0, 40))),
      },
      // Restarted within two seconds.
      {weight: 2, go: async (random) => onNode(server(random), (name) => faults.kill(name))},
      {weight: 1, go: async (random) => onNode(agent(random), (name) => faults.kill(name))},
      {weight: 2, go: async () => onNode(await leader(), (name) => faults.stop(name))},
      {
        weight: 1,
        go: async (random) => onNode(server(random), (name) => faults.stop(name, hold(0, 5))),
      },
      {
        weight: 1,
        go: async (random) => onNode(agent(random), (name) => faults.stop(name, hold(0, 5))),
      },
      {
        weight: 3,
        go: async () => onNode(await leader(), (name) => faults.freeze(name, hold(1, 60))),
      },
      {
        weight: 2,
        go: async (random) => onNode(agent(random), (name) => faults.freeze(name, hold(1, 60))),
      },
      {
        weight: 2,
        go: async (random) => onNode(server(random), (name) => this.#cut(name, hold(1, 45))),
      },
      {weight: 2, go: async () => onNode(await leader(), (name) => this.#cut(name, hold(1, 20)))},
      {
        weight: 2,
        go: async (random) => onNode(agent(random), (name) => this.#cut(name, hold(1, 45))),
      },
      {weight: 2, go: () => this.#onFreeNode('the store', () => faults.killStore(hold(1, 60)))},
      {weight: 2, go: () => this.#onFreeNode('the store', () => faults.freezeStore(hold(1, 20)))},
    ]
  }

  #cut(name: string, hold: () => Promise<void>): Promise<void> {
    return this.#faults.cut(name, hold, this.#random.chance(0.5) ? 'brings' : 'breaks')
  }

  /** Skips the fault if another one is active on the same node. */
  async #onFreeNode(name: string, work: () => Promise<void>): Promise<void> {
    if (this.#busyNodes.has(name)) return
    this.#busyNodes.add(name)
    await work()
    this.#busyNodes.delete(name)
  }

  #elapse(ms: number): Promise<void> {
    return elapse(ms, this.#stop)
  }
}
