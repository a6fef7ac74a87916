/**
 * A node that tests kill: it owns a helper, starts the given commands, and reports when they run. Not a
 * test.
 */
import {createExecutors} from '../../src/executors/registry.ts'
import {KeepingSink, realClock} from './support.ts'

const [dataDir, nodeId, ...commands] = process.argv.slice(2)
const executors = createExecutors({
  dataDir: dataDir!,
  nodeId: nodeId!,
  clock: realClock,
  environment: process.env,
  suAllowed: [],
  allowed: [],
  netAllow: [],
  netDeny: [],
  // Exceeds any test: what is left over after a kill -9 is not ended by the old helper's own KILL.
  killAfterMs: 60_000,
  drainMs: 200,
  spawn: 'auto',
  report: () => undefined,
})
await executors.start()
let number = 1
for (const command of commands) {
  const sink = new KeepingSink()
  executors.get('shell')!.start(
    {
      executionId: `${number++}-owner-1`,
      jobName: 'orphan',
      nodeName: 'owner',
      attempt: 1,
      scheduledAt: 0,
      config: {command, shell: 'true'},
    },
    sink,
  )
  await sink.until('ready')
}
process.stdout.write('standing\n')
setInterval(() => undefined, 60_000)
