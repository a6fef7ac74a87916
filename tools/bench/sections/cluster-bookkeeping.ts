/**
 * Rate of the scheduler itself on PostgreSQL: everything except starting processes, up to the committed
 * counters, compared with the commits of one plain client of the same PostgreSQL.
 */
import type {handlers as Flow} from '../children/flow.ts'
import type {handlers as PlainCommits} from '../children/plain-commits.ts'
import {startPostgres} from '../cluster.ts'
import {Link} from '../link.ts'
import type {Section} from '../section.ts'

/** Slots of a small node, and the default. */
const FEW = 16
const WIDE = 256
const WITHIN_MS = 10_000
const SECOND_MS = 1000

export const clusterBookkeeping: Section = {
  name: 'bookkeeping',
  measure: async ({plan, scratch, figures, say, again}) => {
    const {bookkeepingBurst: jobs, rounds} = plan.cluster
    const postgres = await startPostgres(scratch)
    const plain = Link.start<typeof PlainCommits>(scratch, 'plain-commits.ts')
    const url = await postgres.database()
    const commits = async () => {
      const {perSecond} = await plain.ask('commits', {url, clients: 1, ms: plan.submitMs})
      figures.add('one plain client, a commit each', '/s', perSecond)
      return perSecond
    }
    for (const slots of [FEW, WIDE]) {
      const flow = Link.start<typeof Flow>(scratch, 'flow.ts')
      const dataDir = await scratch.folder()
      say(`storing ${jobs} jobs, ${slots} slots`)
      const store = await postgres.database()
      await flow.ask('open', {dataDir, store, slots, executing: 'nothing', jobs})
      await flow.ask('burst', null)
      let before = await commits()
      for (let round = 0; again(round, rounds); round += 1) {
        say(`round ${round + 1} of ${rounds}: ${jobs} due, ${slots} slots`)
        const {perSecond, loopLagP99Ms} = await flow.ask('burst', null)
        const after = await commits()
        const label = `executions of nothing, ${slots} slots`
        figures.add(label, '/s', perSecond)
        figures.add(`${label} / commits of one client`, '×', (perSecond * 2) / (before + after))
        figures.add(
          `${jobs.toLocaleString('en-GB')} of them, ${slots} slots`,
          'ms',
          (jobs * SECOND_MS) / perSecond,
          {
            atMost: WITHIN_MS,
          },
        )
        figures.add(`main loop delay p99, ${slots} slots`, 'ms', loopLagP99Ms)
        before = after
      }
      await flow.ask('close', null)
      await flow.end()
      await scratch.remove(dataDir)
    }
    await plain.end()
  },
}
