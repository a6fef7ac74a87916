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
    /^firing of backup-\* is paused until \S+Z \(in 2h\)\nTheir planned times/,
  )
  assert.equal(paused.err, '')
  const typo = await run('pause', '--firing', '--jobs', 'bakcup-*', '--reason', 'disk')
  assert.equal(typo.err, 'warning: no job matches "bakcup-*" now\n')
  assert.match((await run('status')).out, /firing +paused \(backup-\* until \S+Z, bakcup-\*\)/)
  const other = await run('unpause', '--firing')
  assert.match(other.out, /^firing of all jobs was not paused\nOther pauses are still in force:/)
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
  assert.match(json.detail, /jbos: is no field here\. Use jobs, until, reason/)
})

test('settings shows what is stored, and changes the time zone', async (t) => {
  const {run} = await commands(t)
  assert.equal(
    (await run('settings')).out,
    'timezone     UTC\nsubmissions  not paused\nfiring       not paused\n',
  )
  const set = await run('settings', 'set', 'timezone', 'Europe/Berlin')
  assert.match(set.out, /^timezone is Europe\/Berlin \(was UTC\)\nJobs without/)
  const again = await run('settings', 'set', 'timezone', 'Europe/Berlin')
  assert.equal(again.out, 'timezone is Europe/Berlin already\n')
  assert.match((await run('status', '--all')).out, /default_timezone +Europe\/Berlin/)
  const preview = await run('--json', 'schedule', 'preview', '0 0 9 * * *')
  assert.match(preview.out, /"timezone": "Europe\/Berlin"/)
  const unknown = await run('settings', 'set', 'timezone', 'Mars')
  assert.deepEqual([unknown.code, unknown.out], [1, ''])
  assert.match(unknown.err, /timezone: must be an IANA name such as .*; "Mars" is not known/)
  assert.equal((await run('settings', 'set', 'zone', 'UTC')).code, 2)
  await run('pause', '--firing', '--jobs', 'a')
  const paused = await run('settings')
  assert.match(paused.out, /^firing +paused for these jobs:\nPAUSED JOBS.*\na +when ended/m)
})

test('jobs enable and disable take several names, and an error ends none of the others', async (t) => {
  const {api, run} = await commands(t)
  await api.job('a')
  await api.job('b')
  const ran = await run('jobs', 'disable', 'a', 'bad', 'b')
  assert.deepEqual([ran.code, ran.out], [1, 'a is disabled\nb is disabled\n'])
  assert.match(ran.err, /bad was not disabled: There is no job/)
  const {out} = await run('--json', 'jobs', 'enable', 'a', 'b')
  assert.deepEqual(
    (JSON.parse(out) as {disabled: boolean}[]).map(({disabled}) => disabled),
    [false, false],
  )
  assert.match((await run('jobs', 'enable', 'bad')).err, /There is no job named "bad"/)
  assert.equal((await run('jobs', 'enable')).code, 2)
})
