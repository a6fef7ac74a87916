/**
 * The store unreachable for longer than the failure timeout: running executions continue, and no node is
 * marked as failed for lack of heartbeats. `trial.test.ts` has the shorter outage, under load.
 */
import assert from 'node:assert/strict'
import {existsSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {isOver, temporaryDirectory, type Answer} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {ClusterProcess} from '../../tools/faults/cluster-process.ts'
import {Faults} from '../../tools/faults/faults.ts'
import {AGENT_FLAGS, elapse} from '../../tools/faults/load.ts'

/** Exceeds the 25 s after which a reachable leader marks a node without heartbeats as failed. */
const LONG_AWAY_MS = 27_000
const NODES = {server: ['north', 'east', 'west'], agent: ['agent-1']}

test('a store away for longer than the failure timeout: executions continue, results follow', async (t) => {
  const cluster = await ClusterProcess.start(t, {isCuttable: true})
  for (const name of NODES.agent) await cluster.startAgent(name, {flags: AGENT_FLAGS})
  const server = cluster.server('north')
  const folder = temporaryDirectory(t)
  const names = await runEverywhere(t, cluster, folder)
  const faults = new Faults(cluster)
  await faults.killStore(async () => {
    await elapse(LONG_AWAY_MS / 2)
    for (const name of names.ending) writeFileSync(join(folder, `${name}.go`), '')
    await until('those have ended', () =>
      names.ending.every((name) => existsSync(join(folder, `${name}.ended`))),
    )
    await elapse(LONG_AWAY_MS / 2)
  })
  await cluster.agreedLeader()
  for (const name of names.staying) writeFileSync(join(folder, `${name}.go`), '')
  const statuses = async (name: string) =>
    (await server.executions(name)).map(({status}: Answer['json']) => status)
  for (const name of [...names.ending, ...names.staying]) {
    await server.execution(name, isOver)
    assert.deepEqual(await statuses(name), ['succeeded'], name)
  }
  // Each server notices by itself, with its next statement.
  await until('the log says that the store is back', () =>
    server.program.stderr().includes('the store answers again'),
  )
  const log = server.program.stderr()
  const sentences =
    /the store is unavailable: (?!step)[^"]*; retrying until it answers|the store answers again/g
  const outages = [...log.matchAll(sentences)].map(([sentence]) => sentence.slice(0, 24))
  assert.deepEqual(outages, ['the store is unavailable', 'the store answers again'], log)
})

/** On each node, one run that ends during the outage and one that ends after it. */
async function runEverywhere(t: TestContext, cluster: ClusterProcess, folder: string) {
  const server = cluster.server('north')
  const names = {ending: [] as string[], staying: [] as string[]}
  for (const node of [...NODES.server, ...NODES.agent])
    for (const kind of ['ending', 'staying'] as const) {
      const name = `${kind}-${node}`
      const file = join(folder, name)
      const wait = `while [ ! -e ${file}.go ]; do sleep 0.1; done`
      await server.store({
        name,
        schedule: '@manually',
        tags: {node},
        retries: 1,
        executor: 'shell',
        executor_config: {shell: 'true', command: `${wait}; touch ${file}.ended`},
      })
      await server.run(name)
      await server.execution(name, ({status}) => status === 'running')
      names[kind].push(name)
    }
  t.diagnostic(`${names.ending.length + names.staying.length} runs`)
  return names
}
