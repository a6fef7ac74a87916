/**
 * Belfry on a replicated PostgreSQL while that fails over: `npm run ha`. On demand, since it takes minutes and
 * needs packages of the system. Flags: `--rounds n` (failovers in a row), `--only failover`, `standby-gone` or
 * `split-brain`. Ends with 0 when nothing planned is missing or doubled and everything acknowledged is there,
 * with 1 otherwise, with 2 when something is missing on this machine.
 */
import {chmodSync, chownSync, mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {parseArgs} from 'node:util'
import type {Owner} from '../support/server-process.ts'
import {Pair} from './pair.ts'
import {Missing, Programs} from './programs.ts'
import {failover, splitBrain, standbyGone, type Scenario} from './scenarios.ts'
import {say, Stage} from './stage.ts'

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  failover,
  'standby-gone': standbyGone,
  'split-brain': splitBrain,
}

/** What was started, in order; ended in the other. */
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

/** Whether nothing was wrong. */
async function play(ending: Ending, names: readonly string[], rounds: number): Promise<boolean> {
  const programs = new Programs()
  const home = mkdtempSync(join(tmpdir(), 'belfry-ha-'))
  ending.after(() => rmSync(home, {recursive: true, force: true}))
  chmodSync(home, 0o755)
  if (programs.account !== null) chownSync(home, programs.account.uid, programs.account.gid)
  say(`PostgreSQL of ${programs.folder}: a primary and a synchronous standby`)
  const pair = await Pair.open(ending, programs, home)
  say('Three servers, two agents, thirty jobs that fire each second, four clients')
  const stage = await Stage.open(ending, pair.store)
  for (const name of names)
    for (let round = 1; round <= (name === 'failover' ? rounds : 1); round += 1) {
      say(`${name}${rounds > 1 && name === 'failover' ? ` ${round} of ${rounds}` : ''}`)
      await SCENARIOS[name]!(stage, pair)
    }
  say('Verdict')
  return await stage.verdict()
}

/** Rejects on Ctrl-C. */
function interrupted(): Promise<never> {
  return new Promise((_, reject) => {
    for (const signal of ['SIGINT', 'SIGTERM'] as const)
      process.on(signal, () => reject(new Error(`ended by ${signal}`)))
  })
}

async function main(): Promise<number> {
  const {values} = parseArgs({
    options: {rounds: {type: 'string', default: '1'}, only: {type: 'string', multiple: true}},
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
    const isSound = await Promise.race([play(ending, names, rounds), interrupted()])
    say(isSound ? 'Nothing is missing, doubled or lost.' : 'NOT SOUND.')
    return isSound ? 0 : 1
  } catch (error) {
    say(error instanceof Missing ? error.message : String(error))
    return error instanceof Missing ? 2 : 1
  } finally {
    await ending.run()
  }
}

// What was under way when it was interrupted would go on.
process.exit(await main())
