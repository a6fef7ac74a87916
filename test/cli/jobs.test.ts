/** Commands about jobs and their runs, against the real API: what they say of pauses, waits and retries. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {commands} from './real-api.ts'

test('jobs list and show say that a job is paused, and that a launch waits for a node', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  for (const name of ['backup', 'other']) await api.job(name, {schedule: '@hourly'})
  await run('pause', '--firing', '--jobs', 'backup', '--until', '2h')
  await api.post('/v1/jobs/other')
  await api.findNoNode()
  const {out} = await run('jobs', 'list')
  assert.match(out, /^backup +@hourly +paused +0/m)
  assert.match(out, /^other +@hourly +in 1h +waits for a node +0/m)
  const paused = (await run('jobs', 'show', 'backup')).out
  assert.match(paused, /^next +paused: 2026-03-01 13:00:00Z \(in 1h\) will be skipped$/m)
  assert.match(
    (await run('jobs', 'show', 'other')).out,
    /^waiting +a launch waits for a node that/m,
  )
  const [backup, other] = (await api.get('/v1/jobs')).json
  assert.deepEqual([backup.firing_paused, backup.waits_for_node], [true, undefined])
  assert.deepEqual([other.firing_paused, other.waits_for_node], [undefined, true])
  // A pause that ends before the next time skips nothing.
  await run('pause', '--firing', '--jobs', 'backup', '--until', '30m')
  assert.match((await run('jobs', 'list')).out, /^backup +@hourly +in 1h/m)
  await api.clock.advance(31_000)
  const status = await run('status')
  assert.equal(status.code, 1)
  assert.match(status.out, /^degraded: .*launches wait for a node that matches, the first for 31s/)
})

test('jobs delete takes several names, and an error ends none of the others', async (t) => {
  const {api, run, state} = await commands(t)
  for (const name of ['a', 'b', 'c']) await api.job(name)
  const ran = await run('jobs', 'delete', 'a', 'bad', 'b')
  assert.deepEqual([ran.code, ran.out], [1, 'deleted a\ndeleted b\n'])
  assert.match(ran.err, /bad was not deleted: There is no job/)
  state.answer = 'n'
  const declined = await run('jobs', 'delete', 'c', 'd')
  assert.match(declined.err, /^Delete the jobs c, d and their history\?/)
  assert.equal((await api.get('/v1/jobs')).json.length, 1)
})

test('runs list says when a retry starts', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  await api.job('a', {retries: 1})
  const first = await api.running('a')
  assert.equal((await api.get('/v1/jobs/a/executions')).json[0].not_before, undefined)
  await api.finish(first, 'failed')
  const {json} = await api.get('/v1/jobs/a/executions?status=pending')
  assert.match(json[0].not_before, /^2026-03-01T12:00:0/)
  assert.match(
    (await run('runs', 'list', 'a', '--status', 'all')).out,
    /pending .*retry (in \ds|now)/,
  )
  assert.match((await run('runs', 'show', 'a', json[0].id)).out, /^retry +2026-03-01 12:00:0/m)
  await api.clock.advance(10_000)
  assert.match((await run('runs', 'list', 'a', '--status', 'all')).out, /pending .*retry due/)
  await api.claim()
  const [running] = (await api.get('/v1/jobs/a/executions?status=running')).json
  assert.deepEqual([running.attempt, running.not_before], [2, undefined])
})

test('runs show prints the last lines of the output on request', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  await api.job('a')
  const {execution} = await api.running('a').then(async (claimed) => {
    await api.finish(claimed, 'succeeded', {text: 'one\ntwo\nthree'})
    return claimed
  })
  const show = async (...flags: string[]) => {
    const id = `${execution.group}-${execution.node}-1`
    return (await run('runs', 'show', 'a', id, ...flags)).out.split('\n\n')[1]
  }
  assert.equal(await show(), 'one\ntwo\nthree\n')
  assert.equal(await show('--tail', '1'), '… 2 lines before …\nthree\n')
  assert.equal(await show('--tail', '3'), 'one\ntwo\nthree\n')
  assert.equal(await show('--tail', '0'), '… 3 lines before …\n')
  const outputs = ['0', '1', '3', '9'].map(async (count) => {
    const id = `${execution.group}-${execution.node}-1`
    return JSON.parse((await run('runs', 'show', 'a', id, '--tail', count, '--json')).out).output
  })
  assert.deepEqual(await Promise.all(outputs), ['', 'three', 'one\ntwo\nthree', 'one\ntwo\nthree'])
})

test('a first attempt that was claimed and released is not shown as a retry', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  await api.job('a')
  const {execution, token} = await api.running('a')
  await api.clock.advance(1_000)
  const {group, node, attempt} = execution
  const released = await api.store.releaseClaims([{key: {group, node, attempt}, token}])
  assert.equal(released.length, 1)
  const {json} = await api.get('/v1/jobs/a/executions?status=pending')
  assert.equal(json[0].not_before, undefined)
  const [launch] = (await api.get('/v1/jobs/a/launches')).json
  assert.equal(launch.executions[0].not_before, undefined)
  assert.doesNotMatch((await run('runs', 'list', 'a', '--status', 'all')).out, /retry/)
})

test('runs cancel advises to disable only a job that is enabled', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  await api.job('a', {schedule: '@hourly'})
  await api.running('a')
  assert.match(
    (await run('runs', 'cancel', '--job', 'a')).err,
    /To prevent them: belfry jobs disable a/,
  )
  await run('jobs', 'disable', 'a')
  const disabled = await run('runs', 'cancel', '--job', 'a')
  assert.deepEqual([disabled.code, disabled.err], [0, ''])
})

test('jobs launches shows those with one decision', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  await api.job('a')
  await api.running('a')
  assert.match(
    (await run('jobs', 'launches', 'a', '--decision', 'launched')).out,
    /^\d+ .*launched/m,
  )
  assert.equal((await run('jobs', 'launches', 'a', '--decision', 'skipped')).out, 'No launches.\n')
  const wrong = await run('jobs', 'launches', 'a', '--decision', 'no')
  assert.equal(wrong.code, 2)
  assert.match(wrong.err, /one of pending, launched, skipped, missed/)
})

test('resume refuses to end a pause that was set by a command', async (t) => {
  const {api, run} = await commands(t)
  assert.deepEqual(await run('resume'), {
    code: 0,
    out: 'firing was not paused by a restore, and is active\n',
    err: '',
  })
  await run('pause', '--firing')
  const {code, out, err} = await run('resume')
  assert.deepEqual([code, out], [1, ''])
  assert.match(err, /End it with belfry unpause --firing/)
  assert.equal((await api.get('/v1/firing')).json.pauses.length, 1)
})

test('jobs check says on how many of the matching nodes a launch runs', async (t) => {
  const {api, run, state} = await commands(t)
  await api.join({web: 'a'})
  await api.store.join(
    {member: {...(await api.store.members())[0]!, id: 'second', name: 'node-b', incarnation: 'b'}},
    10_000,
  )
  const nodesOf = async (tag: string) => {
    const job = {name: 'x', schedule: '@daily', command: 'true', tags: {web: tag}}
    state.input = JSON.stringify(job)
    return /^ {2}nodes +(.*)$/m.exec((await run('jobs', 'check', '-')).out)?.[1]
  }
  assert.equal(await nodesOf('a:1'), '1 of 2: node-a, node-b')
  assert.equal(await nodesOf('a:2'), '2: node-a, node-b')
  assert.equal(await nodesOf('a'), '2: node-a, node-b')
})
