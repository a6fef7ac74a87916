/** Rate of the scheduler itself: everything except starting processes, up to the committed counters. */
import type {handlers as Flow} from '../children/flow.ts'
import {Link} from '../link.ts'
import type {Section} from '../section.ts'

const TARGET_PER_SECOND = 10_000
/** Slots of a small node, and the default. */
const FEW = 16
const WIDE = 256

export const bookkeeping: Section = {
  name: 'bookkeeping',
  measure: async ({plan, scratch, figures, say, again}) => {
    const nodes = []
    for (const slots of [FEW, WIDE]) {
      const flow = Link.start<typeof Flow>(scratch, 'flow.ts')
      const dataDir = await scratch.folder()
      const jobs = plan.bookkeepingBurst
      await flow.ask('open', {dataDir, slots, executing: 'nothing', jobs})
      say(`warming up, ${slots} slots`)
      await flow.ask('burst', null)
      nodes.push({flow, slots, dataDir})
    }
    for (let round = 0; again(round, plan.rounds); round += 1) {
      for (const {flow, slots} of nodes) {
        say(`round ${round + 1} of ${plan.rounds}: ${plan.bookkeepingBurst} due, ${slots} slots`)
        const {perSecond, loopLagP99Ms} = await flow.ask('burst', null)
        const target = {atLeast: TARGET_PER_SECOND}
        figures.add(`executions of nothing, ${slots} slots`, '/s', perSecond, target)
        figures.add(`main loop delay p99, ${slots} slots`, 'ms', loopLagP99Ms)
      }
    }
    for (const {flow, dataDir} of nodes) {
      await flow.ask('close', null)
      await flow.end()
      await scratch.remove(dataDir)
    }
  },
}
