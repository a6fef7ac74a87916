/** What a batch of writes is told when its transactions end as a script says. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {OutcomeUnknown, StoreUnavailable} from '../../../src/ports/store-failure.ts'
import type {Attempt, AttemptParts} from '../../../src/stores/postgres/attempt.ts'
import {Committer} from '../../../src/stores/postgres/committer.ts'
import type {SessionPool} from '../../../src/stores/postgres/session-pool.ts'
import type {Write} from '../../../src/stores/postgres/unit.ts'

const WRITES: readonly Write[] = ['n1', 'n2'].map((nodeId) => ({
  name: 'beat',
  input: [{nodeId, incarnation: 'life', status: 'alive'}],
}))
const LOST: Attempt = {kind: 'unknown', error: new Error('the connection broke amid the commit')}
const AWAY: Attempt = {
  kind: 'failed',
  verdict: 'unavailable',
  error: new Error('canceling statement due to lock timeout'),
}

/** A committer whose transactions end like this, one after the other, the last one again and again. */
async function committed(ends: readonly Attempt[]): Promise<unknown[]> {
  let tries = 0
  const use = () => Promise.resolve(ends[Math.min(tries++, ends.length - 1)]!)
  // What carries a transaction out is never reached.
  const parts = {clock: {monotonicMs: () => 0}} as AttemptParts
  const committer = new Committer(parts, {use} as unknown as SessionPool)
  const outcomes = await committer.commit(WRITES)
  return WRITES.map((write) => {
    const outcome = outcomes.get(write)!
    return outcome.ok ? outcome.result : outcome.error.constructor
  })
}

describe('a batch', () => {
  it('that fails is tried write by write, and each is told its own end', async () => {
    const alone: Attempt = {kind: 'committed', results: ['ok']}
    assert.deepEqual(await committed([AWAY, alone, AWAY]), ['ok', StoreUnavailable])
  })

  it('whose first commit may have happened never says that nothing was stored', async () => {
    assert.deepEqual(await committed([LOST, AWAY]), [OutcomeUnknown, OutcomeUnknown])
  })
})
