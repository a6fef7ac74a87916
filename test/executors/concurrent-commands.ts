/** Starts many commands at once and prints their outcomes as JSON, for a test that limits descriptors. */
import {aNode, aRun, KeepingSink} from './support.ts'

const [spawn, count] = process.argv.slice(2)
const node = await aNode({spawn: spawn as 'auto' | 'portable'})
const ends = await Promise.all(
  Array.from({length: Number(count)}, async (_, index) => {
    const sink = new KeepingSink()
    const run = aRun({command: `sleep 0.05; echo ${index}`, shell: 'true'})
    const end = await node.executors.get('shell')!.start(run, sink).ended
    return {outcome: end.outcome, foot: end.foot, text: sink.text}
  }),
)
await node.close()
process.stdout.write(JSON.stringify(ends))
