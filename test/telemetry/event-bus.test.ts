import assert from 'node:assert/strict'
import {once} from 'node:events'
import {test} from 'node:test'
import {Worker} from 'node:worker_threads'
import type {BelfryEvent} from '../../src/core/events.ts'
import {localEvents} from '../../src/telemetry/event-bus.ts'

const clock = {now: () => 1234, monotonicMs: () => 0, after: () => ({cancel: () => {}})}

test('every listener is called for every event, synchronously and with the time of the clock', () => {
  const events = localEvents(clock)
  const one: BelfryEvent[] = []
  const other: BelfryEvent[] = []
  events.listen((event) => one.push(event))
  const stop = events.listen((event) => other.push(event))
  events.emit('job_deleted', {job: 'a'})
  stop()
  events.emit('clock_stepped', {by_ms: 70_000})
  assert.deepEqual(one, [
    {name: 'job_deleted', at: 1234, data: {job: 'a'}},
    {name: 'clock_stepped', at: 1234, data: {by_ms: 70_000}},
  ])
  assert.equal(other.length, 1)
})

test('a throwing listener does not interrupt the emitter, but ends the process', async () => {
  const module = new URL('../../src/telemetry/event-bus.ts', import.meta.url).href
  // Shared memory, because messages posted just before a worker dies may be dropped.
  const source = `
    const {localEvents} = await import(${JSON.stringify(module)})
    const {workerData: steps} = await import('node:worker_threads')
    const events = localEvents({now: () => 0})
    events.listen(() => { throw new Error('planted') })
    events.listen(() => { steps[0] = 1 })
    events.emit('job_deleted', {job: 'a'})
    steps[1] = 1`
  const steps = new Int32Array(new SharedArrayBuffer(8))
  const url = new URL(`data:text/javascript,${encodeURIComponent(source)}`)
  const worker = new Worker(url, {workerData: steps})
  const [error] = (await once(worker, 'error')) as [Error]
  assert.equal(error.message, 'planted')
  assert.deepEqual([...steps], [1, 1], 'the second listener was called, and emit returned')
})
