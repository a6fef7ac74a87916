/**
 * A process that writes as fast as it can until it is killed. It prints one line for each acknowledged write.
 * The crash test starts it with a data directory, whose store it continues. With `once` as the second
 * argument it only opens and closes the store.
 */
import {openSqliteStore} from '../../src/store/sqlite/store.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {anEnd, aSpec} from './exercise-store/scene.ts'
import {claimAs} from '../support/single-calls.ts'

const WRITERS = 6
const [dataDir, mode] = process.argv.slice(2)

function tell(line: string): void {
  process.stdout.write(`${line}\n`)
}

tell('opening')
const opened = await openSqliteStore({
  dataDir: dataDir!,
  clock: systemClock(),
  random: {id: () => crypto.randomUUID()},
})
if (!opened.ok) throw new Error(opened.problem)
const {store, recovered} = opened
tell(`opened ${recovered.uncleanStop}`)
let tokens = 0

/** Replaces one text repeatedly. */
async function rewrite(writer: number): Promise<never> {
  const name = `text-${writer}`
  for (let count = Number((await store.policy(name))?.rules ?? 0) + 1; ; count += 1) {
    await store.putPolicy({name, rules: String(count)})
    tell(`text ${name} ${count}`)
  }
}

/** Runs one job repeatedly; every second launch fails. Two generations of jobs depend on it. */
async function run(writer: number): Promise<never> {
  const name = `job-${writer}`
  const node = `n-${writer}`
  const incarnation = String(process.pid)
  const place = {address: '127.0.0.1', port: 1, tags: {}, server: false, runs: true}
  const member = {...place, id: node, name: node, incarnation, version: '1', slots: 9}
  await store.join({member}, 0)
  await store.markLost({
    term,
    nodeId: node,
    exceptIncarnation: null,
    observed: null,
    reason: 'node_restarted',
    limit: 100,
    jitter: 0,
  })
  const request = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
  await store.submit({spec: aSpec(name, {schedule: '@manually'}), ...request})
  const dependents = [
    [`first-${writer}`, name],
    [`second-${writer}`, name],
    [`third-${writer}`, `first-${writer}`],
  ] as const
  for (const [child, parentJob] of dependents)
    if ((await store.job(child)) === null)
      await store.submit({spec: aSpec(child, {schedule: '', parentJob}), ...request})
  for (;;) {
    const accepted = await store.requestRun({name, forced: true, idempotency: null})
    if (accepted.kind !== 'accepted') throw new Error(accepted.kind)
    const {group} = accepted
    tell(`asked ${name} ${group}`)
    const targets = [{nodeId: node, nodeName: node}]
    const launch = {group, revision: 1, kind: 'launch', targets, forbid: false} as const
    await store.applyLaunches({term, dues: [], requests: [launch]})
    const token = `${process.pid}-${(tokens += 1)}`
    const {claimed} = await claimAs(store, {nodeId: node, incarnation, token, room: 9})
    const status = group % 2 === 0 ? 'succeeded' : 'failed'
    await store.finish(claimed.map((each) => anEnd(each, status, {output: 'x'.repeat(3_000)})))
    for (const {execution} of claimed) tell(`ended ${name} ${execution.group}`)
  }
}

if (mode === 'once') {
  await store.close()
  process.exit()
}
await store.agreeTimezone('UTC')
const lease = await store.acquireLease({holder: 'writer', nodeId: 'n1', ttlMs: 60_000})
if (lease === null) throw new Error('the lease of the killed writer was not vacated')
const {term} = lease
await Promise.all(
  Array.from({length: WRITERS}, (_, writer) => [rewrite(writer), run(writer)]).flat(),
)
