/** Removal of members that have left or failed, and paging of members. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {MemberStatus} from '../../src/core/node.ts'
import {startApi, type Api} from './harness.ts'
import {beatAs} from '../support/single-calls.ts'

/** Adds another member to the cluster, failed unless said otherwise. */
async function aMember(
  api: Api,
  {id, name = 'node-b', status = 'failed'}: {id: string; name?: string; status?: MemberStatus},
): Promise<void> {
  const common = {address: '127.0.0.1', port: 1, tags: {}, server: false, runs: true}
  const member = {...common, id, name, incarnation: 'life', version: '0.1.0', slots: 4}
  assert.equal((await api.store.join({member}, 0)).kind, 'joined')
  await beatAs(api.store, {nodeId: id, incarnation: 'life', status})
}

test('a member that has left or failed is removed, by name or id', async (t) => {
  const api = await startApi(t)
  await api.join()
  await aMember(api, {id: 'b-1'})
  const before = (await api.get('/v1/members')).json
  const removed = await api.delete('/v1/members/node-b')
  assert.equal(removed.status, 200)
  assert.deepEqual(removed.json, before[1])
  assert.deepEqual((await api.get('/v1/members')).json, [before[0]])
  assert.deepEqual(api.events.of('member_changed'), [{node: 'node-b', status: 'removed'}])
  const again = await api.delete('/v1/members/node-b')
  assert.deepEqual([again.status, again.json.code], [404, 'member_unknown'])
  await aMember(api, {id: 'b-2', status: 'left'})
  assert.equal((await api.delete('/v1/members/b-2')).json.Status, 3)
  for (const invalid of ['%20', 'a%2Fb', '%C3%BC', 'node-%5B'])
    assert.equal((await api.delete(`/v1/members/${invalid}`)).json.code, 'member_unknown', invalid)
})

test('an alive or leaving member cannot be removed', async (t) => {
  const api = await startApi(t)
  await api.join()
  await aMember(api, {id: 'b-1', status: 'leaving'})
  for (const [wanted, status] of [
    ['node-a', 'alive'],
    ['id-of-node-a', 'alive'],
    ['node-b', 'leaving'],
  ]) {
    const {status: replied, json} = await api.delete(`/v1/members/${wanted}`)
    assert.deepEqual([replied, json.code, json.member_status], [409, 'member_present', status])
  }
  assert.equal((await api.get('/v1/members')).json.length, 2)
})

test('an ambiguous name means the removable member; of several it is rejected with their ids', async (t) => {
  const api = await startApi(t)
  await api.join()
  for (const id of ['b-1', 'b-2', 'b-3']) await aMember(api, {id, status: 'left'})
  await beatAs(api.store, {nodeId: 'b-3', incarnation: 'life', status: 'alive'})
  const both = await api.delete('/v1/members/node-b')
  assert.deepEqual([both.status, both.json.code], [409, 'member_ambiguous'])
  assert.deepEqual(both.json.ids, ['b-1', 'b-2'])
  assert.match(both.json.detail, / 2 members called node-b .* such as b-1 or b-2\.$/)
  assert.equal((await api.delete('/v1/members/b-1')).status, 200)
  assert.equal((await api.delete('/v1/members/node-b')).json.id, 'b-2')
  assert.equal((await api.delete('/v1/members/node-b')).json.code, 'member_present')
})

test('executions of a removed member become lost, are retried and emit events', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('w', {retries: 1})
  await api.running('w')
  const before = (await api.get('/v1/jobs/w/executions')).json[0]
  await beatAs(api.store, {
    nodeId: 'id-of-node-a',
    incarnation: 'first-incarnation',
    status: 'failed',
  })
  assert.equal((await api.delete('/v1/members/node-a')).status, 200)
  const after = (await api.get('/v1/jobs/w/executions?status=all')).json
  assert.deepEqual(
    after.map(({id, status}: {id: string; status: string}) => [id, status]),
    [
      [before.id.replace(/1$/, '2'), 'pending'],
      [before.id, 'lost'],
    ],
  )
  assert.deepEqual(
    api.events.of('execution_finished').map(({execution, retried}) => [execution, retried]),
    [[before.id, true]],
  )
  assert.ok(api.wakeup.notified.includes('run'))
})

test('members are paged, with the total in X-Total-Count', async (t) => {
  const api = await startApi(t)
  await api.join()
  for (const id of ['b-1', 'b-2']) await aMember(api, {id, name: id})
  const {json: all, headers} = await api.get('/v1/members')
  assert.equal(headers['x-total-count'], '3')
  for (const [query, rows] of [
    ['?_start=1', all.slice(1)],
    ['?_start=1&_end=2', all.slice(1, 2)],
    ['?_start=-1&_end=2', all.slice(0, 2)],
    ['?_start=9', []],
  ] as const) {
    const page = await api.get(`/v1/members${query}`)
    assert.deepEqual([page.status, page.json], [200, rows], query)
    assert.equal(page.headers['x-total-count'], '3')
  }
})
