/** `belfry members` and `belfry node`, against the real API. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {INCARNATION} from '../http/harness.ts'
import {beatAs} from '../support/single-calls.ts'
import {commands} from './real-api.ts'

test('a node is cordoned, drained and uncordoned, and members show it', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  await api.job('w')
  const claimed = await api.running('w')
  assert.match((await run('members')).out, /^node-a {2}alive {3}leader {2}1\/16 {5}0 /m)
  assert.match((await run('node', 'cordon', 'node-a')).out, /^node-a is cordoned: .* 1 execution /)
  const drained = await run('node', 'drain', 'node-a', '--deadline', '2m')
  assert.match(
    drained.out,
    /^node-a is draining: 1 execution may run until .* \(in 2m\), then Belfry stops it\n/,
  )
  assert.match((await run('members')).out, /^node-a {2}alive, draining {2}leader/m)
  await api.finish(claimed)
  const waited = await run('node', 'drain', 'node-a', '--wait')
  assert.deepEqual(
    [waited.code, waited.out],
    [0, 'node-a is drained: nothing runs on it, and it takes no new work\n'],
  )
  const json = JSON.parse((await run('node', 'uncordon', 'node-a', '--json')).out)
  assert.equal(json.scheduling, 'active')
})

test('a drain says that a node has failed or left, and --wait fails for a failed one', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  const node = {nodeId: 'id-of-node-a', incarnation: INCARNATION}
  await beatAs(api.store, {...node, status: 'failed'})
  const failed = 'node-a has failed: what it ran was declared lost, and may still run'
  const now = await run('node', 'drain', 'node-a')
  const back = 'It is drained: it takes no new work when it is back\n'
  assert.deepEqual([now.code, now.out], [0, `${failed}\n${back}`])
  const waited = await run('node', 'drain', 'node-a', '--wait')
  assert.deepEqual([waited.code, waited.out, waited.err], [1, '', `belfry: ${failed}.\n`])
  assert.match((await run('members')).out, /^node-a {2}failed, drained {2}/m)
  await beatAs(api.store, {...node, status: 'left'})
  const left = await run('node', 'drain', 'node-a', '--wait')
  assert.deepEqual([left.code, left.out], [0, `node-a has left: it runs nothing\n${back}`])
})

test('a wrong node or deadline is refused with a sentence', async (t) => {
  const {run} = await commands(t)
  assert.equal((await run('node', 'cordon', 'x')).err, 'belfry: There is no member "x".\n')
  const wrong = await run('node', 'drain', 'x', '--deadline', 'soon')
  assert.equal(wrong.code, 2)
  assert.match(wrong.err, /^belfry: --deadline must be a duration such as 10m or 1h30m, not "soon"/)
})
