/** `belfry notice …` against the real API and real receivers. */
import assert from 'node:assert/strict'
import {writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {test} from 'node:test'
import {closedPort, MailGuard, startHttp, startSmtp} from '../notices/receivers.ts'
import {commands} from './real-api.ts'

const SECRET = 'hunter2-hunter2'

test('a mail channel is set up by a person who types the password, and a mail arrives', async (t) => {
  const smtp = await startSmtp(t, {
    authOptional: false,
    allowInsecureAuth: true,
    onAuth: ({password}, _session, callback) =>
      password === SECRET ? callback(null, {user: 'belfry'}) : callback(new Error('no')),
  })
  const {state, run} = await commands(t, {addresses: new MailGuard(smtp.port)})
  state.secret = SECRET
  const setup = ['notice', 'setup', 'mail', 'ops@example.org', '--smtp', 'smtp://belfry@127.0.0.1']
  const ran = await run(...setup)
  assert.deepEqual(ran, {
    code: 0,
    out:
      'channel mail: test message accepted (250: accepted)\n' +
      'rule all-jobs: 0 jobs: failed, missed, skipped (no target, behind, undecidable), lost, quarantined, ' +
      'disabled 24h, late 15m, no leader, node failed, store, recovered; to mail\n' +
      '  in the last 7 days it would have sent 0 messages (not counted: quarantined, disabled, ' +
      'late, no leader, node failed, store)\n',
    err: 'Password for belfry@127.0.0.1: ',
  })
  assert.deepEqual(smtp.mails[0]!.to, ['ops@example.org'])
  assert.match((await run('notice', 'list')).out, /mail +mail +works +now +now +local/)
  state.secret = 'wrong password'
  state.answer = 'n'
  const kept = await run(...setup)
  assert.match(kept.err, /Replace the channel mail\? \[y\/N\] belfry: Nothing was changed\./)
  const replaced = await run(...setup, '--yes')
  assert.equal(replaced.code, 1)
  assert.match(
    replaced.out,
    /not delivered \(535: the mail server refused the user or the password\)/,
  )
  assert.match(replaced.err, /The channel is stored\. [^]*belfry notice test mail\n$/)
  assert.match((await run('notice', 'list')).out, /mail +mail +failing .* 535: the mail server/)
  const shown = await run('--json', 'notice', 'list')
  assert.equal(JSON.parse(shown.out).channels[0].config.password, '${secret:notice-mail}')
})

test('a script sets up channels with secrets from files, and without one it fails', async (t) => {
  const {directory, state, run} = await commands(t)
  const receiver = await startHttp(t)
  const file = join(directory, 'secret')
  await writeFile(file, `${receiver.url}/services/T1\n`)
  const slack = await run('notice', 'setup', 'slack', '--name', 'chat', '--secret-file', file)
  assert.match(slack.out, /^channel chat: test message accepted \(200: accepted\)\nrule all-jobs: /)
  assert.equal(receiver.received[0]!.path, '/services/T1')
  state.input = 'token-token\n'
  const ntfy = ['notice', 'setup', 'ntfy', `${receiver.url}/topic`, '--secret-file', '-']
  assert.equal((await run(...ntfy)).code, 0)
  assert.equal(receiver.received[1]!.headers.authorization, 'Bearer token-token')
  const header = ['--header', 'X-Team: ops']
  assert.equal((await run('notice', 'setup', 'webhook', receiver.url, ...header)).code, 0)
  assert.equal(receiver.received[2]!.headers['x-team'], 'ops')
  const without = await run('notice', 'setup', 'pagerduty')
  assert.equal(without.code, 2)
  assert.match(without.err, /--secret-file is required without a terminal: the routing_key of/)
  assert.equal((await run('notice', 'setup', 'slack', 'https://hooks.slack.com/x')).code, 2)
  assert.match((await run('notice', 'list')).out, /chat +slack[^]*ntfy +ntfy[^]*webhook +webhook/)
})

test('a ping for the cluster says what it does, and gets no rule', async (t) => {
  const {api, state, run} = await commands(t)
  const receiver = await startHttp(t)
  state.secret = `${receiver.url}/uuid`
  const ran = await run('notice', 'setup', 'ping', '--cluster')
  assert.match(ran.out, /test message accepted \(200: accepted\)\n {2}the leader requests the URL/)
  assert.equal(receiver.received[0]!.path, '/uuid')
  assert.deepEqual(await api.store.rules(), [])
  const refused = await run('notice', 'add', 'a', '--failed', '--to', 'ping')
  assert.deepEqual([refused.code, /"ping" is pinged while/.test(refused.err)], [1, true])
  state.secret = `${receiver.url}/{job}`
  const invalid = await run('notice', 'setup', 'ping', '--cluster', '--name', 'b')
  assert.match(invalid.err, /url cannot have \{job\} if cluster is true/)
})

test('a channel that does not deliver sets the exit code, and can be deleted', async (t) => {
  const {api, run} = await commands(t)
  const url = `http://127.0.0.1:${await closedPort()}`
  assert.equal((await run('notice', 'setup', 'webhook', url)).code, 1)
  const tried = await run('notice', 'test', 'webhook')
  assert.equal(tried.code, 1)
  assert.equal(
    tried.out,
    'channel webhook: test message not delivered (the host refused the connection)\n',
  )
  assert.equal((await run('notice', 'delete', 'webhook')).out, 'deleted webhook\n')
  assert.match((await run('notice', 'test', 'webhook')).err, /There is no channel named "webhook"/)
  assert.match((await run('notice', 'list')).out, /^No channels\. Set one up with belfry notice/)
  assert.deepEqual(await api.store.channels(), [])
})

test('incidents and dead messages are listed, and a message is sent again', async (t) => {
  const {api, run} = await commands(t)
  const receiver = await startHttp(t)
  assert.equal((await run('notice', 'incidents')).out, 'No incidents.\n')
  assert.equal((await run('notice', 'list', '--dead')).out, 'No messages.\n')
  assert.equal((await run('notice', 'setup', 'webhook', receiver.url)).code, 0)
  await api.join()
  await api.job('load')
  await api.finish(await api.running('load'), 'failed')
  await api.clock.advance(60_000)
  await api.store.evaluateNotices({olderThanMs: 0, sweep: null, seed: 's'})
  const open = await run('notice', 'incidents', '--state', 'open', '--job', 'lo*')
  assert.match(open.out, /load failed: exit code 1 +open +1m ago +- +1 +\d+ +all-jobs/)
  for (let attempt = 1; attempt <= 4; attempt += 1) {
    const [claimed] = await api.store.claimNotices({sender: 'a', free: {}, otherwise: 1})
    const {id} = claimed!.message
    const mark = {id, channel: 'webhook', attempt, sender: 'a', cause: '400: refused'}
    await api.store.markNotice({...mark, outcome: 'permanent'})
    await api.clock.advance(2 * 3_600_000)
  }
  const dead = await run('notice', 'list', '--dead')
  assert.match(
    dead.out,
    /webhook +dead +8h ago +4 +- +opened +load failed: exit code 1 +400: refused/,
  )
  const [id = ''] = /ntc_\w+/.exec(dead.out) ?? []
  assert.equal((await run('notice', 'resend', id)).out, `${id} is sent again over webhook\n`)
  assert.match((await run('notice', 'messages', '--state', 'waiting')).out, new RegExp(id))
  const none = await run('notice', 'resend', 'ntc_none')
  assert.deepEqual([none.code, /There is no message "ntc_none"/.test(none.err)], [1, true])
})

test('rules are added, listed and deleted, and jobs are muted for a while', async (t) => {
  const {api, run} = await commands(t)
  const receiver = await startHttp(t)
  await run('notice', 'setup', 'webhook', receiver.url)
  const nightly = ['notice', 'add', 'nightly', '--jobs', 'backup-db', '--to', 'webhook']
  const added = await run(...nightly, '--disabled', '1h', '--failed', '2')
  assert.equal(
    added.out,
    'rule nightly: 0 jobs backup-db: failed 2, disabled 1h, recovered; to webhook\n' +
      '  in the last 7 days it would have sent 0 messages (not counted: disabled)\n',
  )
  const hours = ['--quiet', '22:00-07:00', '--quiet-days', 'sat,sun']
  const quiet = ['--quiet-timezone', 'Europe/Berlin', '--quiet-except', 'critical']
  const held = await run(...nightly, '--failed', ...hours, ...quiet)
  assert.match(held.out, /failed, recovered; quiet 22:00-07:00 Europe\/Berlin; to webhook/)
  const [, stored] = await api.store.rules()
  const except = {timezone: 'Europe/Berlin', except: 'critical'}
  const expected = {days: ['sat', 'sun'], from: '22:00', to: '07:00', ...except}
  assert.deepEqual(stored!.definition.quiet, [expected])
  const wrongHours = await run(...nightly, '--failed', '--quiet', 'night')
  assert.match(wrongHours.err, /--quiet must be two times of day, as 22:00-07:00, not "night"/)
  const alone = await run(...nightly, '--failed', '--quiet-days', 'sat')
  assert.match(alone.err, /--quiet is required with --quiet-days/)
  const none = await run(...nightly)
  assert.deepEqual([none.code, /needs a condition/.test(none.err)], [2, true])
  const wrong = await run(...nightly, '--disabled', 'long', '--severity', 'urgent')
  assert.match(wrong.err, /severity: must be one of[^]*when\.disabled\.for: must be a length/)
  assert.match(
    (await run('notice', 'rules')).out,
    /all-jobs +\* +critical[^]*nightly +backup-db +error/,
  )
  assert.match(
    (await run('notice', 'delete', 'webhook')).err,
    /the rules all-jobs, nightly send over it/,
  )
  assert.equal((await run('notice', 'delete-rule', 'nightly')).out, 'deleted nightly\n')
  const mute = ['notice', 'mute', '--jobs', 'etl-*', '--until', '4h', '--reason', 'warehouse move']
  const muted = await run(...mute)
  const [, id = ''] =
    /are muted until .*in 4h.*; belfry notice unmute (\d+)\n$/.exec(muted.out) ?? []
  assert.notEqual(id, '', muted.out + muted.err)
  assert.match((await run('notice', 'mutes')).out, /etl-\* +all +in 4h +local +warehouse move/)
  assert.equal((await run('notice', 'unmute', id)).out, 'notices about etl-* are sent again\n')
  assert.equal((await run('notice', 'mutes')).out, 'Nothing is muted.\n')
  assert.match((await run('notice', 'unmute', id)).err, /There is no mute \d+ in force/)
})
