/** Commands that switch something on and off, against the real API. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {commands} from './real-api.ts'

test('pause --firing says what is paused, and unpause --firing what still is', async (t) => {
  const {api, run} = await commands(t)
  await api.job('backup-a')
  const paused = await run('pause', '--firing', '--jobs', 'backup-**', '--until', '2h')
  assert.match(
    paused.out,
    /^firing of backup-\* is paused until 2026-03-01 14:00:00Z \(in 2h\)\nTheir planned times/,
  )
  assert.equal(paused.err, '')
  const typo = await run('pause', '--firing', '--jobs', 'bakcup-*', '--reason', 'disk')
  assert.equal(typo.err, 'warning: no job matches "bakcup-*" now\n')
  assert.match(
    (await run('status')).out,
    /firing +paused \(backup-\* until 2026-03-01 14:00:00Z, bakcup-\*\)/,
  )
  const other = await run('unpause', '--firing')
  assert.match(
    other.out,
    /^there is no pause of all jobs: nothing was changed\nThese pauses are in force:/,
  )
  assert.equal(other.code, 1)
  assert.match(other.out, /^bakcup-\* +when ended +now +local +disk$/m)
  const ended = await run('unpause', '--firing', '--jobs', 'bakcup-*')
  assert.match(ended.out, /^firing of bakcup-\* continues/)
  const {pauses} = (await api.get('/v1/firing')).json
  assert.equal(pauses.length, 1)
  assert.deepEqual(api.events.of('firing_resumed'), [{jobs: 'bakcup-*', by: 'request'}])
  for (const wrong of [
    ['--until', '1h'],
    ['--firing', '--until', 'soon'],
    ['--firing', '--jobs', 'A'],
  ])
    assert.notEqual((await run('pause', ...wrong)).code, 0)
  const {json} = await api.post('/v1/firing/pause', {jbos: 'backup-a'})
  assert.match(json.detail, /unknown field "jbos"; the fields are jobs, until, reason/)
})

test('settings shows what is stored, and changes the time zone', async (t) => {
  const {api, run} = await commands(t)
  assert.equal(
    (await run('settings')).out,
    'timezone     UTC\nsubmissions  not paused\nfiring       not paused\n',
  )
  const set = await run('settings', 'set', 'timezone', 'europe/berlin')
  assert.match(set.out, /^timezone is Europe\/Berlin \(was UTC\)\nJobs without/)
  const again = await run('settings', 'set', 'timezone', 'Europe/Berlin')
  assert.equal(again.out, 'timezone is Europe/Berlin already\n')
  assert.match((await run('status', '--all')).out, /default_timezone +Europe\/Berlin/)
  const preview = await run('--json', 'schedule', 'preview', '0 0 9 * * *')
  assert.match(preview.out, /"timezone": "Europe\/Berlin"/)
  const unknown = await run('settings', 'set', 'timezone', 'Mars')
  assert.deepEqual([unknown.code, unknown.out], [1, ''])
  assert.match(unknown.err, /timezone: must be an IANA name such as .*; "Mars" is not known/)
  for (const [body, problem] of [
    [{}, /timezone: is missing\. Send/],
    [{timezone: null}, /timezone: is missing\. Send/],
    [null, /the body must be a JSON object with timezone/],
  ] as const)
    assert.match((await api.call('PATCH', '/v1/settings', {body})).json.detail, problem)
  assert.equal((await run('settings', 'set', 'zone', 'UTC')).code, 2)
  await run('pause', '--firing', '--jobs', 'a')
  const paused = await run('settings')
  assert.match(paused.out, /^firing +paused for these jobs:\nPAUSED JOBS.*\na +when ended/m)
})

test('jobs next says why nothing is planned, and that firing is paused', async (t) => {
  const {api, run} = await commands(t)
  await api.job('a', {schedule: '@hourly', disabled: true})
  const disabled = 'Nothing is planned: a is disabled. See belfry jobs enable.\n'
  assert.equal((await run('jobs', 'next', 'a')).out, disabled)
  await api.job('b', {schedule: '@hourly'})
  await run('pause', '--firing', '--until', '2h')
  const paused = await run('jobs', 'next', 'b', '--count', '1')
  assert.equal(paused.out, 'Sun 2026-03-01 13:00:00Z  in 1h\n')
  assert.match(
    paused.err,
    /^Firing of this job is paused until 2026-03-01 14:00:00Z \(in 2h\): planned times before/m,
  )
  const status = (await run('status')).out
  assert.doesNotMatch(status, /^degraded/)
})

test('jobs enable and disable take several names, and an error ends none of the others', async (t) => {
  const {api, run} = await commands(t)
  await api.job('a')
  await api.job('b')
  const ran = await run('jobs', 'disable', 'a', 'bad', 'b')
  assert.deepEqual([ran.code, ran.out], [1, 'a is disabled\nb is disabled\n'])
  assert.match(ran.err, /bad was not disabled: There is no job/)
  const asJson = await run('--json', 'jobs', 'enable', 'a', 'bad')
  assert.match(asJson.err, /"code":"job_unknown".*"status":404/)
  const {out} = await run('--json', 'jobs', 'enable', 'a', 'b')
  assert.deepEqual(
    (JSON.parse(out) as {disabled: boolean}[]).map(({disabled}) => disabled),
    [false, false],
  )
  assert.match((await run('jobs', 'enable', 'bad')).err, /There is no job named "bad"/)
  assert.equal((await run('jobs', 'enable')).code, 2)
})
