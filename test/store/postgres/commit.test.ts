/** Outcomes of a batch of writes whose transactions end as scripted. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {OutcomeUnknown, StoreUnavailable} from '../../../src/ports/store-errors.ts'
import {
  committer,
  type CommitParts,
  type TransactResult,
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
  error: new Error('the connection broke during the commit'),
}
const AWAY: TransactResult = {
  kind: 'failed',
  errorKind: 'unavailable',
  error: new Error('canceling statement due to lock timeout'),
}

interface Committed {
  /** Result or error class of each write. */
  readonly outcomes: unknown[]
  readonly tries: number
  readonly elapsedMs: number
}

/** Commits a batch whose transactions end like `ends`, the last one repeated; each takes `tryMs`. */
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
  // The scripted pool never reaches the other parts.
  const parts = {clock: {monotonicMs: () => elapsedMs}} as CommitParts
  const results = await committer(parts, {use} as unknown as SessionPool)(writesOf(count))
  const outcomes = results.map((each) => (each instanceof Error ? each.constructor : each))
  return {outcomes, tries, elapsedMs}
}

describe('a batch of writes', () => {
  it('that fails is tried write by write, and each write has its own outcome', async () => {
    const alone: TransactResult = {kind: 'committed', results: [['ok']]}
    const {outcomes} = await committed([AWAY, alone, AWAY])
    assert.deepEqual(outcomes, [['ok'], StoreUnavailable])
  })

  it('whose commit may have happened is never reported as not stored', async () => {
    assert.deepEqual((await committed([LOST, AWAY])).outcomes, [OutcomeUnknown, OutcomeUnknown])
    const {outcomes} = await committed([LOST, AWAY], {count: 256, tryMs: 2_000})
    assert.deepEqual(new Set(outcomes), new Set([OutcomeUnknown]))
  })

  it('that fails slowly is rejected within the time limit', async () => {
    const {outcomes, tries, elapsedMs} = await committed([AWAY], {count: 256, tryMs: 2_000})
    assert.deepEqual(new Set(outcomes), new Set([StoreUnavailable]))
    assert(elapsedMs <= 8_000, `${tries} tries in ${elapsedMs} ms`)
  })

  it('with one bad write is split only around that write', async () => {
    const piece: TransactResult = {
      kind: 'committed',
      results: [Array.from({length: 32}, () => 'ok')],
    }
    // The batch, one of 8 pieces of 32, one of 8 of 4, the write alone; then the remaining pieces.
    const {outcomes, tries} = await committed([AWAY, AWAY, AWAY, AWAY, piece], {count: 256})
    assert.deepEqual(outcomes, [StoreUnavailable, ...Array.from({length: 255}, () => ['ok'])])
    assert.equal(tries, 4 + 3 + 7 + 7)
  })
})
