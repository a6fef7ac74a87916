/**
 * A life that records what it begins until it is told that it proves nothing any more, then says what became
 * of it. A process of its own, so that its test can bound the size of the files it may write.
 */
import {StartLog} from '../../src/node/start-log.ts'

const BEGUN_MAX = 1_000

const [directory = ''] = process.argv.slice(2)
const reports: string[] = []
const file = new StartLog({
  directory,
  incarnation: 'a-life',
  report: (sentence) => reports.push(sentence),
})
let begun = 0
while (reports.length === 0 && begun < BEGUN_MAX) {
  begun += 1
  await file.begin({group: begun, node: 'web', attempt: 1})
}
await file.begin({group: begun + 1, node: 'web', attempt: 1})
process.stdout.write(JSON.stringify({begun, reports}))
