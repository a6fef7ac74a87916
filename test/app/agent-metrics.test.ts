/** The metrics of an agent, opened by its composition root. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {openAgentMetrics} from '../../src/app/agent-metrics.ts'
import {loadAgentConfig} from '../../src/config/agent.ts'
import {openLog} from '../../src/telemetry/log.ts'
import {CERTIFICATE, OTHER_CERTIFICATE, OTHER_KEY, PRIVATE_KEY} from '../support/certificate.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

function load(cert: string, key: string) {
  const files: Record<string, string> = {cert, key}
  const readFile = (path: string) => files[path.split('/').at(-1)!]!
  const argv = ['--server', 'http://127.0.0.1:1', '--metrics', '127.0.0.1:0']
  const tls = ['--metrics-tls-cert', 'cert', '--metrics-tls-key', 'key']
  const host = {name: 'a', cores: 1, timezone: 'UTC', directory: '/', readFile}
  const loaded = loadAgentConfig([...argv, ...tls], {}, host)
  assert.ok(loaded.ok)
  return loaded.config
}

test('an agent announces the end of the certificate of its metrics, and of one read again', async () => {
  const events = new RecordedEvents()
  const clock = new VirtualClock(Date.parse('2126-10-25T06:00:00Z'))
  const log = openLog({
    level: 'silent',
    pretty: false,
    colours: false,
    node: 'a',
    destination: {write: () => undefined},
  })
  const metrics = await openAgentMetrics({
    config: load(CERTIFICATE, PRIVATE_KEY),
    clock,
    events,
    log,
    state: () => ({isConnected: true, slots: 1, running: 0, resultsWaiting: 0}),
  })
  metrics!.configure(load(OTHER_CERTIFICATE, OTHER_KEY))
  await metrics!.close()
  const ends = events.of('certificate_expires')
  assert.deepEqual(
    ends.map((data) => [data.setting, new Date(data.expires_at).toISOString(), data.days_left]),
    [
      ['--metrics-tls-cert', '2126-10-28T06:00:00.000Z', 3],
      ['--metrics-tls-cert', '2126-10-29T13:40:07.000Z', 4],
    ],
  )
  assert.equal(clock.waiting, 0)
})
