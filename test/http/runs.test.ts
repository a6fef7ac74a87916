/** Run requests, executions and their output, launches, cancellation, counters. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {Stream, startApi} from './harness.ts'

const ZERO = '0001-01-01T00:00:00Z'
const EXECUTION_FIELDS = [
  'id',
  'job_name',
  'started_at',
  'finished_at',
  'success',
  'output',
  'node_name',
  'group',
  'attempt',
  'status',
  'output_truncated',
  'output_size',
  'output_omitted',
  'late_result',
  'reason',
  'exit_code',
]

test('a run request is accepted at once, with the launch in Location', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('r', {disabled: true})
  await api.post('/v1/pause')
  for (const path of ['/v1/jobs/r', '/v1/jobs/r/run']) {
    const reply = await api.post(path)
    assert.equal(reply.status, 202)
    assert.equal(reply.json.name, 'r')
    const group = String(reply.headers['x-launch-id'])
    assert.equal(reply.headers.location, `/v1/jobs/r/launches/${group}`)
    const launch = await api.get(`/v1/jobs/r/launches/${group}`)
    assert.equal(launch.status, 200)
    assert.deepEqual(
      [launch.json.group, launch.json.cause, launch.json.decision, launch.json.executions],
      [Number(group), 'manual', 'pending', []],
    )
  }
  assert.equal((await api.post('/v1/jobs/nobody')).json.code, 'job_unknown')
})

test('a run repeated with its key gets the first reply, even after the job is deleted', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('k')
  const run = (key: string) => api.post('/v1/jobs/k/run', undefined, {'idempotency-key': key})
  const first = await run('once')
  assert.equal(first.status, 202)
  await api.call('DELETE', '/v1/jobs/k')
  const again = await run('once')
  assert.deepEqual([again.status, again.json], [202, first.json])
  assert.equal(again.headers['x-launch-id'], first.headers['x-launch-id'])
  assert.equal((await run('another')).json.code, 'job_unknown')
})

test('a run repeated with its key gets the first reply, even without a matching node', async (t) => {
  let matching = 1
  const countTargets = async () => ({matching, cordoned: 0})
  const api = await startApi(t, {dependencies: {countTargets}})
  await api.job('k')
  const run = (key: string, query = '') =>
    api.post(`/v1/jobs/k/run${query}`, undefined, {'idempotency-key': key})
  const first = await run('once')
  assert.equal(first.status, 202)
  matching = 0
  const again = await run('once')
  assert.deepEqual([again.status, again.json], [202, first.json])
  assert.equal(again.headers.location, first.headers.location)
  assert.equal((await run('once', '?force')).json.code, 'idempotency_mismatch')
  assert.equal((await run('another')).json.code, 'no_target')
  assert.equal((await api.get('/v1/jobs/k/launches')).headers['x-total-count'], '1')
})

test('concurrency forbid rejects a second run and names the open launch; force overrides it', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('f', {concurrency: 'forbid'})
  const {execution} = await api.running('f')
  const refused = await api.post('/v1/jobs/f')
  assert.equal(refused.status, 409)
  assert.equal(refused.json.code, 'launch_open')
  assert.equal(refused.json.group, execution.group)
  assert.match(refused.json.detail, new RegExp(`launch ${execution.group} of "f"`))
  for (const query of ['?force=true', '?force'])
    assert.equal((await api.post(`/v1/jobs/f${query}`)).status, 202)
  assert.equal((await api.post('/v1/jobs/f?force=false')).status, 409)
})

test('concurrency forbid waits for processes of a deleted job with the same name', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('f')
  const old = await api.running('f')
  assert.equal((await api.delete('/v1/jobs/f')).status, 200)
  await api.job('f', {concurrency: 'forbid'})
  const refused = await api.post('/v1/jobs/f')
  assert.deepEqual([refused.status, refused.json.code], [409, 'launch_open'])
  assert.match(refused.json.detail, /processes of a deleted job "f" are still running/)
  assert.deepEqual([refused.json.group, refused.json.location], [undefined, undefined])
  await api.finish(old, 'cancelled')
  assert.equal((await api.post('/v1/jobs/f')).status, 202)
})

test('a run without a matching node is rejected with no_target', async (t) => {
  const api = await startApi(t)
  await api.job('n')
  const nobody = await api.post('/v1/jobs/n')
  assert.equal(nobody.status, 409)
  assert.equal(nobody.json.code, 'no_target')
  await api.join({disk: 'ssd'})
  assert.equal((await api.post('/v1/jobs/n')).status, 202)
  await api.job('n', {tags: {disk: 'tape'}})
  const unmatched = await api.post('/v1/jobs/n')
  assert.match(unmatched.json.detail, /disk=tape/)
})

test('an execution is listed from claim to end, and updates counters and statistics', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('e')
  const claimed = await api.running('e')
  const [busy] = (await api.get('/v1/busy')).json
  assert.deepEqual(Object.keys(busy), EXECUTION_FIELDS)
  assert.deepEqual([busy.status, busy.success, busy.finished_at], ['running', false, ZERO])
  assert.equal(busy.id, `${busy.group}-node-a-1`)
  assert.notEqual(busy.started_at, ZERO)
  await api.finish(claimed, 'failed', {head: 'exit status 1\n', text: 'oh no\n'})
  const {json: ended} = await api.get(`/v1/jobs/e/executions/${busy.id}`)
  assert.deepEqual([ended.status, ended.success], ['failed', false])
  assert.equal(ended.output, 'exit status 1\noh no\n')
  assert.equal(Date.parse(ended.finished_at) - Date.parse(ended.started_at), 5)
  assert.deepEqual((await api.get('/v1/busy')).json, [])
  await api.finish(await api.running('e'), 'succeeded', {text: 'fine\n'})
  const job = (await api.get('/v1/jobs/e')).json
  assert.deepEqual([job.success_count, job.error_count, job.status], [1, 1, 'success'])
  const list = await api.get('/v1/jobs/e/executions')
  assert.equal(list.headers['x-total-count'], '2')
  assert.deepEqual(
    list.json.map((row: {success: boolean}) => row.success),
    [true, false],
  )
  const alias = await api.get('/v1/executions/e')
  assert.equal(alias.text, list.text)
  const failed = await api.get('/v1/jobs/e/executions?status=failed')
  assert.equal(failed.json.length, 1)
  const oldest = await api.get('/v1/jobs/e/executions?_sort=id&_order=ASC&_start=0&_end=1')
  assert.equal(oldest.json[0].id, busy.id)
  const {stats} = (await api.get('/v1/stats?days=2')).json
  assert.deepEqual(stats, [
    {date: '2026-02-28T00:00:00.000Z', success_count: 0, failed_count: 0},
    {date: '2026-03-01T00:00:00.000Z', success_count: 1, failed_count: 1},
  ])
  assert.equal((await api.get('/v1/stats')).json.stats.length, 30)
  const reset = await api.call('DELETE', '/v1/jobs/e/executions')
  assert.equal(reset.status, 200)
  assert.deepEqual(
    [reset.json.success_count, reset.json.error_count, reset.json.last_error, reset.json.status],
    [0, 0, null, ''],
  )
  assert.deepEqual((await api.get('/v1/jobs/e/executions')).json, [])
  assert.equal((await api.delete('/v1/jobs/nobody/executions')).json.code, 'job_unknown')
})

test('a result that arrives after lost is shown as late_result', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('l')
  const claimed = await api.running('l')
  const [member] = await api.store.members()
  await api.store.join({member: {...member!, incarnation: 'second-incarnation'}}, 10_000)
  await api.store.markLost({
    term: null,
    nodeId: member!.id,
    exceptIncarnation: 'second-incarnation',
    reason: 'node_restarted',
    observed: null,
    limit: 10,
    jitter: 0.5,
  })
  const shown = async () => {
    const [row] = (await api.get('/v1/jobs/l/executions?status=lost')).json
    const one = (await api.get(`/v1/jobs/l/executions/${row.id}`)).json
    assert.deepEqual([Object.keys(row), Object.keys(one)], [EXECUTION_FIELDS, EXECUTION_FIELDS])
    return [row.status, row.late_result, one.late_result]
  }
  assert.deepEqual(await shown(), ['lost', '', ''])
  await api.finish(claimed, 'succeeded')
  const note = 'succeeded, exit status 0'
  assert.deepEqual(await shown(), ['lost', note, note])
})

test('output_size_limit counts bytes and splits no character', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('o')
  const text = 'é'.repeat(20_000)
  await api.finish(await api.running('o'), 'failed', {head: 'exit status 1\n', text})
  const output = async (query: string) => {
    const [row] = (await api.get(`/v1/jobs/o/executions${query}`)).json
    return {bytes: Buffer.byteLength(row.output), text: row.output, cut: row.output_truncated}
  }
  const plain = await output('')
  assert.equal(plain.text, `exit status 1\n${'é'.repeat(8 * 1024)}`)
  assert.equal(plain.cut, true)
  assert.deepEqual(await output('?output_size_limit=0'), {bytes: 0, text: '', cut: true})
  assert.deepEqual(await output('?output_size_limit=5'), {bytes: 4, text: 'éé', cut: true})
  const large = await output('?output_size_limit=30000')
  assert.deepEqual([large.bytes, large.cut], [30_000, true])
  const whole = await output('?output_size_limit=999999999999')
  assert.deepEqual([whole.text, whole.cut], [`exit status 1\n${text}`, false])
})

test('bytes that are not UTF-8 are shown as U+FFFD', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('b')
  const claimed = await api.running('b')
  await api.finish(claimed, 'succeeded', {text: new Uint8Array([0x61, 0xff, 0x00, 0x62])})
  const [row] = (await api.get('/v1/jobs/b/executions')).json
  assert.equal(row.output, 'a\ufffd\0b')
})

test('an unknown execution or launch has another code than an unknown job', async (t) => {
  const api = await startApi(t)
  await api.job('u')
  const codes: readonly (readonly [string, string])[] = [
    ['/v1/jobs/u/executions/1-node-a-1', 'execution_unknown'],
    ['/v1/jobs/u/executions/nonsense', 'execution_unknown'],
    ['/v1/jobs/u/executions/9007199254740993-node-a-1', 'execution_unknown'],
    ['/v1/jobs/nobody/executions/1-node-a-1', 'job_unknown'],
    ['/v1/jobs/u/executions/1-node-a-1/output', 'execution_unknown'],
    ['/v1/jobs/nobody/executions', 'job_unknown'],
    ['/v1/executions/nobody', 'job_unknown'],
    ['/v1/jobs/nobody/launches', 'job_unknown'],
    ['/v1/jobs/u/launches/7', 'launch_unknown'],
    ['/v1/jobs/u/launches/x', 'launch_unknown'],
    ['/v1/jobs/nobody/launches/7', 'job_unknown'],
    ['/v1/jobs/nobody/next', 'job_unknown'],
  ]
  for (const [path, code] of codes) {
    const reply = await api.get(path)
    assert.deepEqual([reply.status, reply.json.code], [404, code], path)
  }
})

test('launches of a job are listed with their executions, newest first', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('l')
  await api.finish(await api.running('l'))
  await api.post('/v1/jobs/l')
  const list = await api.get('/v1/jobs/l/launches')
  assert.equal(list.headers['x-total-count'], '2')
  const [waiting, launched] = list.json
  assert.deepEqual([waiting.decision, waiting.executions, waiting.term], ['pending', [], null])
  assert.deepEqual([launched.decision, launched.count, launched.reason], ['launched', 1, ''])
  assert.deepEqual(
    launched.executions.map((row: {id: string; status: string}) => [row.id, row.status]),
    [[`${launched.group}-node-a-1`, 'succeeded']],
  )
  assert.deepEqual((await api.get('/v1/jobs/l/launches?decision=launched')).json, [launched])
  assert.deepEqual((await api.get('/v1/jobs/l/launches?_start=1')).json, [launched])
  assert.deepEqual((await api.get(`/v1/jobs/l/launches/${launched.group}`)).json, launched)
})

test('a cancellation is stored; an ended execution cannot be cancelled', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('c')
  const claimed = await api.running('c')
  const id = `${claimed.execution.group}-node-a-1`
  const reply = await api.post(`/v1/jobs/c/executions/${id}/cancel`)
  assert.equal(reply.status, 202)
  assert.deepEqual([reply.json.id, reply.json.status], [id, 'running'])
  assert.equal(api.wakeup.notified.at(-1), 'cancel')
  assert.equal((await api.store.cancelled('id-of-node-a')).length, 1)
  await api.finish(claimed, 'cancelled')
  const over = await api.post(`/v1/jobs/c/executions/${id}/cancel`)
  assert.equal(over.status, 409)
  assert.deepEqual([over.json.code, over.json.execution_status], ['execution_over', 'cancelled'])
  for (const path of ['/v1/jobs/c/executions/9-x-1/cancel', '/v1/jobs/c/executions/x/cancel'])
    assert.equal((await api.post(path)).json.code, 'execution_unknown')
})

test('all open executions of a job, or of one launch, are cancelled at once', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('c')
  const first = await api.running('c')
  const second = await api.running('c')
  const {group} = second.execution
  const at = '/v1/jobs/c/executions/cancel'
  const one = await api.post(`${at}?launch=${group}`)
  assert.equal(one.status, 202)
  assert.deepEqual(one.json, {cancelled: [`${group}-node-a-1`], more: false})
  const other = `${first.execution.group}-node-a-1`
  assert.deepEqual((await api.post(at)).json, {cancelled: [other], more: false})
  // The node has not ended them yet.
  assert.deepEqual((await api.post(at)).json, {cancelled: [], more: false})
  assert.equal((await api.store.cancelled('id-of-node-a')).length, 2)
  assert.equal((await api.post(`${at}?launch=999`)).json.code, 'launch_unknown')
  assert.equal((await api.post('/v1/jobs/x/executions/cancel')).json.code, 'job_unknown')
})

test('a cancellation emits a finish event for every execution it ends, waiting retries too', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('c', {retries: 2})
  const retried = await api.running('c')
  await api.finish(retried, 'failed')
  const {group} = retried.execution
  const sibling = {...retried.execution, node: 'node-b', attempt: 2, status: 'cancelled'} as const
  const withSibling = await startApi(t, {
    wrapStore: () => ({
      ...api.store,
      cancelExecution: async (name, key) => {
        const result = await api.store.cancelExecution(name, key)
        const [ended] = result.kind === 'requested' ? result.ended : []
        if (result.kind !== 'requested' || ended?.kind !== 'finished') return result
        return {...result, ended: [{...ended, endedRetries: [sibling]}]}
      },
    }),
  })
  assert.equal(
    (await withSibling.post(`/v1/jobs/c/executions/${group}-node-a-2/cancel`)).status,
    202,
  )
  assert.deepEqual(
    withSibling.events
      .of('execution_finished')
      .map(({execution, status, retried: again}) => [execution, status, again]),
    [
      [`${group}-node-a-2`, 'cancelled', false],
      [`${group}-node-b-2`, 'cancelled', false],
    ],
  )
})

test('output as plain text and as a download', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('x')
  const claimed = await api.running('x')
  await api.finish(claimed, 'failed', {head: 'exit status 2\n', text: '<b>hi</b>\n', foot: 'end\n'})
  const path = `/v1/jobs/x/executions/${claimed.execution.group}-node-a-1/output`
  const reply = await api.get(path)
  assert.equal(reply.headers['content-type'], 'text/plain; charset=utf-8')
  assert.equal(reply.headers['x-content-type-options'], 'nosniff')
  assert.equal(reply.text, 'exit status 2\n<b>hi</b>\nend\n')
  const file = await api.get(`${path}?download`)
  assert.match(
    String(file.headers['content-disposition']),
    /^attachment; filename="\d+-node-a-1\.txt"$/,
  )
})

test('the output stream follows a running execution to its end, and resumes', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('s')
  const claimed = await api.running('s')
  const path = `/v1/jobs/s/executions/${claimed.execution.group}-node-a-1/output`
  const stream = await Stream.open(api, path)
  assert.equal(stream.headers['content-type'], 'text/event-stream; charset=utf-8')
  await stream.until((text) => text.startsWith(':'))
  await api.write(claimed, 0, 'one\n')
  await stream.until((text) => text.includes('"one\\n"'))
  // An incomplete character is sent after its last byte.
  await api.write(claimed, 4, new Uint8Array([0x74, 0xc3]))
  await stream.until((text) => text.includes('"offset":4,"text":"t"'))
  await api.write(claimed, 6, new Uint8Array([0xa9]))
  await stream.until((text) => text.includes('"offset":5,"text":"é"'))
  await api.finish(claimed, 'failed', {text: 'two\n', offset: 7, foot: 'bye\n'})
  api.events.emit('execution_finished', {
    job: 's',
    execution: `${claimed.execution.group}-node-a-1`,
    node: 'node-a',
    status: 'failed',
    attempt: 1,
    duration_ms: 5,
    retried: false,
  })
  const text = await stream.end()
  assert.match(text, /id: 4\nevent: output\n/)
  assert.match(text, /id: 11\nevent: output\ndata: \{"offset":7,"text":"two\\n"\}/)
  assert.match(text, /event: end\ndata: \{[^\n]*"status":"failed"[^\n]*"foot":"bye\\n"\}\n\n$/)
  const resumed = await Stream.open(api, path, {'last-event-id': '7'})
  const rest = await resumed.end()
  assert.ok(rest.includes('"offset":7') && !rest.includes('"offset":0'))
  assert.equal((await api.get(path, {accept: 'text/event-stream'})).status, 200)
  const unknown = await api.get('/v1/jobs/s/executions/7-x-1/output', {accept: 'text/event-stream'})
  assert.equal(unknown.json.code, 'execution_unknown')
})

test('the output stream polls without events, and leaves no timer behind', async (t) => {
  const api = await startApi(t)
  await api.join()
  await api.job('q')
  const {execution, token} = await api.running('q')
  const stream = await Stream.open(api, `/v1/jobs/q/executions/${execution.group}-node-a-1/output`)
  await stream.until((text) => text !== '')
  await api.store.appendOutput([{key: execution, token, offset: 0, bytes: Buffer.from('silent')}])
  await api.eventually(() => stream.text.includes('silent'), 100)
  stream.close()
  await api.eventually(() => api.clock.waiting === 0, 100)
})
