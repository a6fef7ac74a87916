/** What a batch of writes is told when its transactions end as a script says. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {OutcomeUnknown, StoreUnavailable} from '../../../src/ports/store-errors.ts'
import {
  type TransactResult,
  type TransactParts,
  Committer,
} from '../../../src/store/postgres/commit.ts'
import type {SessionPool} from '../../../src/store/postgres/pool.ts'
import type {Write} from '../../../src/store/postgres/write-plan.ts'

function writesOf(count: number): Write[] {
  return Array.from({length: count}, (_, index) => {
    return {name: 'appendOutput', input: [[{key: {group: index}}]]}
  })
}

const LOST: TransactResult = {
  kind: 'unknown',
  error: new Error('the connection broke amid the commit'),
}
const AWAY: TransactResult = {
  kind: 'failed',
  errorKind: 'unavailable',
  error: new Error('canceling statement due to lock timeout'),
}

interface Committed {
  /** What each write was told. */
  readonly told: unknown[]
  readonly tries: number
  readonly elapsedMs: number
}

/**
 * A committer whose transactions end like this, one after the other, the last one again and again; each of
 * them takes as long.
 */
async function committed(
  ends: readonly TransactResult[],
  {count = 2, tryMs = 0} = {},
): Promise<Committed> {
  let tries = 0
  let elapsedMs = 0
  const use = () => {
    elapsedMs += tryMs
    return Promise.resolve(ends[Math.min(tries++, ends.length - 1)]!)
  }
  // What carries a transaction out is never reached.
  const parts = {clock: {monotonicMs: () => elapsedMs}} as TransactParts
  const committer = new Committer(parts, {use} as unknown as SessionPool)
  const writes = writesOf(count)
  const outcomes = await committer.commit(writes)
  const told = writes.map((write) => {
    const outcome = outcomes.get(write)!
    return outcome.ok ? outcome.result : outcome.error.constructor
  })
  return {told, tries, elapsedMs}
}

describe('a batch', () => {
  it('that fails is tried write by write, and each is told its own end', async () => {
    const alone: TransactResult = {kind: 'committed', results: [['ok']]}
    const {told} = await committed([AWAY, alone, AWAY])
    assert.deepEqual(told, [['ok'], StoreUnavailable])
  })

  it('whose first commit may have happened never says that nothing was stored', async () => {
    assert.deepEqual((await committed([LOST, AWAY])).told, [OutcomeUnknown, OutcomeUnknown])
    const {told} = await committed([LOST, AWAY], {count: 256, tryMs: 2_000})
    assert.deepEqual(new Set(told), new Set([OutcomeUnknown]))
  })

  it('that fails slowly is given up in time, each of its writes being told', async () => {
    const {told, tries, elapsedMs} = await committed([AWAY], {count: 256, tryMs: 2_000})
    assert.deepEqual(new Set(told), new Set([StoreUnavailable]))
    assert(elapsedMs <= 8_000, `${tries} tries in ${elapsedMs} ms`)
  })

  it('with one write that fails is cut smaller only where that one is', async () => {
    const piece: TransactResult = {
      kind: 'committed',
      results: [Array.from({length: 32}, () => 'ok')],
    }
    // Together, as one of 8 pieces of 32, as one of 8 of 4, alone; the rest is in pieces as they were cut.
    const {told, tries} = await committed([AWAY, AWAY, AWAY, AWAY, piece], {count: 256})
    assert.deepEqual(told, [StoreUnavailable, ...Array.from({length: 255}, () => ['ok'])])
    assert.equal(tries, 4 + 3 + 7 + 7)
  })
})
