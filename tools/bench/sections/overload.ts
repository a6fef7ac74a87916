/**
 * A server that is offered more than it can run: its rate must stay near its best, however much is waiting.
 * Each offer gets a new server, so that no backlog of the previous one is left.
 */
import {stopwatch} from '../plain-loop.ts'
import {processorTimeMs} from '../processor-time.ts'
import type {Bench, Section} from '../section.ts'
import {everySecond, saturate} from '../saturate.ts'
import {ServerProcess} from '../server-process.ts'

const SECOND_MS = 1000
/** Jobs a second to start with. A server that can run more gets more until it is saturated. */
const FIRST_GUESS = 300
/** Offered rates, as multiples of the best rate. */
const OFFERS = [1, 1.5, 2, 3]
/** A new server compiles its code, and its backlog grows. About as long as finding the best rate takes. */
const WARM_UP_MS = 6_000
const RATIO_MIN = 0.9

export const overload: Section = {
  name: 'overload',
  measure: async (bench) => {
    const {plan, figures, say, again} = bench
    for (let round = 0; again(round, plan.overloadRounds); round += 1) {
      say(`round ${round + 1} of ${plan.overloadRounds}: best rate`)
      const best = await measure(bench, (server) => saturate(server, FIRST_GUESS))
      figures.add('best rate', '/s', best.perSecond)
      for (const offer of OFFERS) {
        const jobs = Math.round(best.perSecond * offer)
        say(`${jobs} jobs a second, ${offer} × the best rate`)
        const offered = await measure(bench, async (server) => {
          await server.store(everySecond(0, jobs))
          await new Promise((resolve) => setTimeout(resolve, WARM_UP_MS))
        })
        const label = `offered ${offer} × the best rate`
        const ratio = offered.perSecond / best.perSecond
        figures.add(`${label}: run / best rate`, '×', ratio, {atLeast: RATIO_MIN})
        if (best.processorMsEach === null || offered.processorMsEach === null) continue
        const costs = offered.processorMsEach / best.processorMsEach
        figures.add(`${label}: processor time each / at the best rate`, '×', costs)
      }
    }
  },
}

/** Rate of a new server with the work that `prepare` gives it, and processor time for each execution. */
async function measure(
  {plan, scratch}: Bench,
  prepare: (server: ServerProcess) => Promise<unknown>,
): Promise<{readonly perSecond: number; readonly processorMsEach: number | null}> {
  const dataDir = await scratch.folder()
  const server = await ServerProcess.start(scratch, {dataDir})
  await prepare(server)
  const used = stopwatch(() => processorTimeMs(server.pid))
  const before = await server.succeeded()
  await new Promise((resolve) => setTimeout(resolve, plan.windowMs))
  const after = await server.succeeded()
  const count = after.count - before.count
  const processorMsEach = used(count)
  await server.stop()
  await scratch.remove(dataDir)
  const perSecond = (count * SECOND_MS) / (after.atMs - before.atMs)
  return {perSecond, processorMsEach}
}
