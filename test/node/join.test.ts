/** Joining while another process has the same node id: the living process keeps it. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {type JoinOutcome, joinMember} from '../../src/node/join.ts'
import {aNode} from '../support/fixtures.ts'
import {beatAs} from '../support/single-calls.ts'
import {World} from '../support/world.ts'

const FRESH_MS = 10_000

/** A member that has just joined, and a newcomer with its identity. */
async function aCopiedNode() {
  const world = new World()
  const {clock, store} = world
  const {record} = aNode('web').with({incarnation: 'web-1'})
  await store.join({member: record}, FRESH_MS)
  const beat = () =>
    beatAs(store, {nodeId: record.id, incarnation: record.incarnation, status: 'alive'})
  let outcome: JoinOutcome | null = null
  const options = {store, clock, limits: {failedAfterMs: FRESH_MS}}
  const join = (waitMs: number, ended: readonly string[] = []) => {
    const request = {member: {...record, incarnation: 'web-2'}, ended}
    void joinMember({...options, waitMs}, request).then((result) => (outcome = result))
  }
  const kind = () => outcome?.kind ?? 'waits'
  return {clock, beat, join, kind}
}

describe('joining with an identity in use', () => {
  it('is refused with the next heartbeat of the other process', async () => {
    const {clock, beat, join, kind} = await aCopiedNode()
    join(12_000)
    await clock.advance(2_000)
    assert.equal(kind(), 'waits')
    assert.equal(await clock.finish(beat()), 'ok')
    await clock.advance(1_000)
    assert.equal(kind(), 'alive')
    assert.equal(await clock.finish(beat()), 'ok', 'the other process stays a member')
  })

  it('succeeds when the other process has been silent for long enough', async () => {
    const {clock, beat, join, kind} = await aCopiedNode()
    join(12_000)
    await clock.advance(9_000)
    assert.equal(kind(), 'waits')
    await clock.advance(2_000)
    assert.equal(kind(), 'joined')
    assert.equal(await clock.finish(beat()), 'fenced')
  })

  it('succeeds at once if the other process has ended', async () => {
    const {clock, join, kind} = await aCopiedNode()
    join(12_000, ['web-0', 'web-1'])
    await clock.advance(0)
    assert.equal(kind(), 'joined')
  })

  it('gives up after its limit if the other process may still be alive', async () => {
    const {clock, join, kind} = await aCopiedNode()
    join(3_000)
    await clock.advance(4_000)
    assert.equal(kind(), 'silent')
  })
})
