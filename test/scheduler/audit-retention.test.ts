/** Retention of the audit log: rounds of batches, and the end of a term. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {PruneAuditRequest} from '../../src/ports/audit-store.ts'
import {TermOver} from '../../src/ports/store-errors.ts'
import {AuditRetention} from '../../src/scheduler/retention.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

test('a round visits all entries in batches, and the next one begins a minute later', async () => {
  const clock = new VirtualClock()
  const asked: PruneAuditRequest[] = []
  let isOver = false
  let termOver = 0
  const retention = new AuditRetention({
    store: {
      pruneAudit: async (request) => {
        asked.push(request)
        if (isOver) throw new TermOver('another leader')
        const next = request.after + 5
        return {next, isRoundOver: next === 15, rowsDeleted: 0}
      },
    },
    term: 7,
    onTermOver: () => void (termOver += 1),
    clock,
    events: new RecordedEvents(),
    keepMs: 1_000,
    keepEntries: 2_000,
    keepBytes: 3_000,
  })
  retention.start()
  await clock.advance(59_000)
  const positions = () => asked.splice(0).map(({after}) => after)
  const [{term, keepMs, keepEntries, keepBytes} = assert.fail()] = asked
  assert.deepEqual([term, keepMs, keepEntries, keepBytes], [7, 1_000, 2_000, 3_000])
  assert.deepEqual(positions(), [0, 5, 10])
  await clock.advance(2_000)
  assert.deepEqual(positions(), [0, 5, 10])
  isOver = true
  await clock.advance(60_000)
  assert.equal(termOver > 0, true)
  await clock.finish(retention.stop())
})
