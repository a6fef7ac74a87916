/**
 * Random histories of runs, ends, cancellations, losses and resets: counters, status, statistics and open
 * launches must equal those computed from the executions.
 */
import assert from 'node:assert/strict'
import {launchStatus} from '../../../src/core/finish.ts'
import type {ClaimedExecution} from '../../../src/ports/node-store.ts'
import type {Case} from './case.ts'
import {ALL_EXECUTIONS, ALL_ROWS, anEnd, DAY, HOUR, type Scene} from './scene.ts'

const SEEDS = [1, 2, 3, 4]
const MOVES = 120
const JOBS = ['a', 'b', 'c']
const NODES = ['n1', 'n2']

/** A pseudo-random generator; the same seed gives the same numbers. */
function rollsOf(seed: number): (sides: number) => number {
  let state = seed
  return (sides) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return Math.floor((state / 2 ** 32) * sides)
  }
}

interface Model {
  readonly held: ClaimedExecution[]
  /** Ends counted before the job's last reset, which its counters exclude. */
  readonly uncounted: Map<string, Set<string>>
}

export function countersCases(when: Case): void {
  for (const seed of SEEDS) {
    when.withManyRows(
      `counters and statistics match a random history (seed ${seed})`,
      async (scene) => {
        const roll = rollsOf(seed)
        const model: Model = {held: [], uncounted: new Map(JOBS.map((name) => [name, new Set()]))}
        await scene.join('n2')
        await scene.submit('a', {retries: 2})
        await scene.submit('b', {retries: 0})
        await scene.submit('c', {retries: 1, parentJob: 'a', schedule: ''})
        for (let index = 0; index < MOVES; index += 1) {
          await move(scene, model, roll)
          if (index % 10 === 0) await check(scene, model)
        }
        await check(scene, model)
        await scene.opened.store.finish(model.held.map((each) => anEnd(each, 'succeeded')))
        await check(scene, model)
      },
    )
  }
}

async function move(scene: Scene, model: Model, roll: (sides: number) => number): Promise<void> {
  const {store} = scene
  const name = JOBS[roll(JOBS.length)]!
  const node = NODES[roll(NODES.length)]!
  switch (roll(9)) {
    case 0:
    case 1:
      await scene.run(name, roll(2) === 0 ? [node] : NODES)
      break
    case 2:
    case 3:
      model.held.push(...(await scene.claim(node, 1 + roll(4))))
      break
    case 4:
    case 5: {
      const ends = model.held.splice(0, 1 + roll(4)).map((each) => {
        const status = (['succeeded', 'failed', 'timed_out', 'cancelled'] as const)[roll(4)]!
        return anEnd(each, status, {durationMs: roll(3) * HOUR})
      })
      await store.finish(roll(2) === 0 ? ends : [...ends, ...ends])
      break
    }
    case 6: {
      const page = await store.executions(name, {...ALL_EXECUTIONS, order: 'asc'})
      const live = page!.rows.filter(({finishedAt}) => finishedAt === null)
      const chosen = live[roll(Math.max(1, live.length))]
      if (chosen !== undefined) await store.cancelExecution(name, chosen)
      break
    }
    case 7: {
      const request = {
        term: scene.term,
        nodeId: node,
        exceptIncarnation: null,
        observed: null,
        limit: 2,
      }
      await store.markLost({...request, reason: 'node_stopped', jitter: 0.5})
      break
    }
    case 8:
      if (roll(4) === 0) await reset(scene, model, name)
      scene.advance(roll(3) * HOUR)
      break
  }
}

async function reset(scene: Scene, model: Model, name: string): Promise<void> {
  await scene.store.resetHistory(name)
  const page = await scene.store.executions(name, ALL_EXECUTIONS)
  for (const {group, node, attempt, finishedAt} of page!.rows)
    if (finishedAt !== null) model.uncounted.get(name)!.add(`${group}-${node}-${attempt}`)
}

async function check(scene: Scene, model: Model): Promise<void> {
  for (const name of JOBS) {
    const page = await scene.store.executions(name, ALL_EXECUTIONS)
    const ended = page!.rows.filter(({group, node, attempt, finishedAt}) => {
      return finishedAt !== null && !model.uncounted.get(name)!.has(`${group}-${node}-${attempt}`)
    })
    const well = ended.filter(({status}) => status === 'succeeded')
    const badly = ended.filter(({status}) => status !== 'succeeded')
    const newest = (rows: typeof ended) =>
      rows.length === 0 ? null : Math.max(...rows.map(({finishedAt}) => finishedAt!))
    const {counters, status} = await scene.job(name)
    assert.deepEqual(counters, {
      successCount: well.length,
      errorCount: badly.length,
      lastSuccess: newest(well),
      lastError: newest(badly),
    })
    await checkLaunches(scene, name, page!.rows, status)
  }
  const days = await scene.store.statistics(30)
  for (const {date} of days) assert.equal(date % DAY, 0)
}

async function checkLaunches(
  scene: Scene,
  name: string,
  rows: NonNullable<Awaited<ReturnType<Scene['store']['executions']>>>['rows'],
  status: string,
): Promise<void> {
  const history = await scene.store.launches(name, {...ALL_ROWS, decision: 'launched'})
  let newestStatus = ''
  for (const {group, open} of history!.rows.toReversed()) {
    const own = rows.filter((row) => row.group === group)
    if (own.length === 0) continue
    const closedAs = launchStatus(own)
    assert.equal(open, closedAs === null, `launch ${group} of ${name} is open while it has work`)
    newestStatus = closedAs ?? newestStatus
  }
  const wasReset = rows.length < history!.rows.length
  if (!wasReset) assert.equal(status, newestStatus, `status of ${name}`)
}
