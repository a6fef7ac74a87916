/** Draws faults and requests by seed: the same seed draws the same ones, but not at the same moments. */
import {SeededRandom} from '../../test/support/seeded-random.ts'
import type {ClusterProcess} from './cluster-process.ts'
import type {Fault, Faults} from './faults.ts'
import {elapse} from './load.ts'
import type {Operators} from './operators.ts'
import type {RunningTrial} from './trial.ts'

const SECOND_MS = 1_000
/** Pause between two faults: some have recovered by then, others overlap the next one. */
const CALM_MS = {least: SECOND_MS, most: 8 * SECOND_MS}

/** Longest pause between two requests. */
const REQUEST_CALM_MS = 4 * SECOND_MS
const ZONES = ['UTC', 'Asia/Kathmandu', 'America/St_Johns']
const GLOBS = ['*', 'any-*', 'agent-*', '*-0*']

interface Draw {
  /** Relative probability. */
  readonly weight: number
  readonly go: (random: SeededRandom) => Promise<void>
}

async function draw(draws: readonly Draw[], random: SeededRandom): Promise<void> {
  let left = random.fraction() * draws.reduce((sum, {weight}) => sum + weight, 0)
  const drawn = draws.find(({weight}) => (left -= weight) < 0)
  await drawn!.go(random)
}

export class FaultPlan {
  readonly #cluster: ClusterProcess
  readonly #faults: Faults
  readonly #operators: Operators
  readonly #random: SeededRandom
  readonly #stop: AbortSignal
  readonly #draws: readonly Draw[]
  readonly #told = new Set<Fault>()
  readonly #busyNodes = new Set<string>()

  constructor(
    {cluster, faults, operators}: Pick<RunningTrial, 'cluster' | 'faults' | 'operators'>,
    random: SeededRandom,
    stop: AbortSignal,
  ) {
    this.#cluster = cluster
    this.#faults = faults
    this.#operators = operators
    this.#random = random
    this.#stop = stop
    this.#draws = this.#everything()
  }

  /**
   * Runs one fault after the other, sometimes two at once, until `until` (monotonic ms), and meanwhile one
   * request after the other.
   */
  async run(until: number, report: (sentence: string) => void): Promise<void> {
    const isOver = () => performance.now() >= until || this.#stop.aborted
    // Numbers of their own: how long a fault lasts must not change what is requested.
    const random = new SeededRandom(this.#random.seed + 1)
    const requests = this.#requests()
    const asking = async () => {
      while (!isOver()) {
        await draw(requests, random)
        this.#tell(report)
        await this.#elapse(random.between(0, REQUEST_CALM_MS))
      }
    }
    const breaking = async () => {
      while (!isOver()) {
        const count = this.#random.chance(0.2) ? 2 : 1
        await Promise.all(Array.from({length: count}, () => draw(this.#draws, this.#random)))
        this.#tell(report)
        await this.#faults.startDead()
        await this.#elapse(this.#random.between(CALM_MS.least, CALM_MS.most))
      }
    }
    await Promise.all([asking(), breaking()])
  }

  /** Reports what has ended since the last call. */
  #tell(report: (sentence: string) => void): void {
    for (const fault of this.#faults.happened) {
      const {title, node, from, to} = fault
      if (to === Infinity || this.#told.has(fault)) continue
      this.#told.add(fault)
      const seconds = ((to - from) / SECOND_MS).toFixed(1)
      report(`${title}${node === null ? '' : ` (${node})`}, ${seconds} s`)
    }
    for (const sentence of this.#operators.done.splice(0)) report(sentence)
  }

  /** Stops the store for one minute, independent of the draws. */
  async minuteWithoutStore(report: (sentence: string) => void): Promise<void> {
    await this.#faults.killStore(() => this.#elapse(60 * SECOND_MS))
    report('the store was unreachable for a minute')
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

  /** Requests of operators, alone or while a leader is away. None is in force at the end of a draw. */
  #requests(): readonly Draw[] {
    const operators = this.#operators
    const zone = async (random: SeededRandom) => {
      await operators.setTimezone(random.pick(ZONES))
      await this.#elapse(random.between(0, 4 * SECOND_MS))
      await operators.editSome(random)
    }
    /** A fault of the leader with a request meanwhile. */
    const withoutLeader = async (random: SeededRandom, ask: () => Promise<void>) => {
      const leader = await this.#cluster.leaderName().catch(() => null)
      if (leader === null) return
      const hold = async () => {
        await this.#elapse(random.between(0, 2 * SECOND_MS))
        await ask()
        await this.#elapse(random.between(0, 8 * SECOND_MS))
      }
      const isKilled = random.chance(0.5)
      await this.#onFreeNode(leader, () => {
        return isKilled ? this.#faults.kill(leader, hold) : this.#faults.freeze(leader, hold)
      })
    }
    const pause = (random: SeededRandom) => {
      const ms = random.between(SECOND_MS, 15 * SECOND_MS)
      const endsItself = random.chance(0.5) ? ms : undefined
      const hold = () => this.#elapse(ms)
      return this.#onFreeNode('pauses', () => operators.pause(random.pick(GLOBS), hold, endsItself))
    }
    const node = (random: SeededRandom, work: (name: string) => Promise<void>) => {
      const name = random.pick([...this.#cluster.serverNames, ...this.#cluster.agentNames])
      return this.#onFreeNode(`scheduling of ${name}`, () => work(name))
    }
    const cordon = async (random: SeededRandom, name: string) => {
      await operators.schedule(name, 'cordon')
      await this.#elapse(random.between(SECOND_MS, 10 * SECOND_MS))
      await operators.schedule(name, 'uncordon')
    }
    const drain = async (random: SeededRandom, name: string) => {
      await operators.schedule(name, 'drain', random.between(200, 4 * SECOND_MS))
      await this.#elapse(random.between(SECOND_MS, 8 * SECOND_MS))
      await operators.schedule(name, 'uncordon')
    }
    return [
      {weight: 2, go: zone},
      {weight: 3, go: (random) => withoutLeader(random, () => zone(random))},
      {weight: 2, go: pause},
      {weight: 1, go: (random) => withoutLeader(random, () => pause(random))},
      {weight: 1, go: (random) => node(random, (name) => cordon(random, name))},
      {weight: 2, go: (random) => node(random, (name) => drain(random, name))},
      {
        // A cordon after the deadline of an earlier drain.
        weight: 3,
        go: (random) => {
          return node(random, async (name) => {
            await drain(random, name)
            await this.#elapse(random.between(SECOND_MS, 4 * SECOND_MS))
            await cordon(random, name)
          })
        },
      },
      {weight: 3, go: (random) => operators.cancelOne(random)},
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
