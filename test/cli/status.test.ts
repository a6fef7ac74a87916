/** `belfry status` and its exit code, and what a person is asked to confirm. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {commands} from './real-api.ts'

test('the first line and the exit code of status say whether the cluster is healthy', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  const healthy = await run('status')
  assert.equal(healthy.code, 0)
  assert.match(
    healthy.out,
    /^healthy: leader node-a \(term 1\), 1 of 1 node alive, nothing waits\n/,
  )
  assert.match(healthy.out, /\nrunning {6}0 of 16 slots\n/)
  assert.doesNotMatch(healthy.out, /cluster_id/)
  assert.ok(healthy.out.split('\n').every(({length}) => length <= 80))
  assert.match((await run('status', '--all')).out, /\n {2}cluster_id /)
  await run('node', 'cordon', 'node-a')
  const down = await run('status')
  assert.deepEqual([down.code, down.out.split('\n')[0]], [1, 'down: no node takes work'])
  assert.match(down.out, /\nnodes {8}1 alive, 1 cordoned\n/)
  const json = await run('status', '--json')
  assert.deepEqual([json.code, JSON.parse(json.out).gossip.health], [1, 'down'])
})

test('a person confirms a leave and the deletion of a job; a script is not asked', async (t) => {
  const {api, run, state} = await commands(t)
  await api.join()
  await api.job('w')
  state.answer = ''
  const leave = await run('leave')
  assert.equal(leave.err, 'Stop the server node-a? [y/N] belfry: Nothing was changed.\n')
  assert.deepEqual([leave.code, leave.out, api.leaveCalls], [1, '', 0])
  const kept = await run('jobs', 'delete', 'w')
  assert.match(kept.err, /^Delete the job w and its history\? \[y\/N\] belfry: Nothing was changed/)
  assert.equal((await run('jobs', 'delete', 'w', '--yes')).out, 'deleted w\n')
  state.answer = 'y'
  assert.match((await run('leave')).out, /^node-a is stopping: /)
  state.answer = null
  assert.deepEqual([(await run('leave')).err, api.leaveCalls], ['', 2])
})
