/** The end of a certificate is announced once a day while it is near, and a renewed one ends that. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {CertificateWatch} from '../../src/telemetry/certificate-watch.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const DAY_MS = 86_400_000

function aWatch() {
  const clock = new VirtualClock()
  const events = new RecordedEvents()
  const watch = new CertificateWatch({clock, events, setting: '--tls-cert'})
  const useFor = (days: number) => watch.use({expiresAt: clock.now() + days * DAY_MS})
  const daysLeft = () => events.of('certificate_expires').map((data) => data.days_left)
  return {clock, events, watch, useFor, daysLeft}
}

test('a certificate is announced daily from 14 days before its end, and afterwards', async () => {
  const {clock, watch, useFor, daysLeft} = aWatch()
  useFor(15.5)
  assert.deepEqual(daysLeft(), [])
  await clock.advance(2 * DAY_MS)
  assert.deepEqual(daysLeft(), [13])
  await clock.advance(14 * DAY_MS)
  assert.deepEqual(daysLeft(), [13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, -1])
  watch.stop()
  assert.equal(clock.waiting, 0)
})

test('a certificate near its end is announced at the start, a renewed one is not', async () => {
  const {clock, events, watch, useFor, daysLeft} = aWatch()
  useFor(3.5)
  const expiresAt = watch.expiresAt
  assert.deepEqual(events.of('certificate_expires'), [
    {setting: '--tls-cert', expires_at: expiresAt, days_left: 3},
  ])
  useFor(90)
  await clock.advance(60 * DAY_MS)
  assert.deepEqual(daysLeft(), [3])
  assert.equal(watch.expiresAt! - clock.now(), 30 * DAY_MS)
  watch.use(null)
  assert.deepEqual([watch.expiresAt, clock.waiting], [null, 0])
})
