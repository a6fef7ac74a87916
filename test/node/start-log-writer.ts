/**
 * Process that records started executions until the start log proves nothing any more, then prints the
 * result. A process of its own, so that its test can limit the size of the files that it may write.
 */
import {StartLog} from '../../src/node/start-log.ts'

const STARTED_MAX = 1_000

const [directory = ''] = process.argv.slice(2)
const reports: string[] = []
const log = new StartLog({
  directory,
  incarnation: 'a-incarnation',
  report: (sentence) => reports.push(sentence),
})
let started = 0
while (reports.length === 0 && started < STARTED_MAX) {
  started += 1
  await log.begin({group: started, node: 'web', attempt: 1})
}
await log.begin({group: started + 1, node: 'web', attempt: 1})
process.stdout.write(JSON.stringify({started, reports}))
