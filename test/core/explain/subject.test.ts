/** The span that a text means, in the zone of the job. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {chooseLaunch, spanOf} from '../../../src/core/explain/subject.ts'
import {aLaunch} from '../../support/fixtures.ts'

const SPANS: readonly (readonly [text: string, zone: string, from: string, until: string])[] = [
  ['2026-11-22', 'UTC', '2026-11-22T00:00:00.000Z', '2026-11-23T00:00:00.000Z'],
  ['2026-11-22', 'Europe/Berlin', '2026-11-21T23:00:00.000Z', '2026-11-22T23:00:00.000Z'],
  // A day of 23 hours, and one of 25.
  ['2026-03-29', 'Europe/Berlin', '2026-03-28T23:00:00.000Z', '2026-03-29T22:00:00.000Z'],
  ['2026-10-25', 'Europe/Berlin', '2026-10-24T22:00:00.000Z', '2026-10-25T23:00:00.000Z'],
  ['2026-11-22T02:30', 'Europe/Berlin', '2026-11-22T01:30:00.000Z', '2026-11-22T01:31:00.000Z'],
  ['2026-11-22T02:30:05', 'UTC', '2026-11-22T02:30:05.000Z', '2026-11-22T02:30:06.000Z'],
  ['2026-11-22T02:30:00+01:00', 'UTC', '2026-11-22T01:30:00.000Z', '2026-11-22T01:31:00.000Z'],
  // A wall time that does not exist is the instant after the gap.
  ['2026-03-29T02:30', 'Europe/Berlin', '2026-03-29T01:30:00.000Z', '2026-03-29T01:31:00.000Z'],
]
for (const [text, zone, from, until] of SPANS)
  test(`${text} in ${zone} is from ${from} until ${until}`, () => {
    const span = spanOf(text, zone)!
    const shown = [span.from, span.until].map((at) => new Date(at).toISOString())
    assert.deepEqual(shown, [from, until])
  })

test('a text that is no time has no span', () => {
  for (const text of ['', 'yesterday', '2026-02-30', '2026-11-22T25:00'])
    assert.equal(spanOf(text, 'UTC'), null)
})

test('of a day the newest launch that did not run is chosen, then one that failed, then the newest', () => {
  const day = {kind: 'at', text: '2026-03-01'} as const
  const launched = aLaunch(3).with({status: 'success'}).record
  const failed = aLaunch(2).with({status: 'failed'}).record
  const skipped = aLaunch(1).decided('skipped', 'forbid').record
  assert.equal(chooseLaunch([launched, failed, skipped], day), skipped)
  assert.equal(chooseLaunch([launched, failed], day), failed)
  assert.equal(chooseLaunch([launched], day), launched)
  assert.equal(chooseLaunch([], day), null)
})

test('of a minute the first planned time is chosen, before requests by hand', () => {
  const minute = {kind: 'at', text: '2026-03-01T12:00'} as const
  const [second, first, manual] = [
    aLaunch(3).record,
    aLaunch(2).record,
    aLaunch(1).with({cause: 'manual'}).record,
  ]
  assert.equal(chooseLaunch([second, first, manual], minute), first)
  assert.equal(chooseLaunch([manual], minute), manual)
})
