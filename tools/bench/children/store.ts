/** The bare store without a server: measures submits, and fills it for other sections. */
import {aSpec, FlowNode, storeAll, submitting} from '../flow-node.ts'
import type {JobSpec} from '../../../src/core/job.ts'
import {answerQuestions} from '../link.ts'

const WORDS = ['backup', 'invoice', 'report', 'cleanup', 'import', 'export', 'mail', 'index']
const TEAMS = ['billing', 'search', 'platform', 'shop']

let node: FlowNode | null = null
let submitted = 0

export const handlers = {
  /** `store` is the connection string of a PostgreSQL; without one it is SQLite in the data directory. */
  open: async ({dataDir, store}: {dataDir: string; store?: string}): Promise<void> => {
    node = await FlowNode.open({dataDir, slots: 1, store})
  },

  /** New jobs, one write each, `inFlight` of them waiting for a commit at any time. */
  submit: async ({inFlight, ms}: {inFlight: number; ms: number}): Promise<{perSecond: number}> => {
    const {store} = node!
    const beganAt = performance.now()
    let count = 0
    const lane = async () => {
      while (performance.now() - beganAt < ms) {
        const spec = aSpec(`bare-${submitted++}`, {schedule: '@every 8760h'})
        await store.submit(submitting(spec))
        count += 1
      }
    }
    await Promise.all(Array.from({length: inFlight}, lane))
    return {perSecond: (count * 1000) / (performance.now() - beganAt)}
  },

  /** Stores realistic jobs, none of them due within a year. */
  fill: async ({jobs}: {jobs: number}): Promise<void> => {
    const specs = Array.from({length: jobs}, (_, index) => aJob(index))
    await storeAll(node!.store, specs)
  },

  close: async (_: null): Promise<void> => {
    await node!.close()
    node = null
  },
}

function aJob(index: number): JobSpec {
  const word = WORDS[index % WORDS.length]!
  const team = TEAMS[Math.floor(index / WORDS.length) % TEAMS.length]!
  return aSpec(`job-${String(index).padStart(6, '0')}`, {
    displayname: `${team} ${word} ${index}`,
    schedule: '@every 8760h',
    owner: team,
    ownerEmail: `${team}@example.org`,
    metadata: {team, kind: word},
    executorConfig: {command: `/usr/local/bin/${word} --team ${team} --number ${index}`},
  })
}

answerQuestions(handlers)
