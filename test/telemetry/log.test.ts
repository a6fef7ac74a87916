import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {Step} from '../../src/core/steps.ts'
import {localEvents} from '../../src/telemetry/event-bus.ts'
import type {LogLevel} from '../../src/config/values.ts'
import {logEvents, openLog} from '../../src/telemetry/log.ts'

const clock = {now: () => 0, monotonicMs: () => 0, after: () => ({cancel: () => {}})}

function logInto(level: LogLevel, pretty = false) {
  const lines: string[] = []
  const log = openLog({
    level,
    pretty,
    colours: false,
    node: 'tower',
    destination: {write: (line) => void lines.push(line)},
  })
  return {log, lines}
}

test('a line is one JSON object with level, time, node and the event fields', () => {
  const {log, lines} = logInto('info')
  log.logger.info({job: 'a'}, 'hello')
  const line = JSON.parse(lines[0]!) as Record<string, unknown>
  assert.match(String(line['time']), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  assert.deepEqual(
    {...line, time: ''},
    {level: 'info', time: '', on: 'tower', job: 'a', msg: 'hello'},
  )
})

test('secrets are redacted in nested fields', () => {
  const {log, lines} = logInto('info')
  const secret = 'sixteen-or-more-characters'
  log.logger.info({token: secret})
  log.logger.info({config: {token: secret}})
  log.logger.info({headers: {authorization: `Bearer ${secret}`}})
  log.logger.info({req: {headers: {'x-service-token': secret, 'x-dkron-token': secret}}})
  assert.equal(lines.length, 4)
  for (const line of lines) {
    assert.ok(!line.includes(secret), line)
    assert.match(line, /\[secret\]/)
  }
})

test('lines are plain text on a terminal', () => {
  const {log, lines} = logInto('info', true)
  log.logger.info({job: 'a'}, 'hello')
  assert.match(lines.join(''), /INFO.*hello.*"job":"a"/)
})

test('each event has its log level', () => {
  const loudness = (level: LogLevel) => {
    const {log, lines} = logInto(level)
    const events = localEvents(clock)
    const stop = logEvents(events, log.logger)
    events.emit('execution_started', {job: 'a', execution: '1-n-1', node: 'n', attempt: 1})
    const end = {
      job: 'a',
      execution: '1-n-1',
      node: 'n',
      attempt: 1,
      duration_ms: 5,
      retried: false,
    }
    events.emit('execution_finished', {...end, status: 'succeeded'})
    events.emit('execution_finished', {...end, status: 'failed'})
    events.emit('execution_output', {job: 'a', execution: '1-n-1', total_bytes: 9})
    events.emit('step_failed', {step: 'launch', message: 'no store'})
    stop()
    events.emit('step_failed', {step: 'launch', message: 'not logged'})
    return lines.map((line) => {
      const {level: logged, msg} = JSON.parse(line) as {level: string; msg: string}
      return `${logged} ${msg}`
    })
  }
  assert.deepEqual(loudness('debug'), [
    'debug execution started',
    'debug execution ended: succeeded',
    'info execution ended: failed',
    'error step failed',
  ])
  assert.deepEqual(loudness('info'), ['info execution ended: failed', 'error step failed'])
  assert.deepEqual(loudness('silent'), [])
})

test('a repeatedly failing step logs one line every ten seconds with the number of omitted failures', () => {
  const {log, lines} = logInto('info')
  let now = 0
  const events = localEvents({...clock, now: () => now})
  logEvents(events, log.logger)
  const fails = (step: Step, times: number) => {
    const from = lines.length
    for (let time = 0; time < times; time += 1)
      events.emit('step_failed', {step, message: `time ${time}`})
    return lines.slice(from).map((line) => {
      const {message, left_out: leftOut} = JSON.parse(line) as Record<string, unknown>
      return [message, leftOut]
    })
  }
  assert.deepEqual(fails('launch', 50), [['time 0', undefined]])
  assert.deepEqual(fails('mark_lost', 2), [['time 0', undefined]], 'each step for itself')
  now = 9_999
  assert.deepEqual(fails('launch', 1), [])
  now = 10_000
  assert.deepEqual(fails('launch', 2), [['time 0', 50]])
  now = 20_000
  assert.deepEqual(fails('launch', 1), [['time 0', 1]])
  now = 30_000
  assert.deepEqual(fails('launch', 1), [['time 0', undefined]], 'nothing was left out')
  now = -3_600_000
  assert.deepEqual(fails('launch', 1), [['time 0', undefined]], 'the clock was set back')
})

test('a job without a node, or a late one, has one line when that begins and one when it ends', () => {
  const {log, lines} = logInto('info')
  const events = localEvents(clock)
  logEvents(events, log.logger)
  const decides = (
    decision: 'launched' | 'pending' | 'skipped' | 'missed',
    reason: string,
    lateMs = 0,
  ) => {
    const from = lines.length
    events.emit('launch_decided', {
      job: 'a',
      group: 1,
      cause: 'schedule',
      count: 1,
      decision,
      reason,
      scheduled_at: 0,
      decided_at: lateMs,
    })
    return lines.slice(from).map((line) => {
      const {msg, times, scheduled_at: at} = JSON.parse(line) as Record<string, unknown>
      assert.equal(at, '1970-01-01T00:00:00.000Z')
      return times === undefined ? msg : `${String(msg)} (${String(times)})`
    })
  }
  const without = 'job not launched: no node matches its tags'
  assert.deepEqual(decides('launched', ''), [])
  assert.deepEqual(decides('skipped', 'forbid: launch 9 is still open'), [])
  assert.deepEqual(decides('skipped', 'no_target'), [without])
  assert.deepEqual(decides('skipped', 'no_target: all are cordoned'), [])
  assert.deepEqual(decides('launched', ''), ['job launched again: a node matches its tags (2)'])
  assert.deepEqual(decides('pending', 'waits_for_open'), [])
  assert.deepEqual(decides('pending', 'waits_for_node'), [without], 'at once, not after the wait')
  assert.deepEqual(decides('pending', 'waits_for_node'), [])
  assert.deepEqual(decides('skipped', 'no_target'), [])
  assert.deepEqual(decides('launched', ''), ['job launched again: a node matches its tags (1)'])
  assert.deepEqual(decides('launched', '', 61_000), ['job falls behind: launched late'])
  assert.deepEqual(decides('launched', '', 99_000), [])
  assert.deepEqual(decides('launched', '', 59_000), ['job is on time again (2)'])
  assert.deepEqual(decides('missed', ''), ['planned times missed'])
})
