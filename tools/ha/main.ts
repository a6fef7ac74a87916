/**
 * `npm run ha`: Belfry during failovers of a replicated PostgreSQL. Not part of the tests: it takes minutes
 * and needs system packages. Flags: `--rounds n` (failovers in a row), `--only failover`, `standby-gone` or
 * `split-brain`, `--patroni` (Patroni manages the database; failovers only). Exit code 0: no planned time
 * is missing or doubled and every acknowledged write exists. 1: otherwise. 2: a package is missing on this
 * machine.
 */
import {chmodSync, chownSync, mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {parseArgs} from 'node:util'
import type {Owner} from '../../test/support/server-process.ts'
import {Pair} from './pair.ts'
import {Patroni} from './patroni.ts'
import {Missing, Programs} from './programs.ts'
import {failover, patroniFailover, splitBrain, standbyGone, type Scenario} from './scenarios.ts'
import {say, Stage} from './stage.ts'

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  failover,
  'standby-gone': standbyGone,
  'split-brain': splitBrain,
}

/** Cleanup functions in the order of starting; run in reverse. */
class Ending implements Owner {
  readonly #cleanups: (() => unknown)[] = []

  after(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup)
  }

  async run(): Promise<void> {
    for (let next = this.#cleanups.pop(); next !== undefined; next = this.#cleanups.pop())
      await next()
  }
}

interface Play {
  readonly names: readonly string[]
  readonly rounds: number
  readonly isPatroni: boolean
}

/** True if the audit is sound. */
async function play(ending: Ending, {names, rounds, isPatroni}: Play): Promise<boolean> {
  const programs = new Programs()
  const home = mkdtempSync(join(tmpdir(), 'belfry-ha-'))
  ending.after(() => rmSync(home, {recursive: true, force: true}))
  chmodSync(home, 0o755)
  if (programs.account !== null) chownSync(home, programs.account.uid, programs.account.gid)
  const stage = isPatroni
    ? await playPatroni(ending, programs, home, rounds)
    : await playPair(ending, programs, home, {names, rounds})
  say('Audit')
  return await stage.audit()
}

async function playPair(
  ending: Ending,
  programs: Programs,
  home: string,
  {names, rounds}: Pick<Play, 'names' | 'rounds'>,
): Promise<Stage> {
  say(`PostgreSQL of ${programs.folder}: a primary and a synchronous standby`)
  const pair = await Pair.open(ending, programs, home)
  const stage = await openStage(ending, pair.store)
  for (const name of names)
    for (let round = 1; round <= (name === 'failover' ? rounds : 1); round += 1) {
      say(`${name}${rounds > 1 && name === 'failover' ? ` ${round} of ${rounds}` : ''}`)
      await SCENARIOS[name]!(stage, pair)
    }
  return stage
}

async function playPatroni(
  ending: Ending,
  programs: Programs,
  home: string,
  rounds: number,
): Promise<Stage> {
  say(`PostgreSQL of ${programs.folder}: three servers managed by Patroni, with etcd`)
  const patroni = await Patroni.open(ending, programs, home)
  const stage = await openStage(ending, patroni.store)
  for (let round = 1; round <= rounds; round += 1) {
    say(`failover ${round} of ${rounds}`)
    await patroniFailover(stage, patroni)
  }
  return stage
}

function openStage(ending: Ending, store: string): Promise<Stage> {
  say('Three servers, two agents, thirty jobs that fire each second, four clients')
  return Stage.open(ending, store)
}

/** Rejects on Ctrl-C or SIGTERM. */
function interrupted(): Promise<never> {
  return new Promise((_, reject) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const)
      process.on(signal, () => reject(new Error(`interrupted by ${signal}`)))
  })
}

async function main(): Promise<number> {
  const {values} = parseArgs({
    options: {
      rounds: {type: 'string', default: '1'},
      only: {type: 'string', multiple: true},
      patroni: {type: 'boolean', default: false},
    },
  })
  const names = values.only ?? Object.keys(SCENARIOS)
  const rounds = Number(values.rounds)
  const unknown = names.find((name) => !Object.hasOwn(SCENARIOS, name))
  if (unknown !== undefined || !(rounds >= 1)) {
    say(`--only takes ${Object.keys(SCENARIOS).join(', ')}; --rounds a number from 1`)
    return 2
  }
  const ending = new Ending()
  try {
    const isSound = await Promise.race([
      play(ending, {names, rounds, isPatroni: values.patroni}),
      interrupted(),
    ])
    say(isSound ? 'Nothing is missing, doubled or lost.' : 'NOT SOUND.')
    return isSound ? 0 : 1
  } catch (error) {
    say(error instanceof Missing ? error.message : String(error))
    return error instanceof Missing ? 2 : 1
  } finally {
    await ending.run()
  }
}

// Exits explicitly: work in flight would keep the process alive after an interrupt.
process.exit(await main())
