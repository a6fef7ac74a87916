/** Lists without a limit: how many may be in progress, and how much output one of them holds. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {connect} from 'node:net'
import {test} from 'node:test'
import type {JobRecord} from '../../src/core/job.ts'
import {LongLists} from '../../src/http/api/long-lists.ts'
import {LONG_LIST_WAIT_MS, LONG_LISTS_WAITING_MAX} from '../../src/http/options.ts'
import type {Store} from '../../src/ports/store.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {type Api, startApi} from './harness.ts'

const ENDS_WITHIN = {timeout: 20_000}

/** Lists of jobs wait in the store until the test releases them. */
function blockedJobs() {
  const calls: (() => void)[] = []
  const wrapStore = (store: Store): Store => ({
    ...store,
    jobs: async (query) => {
      await new Promise<void>((resolve) => calls.push(resolve))
      return store.jobs(query)
    },
  })
  return {calls, wrapStore}
}

test('lists without a limit wait for each other; pages do not wait', ENDS_WITHIN, async (t) => {
  const {calls, wrapStore} = blockedJobs()
  const api = await startApi(t, {wrapStore, limits: {longListsMax: 2}})
  const lists = ['', '?_start=5', '?_end=1001', ''].map((query) => api.get(`/v1/jobs${query}`))
  await api.eventually(() => calls.length === 2)
  const page = api.get('/v1/jobs?_start=1000&_end=2000')
  await api.eventually(() => calls.length === 3)
  calls[2]!()
  assert.equal((await page).status, 200)
  calls[0]!()
  calls[1]!()
  await api.eventually(() => calls.length === 5)
  for (const release of calls.slice(3)) release()
  for (const list of lists) assert.equal((await list).status, 200)
})

test('a list that waits too long is refused with 503 and Retry-After', ENDS_WITHIN, async (t) => {
  const {calls, wrapStore} = blockedJobs()
  const api = await startApi(t, {wrapStore, limits: {longListsMax: 1}})
  const first = api.get('/v1/jobs')
  await api.eventually(() => calls.length === 1)
  const second = api.get('/v1/busy')
  // Two timers: the deadline of the store, and the list that waits.
  await api.eventually(() => api.clock.waiting === 2)
  await api.clock.advance(LONG_LIST_WAIT_MS)
  const refused = await second
  assert.deepEqual([refused.status, refused.json.code], [503, 'too_many_lists'])
  assert.equal(refused.headers['retry-after'], '5')
  calls[0]!()
  assert.equal((await first).status, 200)
  assert.equal((await api.get('/v1/busy')).status, 200)
})

test('a list that fails releases its place', ENDS_WITHIN, async (t) => {
  let isBroken = true
  const api = await startApi(t, {
    limits: {longListsMax: 1},
    wrapStore: (store) => ({
      ...store,
      jobs: (query) => (isBroken ? Promise.reject(new Error('broken')) : store.jobs(query)),
    }),
  })
  assert.equal((await api.get('/v1/jobs')).status, 500)
  isBroken = false
  assert.equal((await api.get('/v1/jobs')).status, 200)
})

test(
  'a client that stops reading a long list is disconnected, and its place is free',
  ENDS_WITHIN,
  async (t) => {
    let job: JobRecord | null = null
    let total = 1_000
    const api: Api = await startApi(t, {
      limits: {longListsMax: 1, replyStalledMs: 100},
      wrapStore: (store) => ({
        ...store,
        jobs: async () => ({total, rows: Array.from({length: total}, () => job!)}),
      }),
    })
    await api.job('large', {metadata: {text: 'x'.repeat(60_000)}})
    job = await api.store.job('large')
    const socket = connect(api.port, '127.0.0.1')
    socket.pause()
    t.after(() => socket.destroy())
    const accepted = once(api.app.server, 'connection')
    socket.write('GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n')
    const [server] = (await accepted) as [typeof socket]
    await api.settled(once(server, 'close'))
    // Short: on a busy machine a reader of the long list pauses for longer than a stalled one may.
    total = 1
    const next = await api.settled(api.get('/v1/jobs'))
    assert.equal(next.json.length, 1)
  },
)

test('places are passed on in order, and only so many may wait', async () => {
  const clock = new VirtualClock()
  const lists = new LongLists(clock, 1)
  const leave = await lists.enter()
  const waiting = Array.from({length: LONG_LISTS_WAITING_MAX}, () => lists.enter())
  await assert.rejects(lists.enter(), {code: 'too_many_lists'})
  leave()
  leave()
  const second = await waiting[0]!
  let isThirdIn = false
  void waiting[1]!.then(() => (isThirdIn = true))
  await clock.settle()
  assert.ok(!isThirdIn, 'a place is released once')
  second()
  await waiting[1]
  const late = waiting.slice(2).map((enter) => assert.rejects(enter, {code: 'too_many_lists'}))
  await clock.advance(LONG_LIST_WAIT_MS)
  await Promise.all(late)
  assert.equal(clock.waiting, 0)
})

test('the output in a list of running executions has a common limit', async (t) => {
  const queries: {end: number | null; outputBytes: number}[] = []
  let running = 10_000
  const api = await startApi(t, {
    wrapStore: (store) => ({
      ...store,
      busy: async (query) => {
        queries.push({end: query.end, outputBytes: query.outputBytes})
        const [row] = (await store.busy({start: 0, end: 1, outputBytes: query.outputBytes})).rows
        const end = Math.min(query.end ?? Infinity, running)
        running += 5
        return {total: running, rows: Array.from({length: end - query.start}, () => row!)}
      },
    }),
  })
  await api.join()
  await api.job('chatty')
  await api.write(await api.running('chatty'), 0, 'x'.repeat(20_000))
  const all = await api.settled(api.get('/v1/busy'))
  assert.equal(all.json.length, 10_005)
  const output = all.json.map((row: {output: string}) => row.output.length)
  const total = output.reduce((sum: number, length: number) => sum + length, 0)
  assert.ok(total > 30 * 2 ** 20 && total <= 32 * 2 ** 20, String(total))
  assert.equal(all.json[0].output_truncated, true)
  assert.deepEqual(queries, [
    {end: 2_048, outputBytes: 16 * 1024},
    {end: 10_005, outputBytes: 3_353},
  ])
  queries.length = 0
  const page = await api.get('/v1/busy?_start=0&_end=10')
  assert.equal(page.json[0].output.length, 16 * 1024)
  await api.settled(api.get('/v1/busy?output_size_limit=0'))
  assert.deepEqual(queries, [
    {end: 10, outputBytes: 16 * 1024},
    {end: null, outputBytes: 0},
  ])
})
