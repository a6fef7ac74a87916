/** The commands for tokens and policies, against the real API. */
import assert from 'node:assert/strict'
import {writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {test} from 'node:test'
import type {Api} from '../http/harness.ts'
import {commands} from './real-api.ts'

const READ = {capabilities: ['read']}

async function status(api: Api, path: string, token: string): Promise<number> {
  return (await api.get(path, {'x-service-token': token})).status
}

test('a secret is alone on standard output, and works', async (t) => {
  const {api, run, state} = await commands(t)
  const first = await run('token', 'bootstrap')
  assert.equal(first.code, 0)
  assert.match(first.out, /^belfry_\S+\n$/)
  assert.match(first.err, /type +management[^]*shown this once/)
  assert.match((await run('token', 'list')).err, /A token is needed\. Set one with/)
  state.token = first.out.trim()
  const viewer = await run('token', 'create', 'wallboard', '--type', 'read', '--expires', '90d')
  assert.equal(await status(api, '/v1/jobs', viewer.out.trim()), 200)
  const list = await run('token', 'list')
  assert.match(list.out, /wallboard +read +in 90d/)
  assert.ok(!list.out.includes(viewer.out.trim()))
  const shown = await run('token', 'show', 'wallboard')
  assert.match(shown.out, /^name +wallboard\n/)
  assert.equal((await run('--json', 'token', 'show', 'wallboard')).code, 0)
  assert.match((await run('token', 'revoke', 'wallboard')).out, /^revoked wallboard \(/)
  assert.equal(await status(api, '/v1/jobs', viewer.out.trim()), 401)
  assert.match((await run('token', 'show', 'wallboard')).err, /There is no token "wallboard"/)
})

test('sessions are listed, and revoked by their accessor', async (t) => {
  const {api, run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  assert.equal((await run('token', 'list', '--sessions')).out, 'No sessions.\n')
  const opened = await api.post('/v1/session', undefined, {'x-service-token': state.token})
  const [cookie = ''] = opened.headers['set-cookie']![0]!.split(';')
  const list = await run('token', 'list', '--sessions')
  const [, accessor = ''] = /bootstrap +management .* (\S+)\n$/.exec(list.out) ?? []
  assert.match((await run('token', 'revoke', accessor)).out, /^ended a session of bootstrap/)
  assert.equal((await api.get('/v1/session', {cookie})).status, 401)
  assert.equal(await status(api, '/v1/session', state.token), 200, 'the token stays')
})

test('a name that two tokens have is refused with their accessors', async (t) => {
  const {run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  assert.ok(!(await run('token', 'create', 'twin', '--type', 'read')).err.includes('warning'))
  const second = await run('token', 'create', 'twin', '--type', 'metrics')
  assert.match(second.err, /^warning: another token has this name: both are valid\n/)
  const {code, err} = await run('token', 'revoke', 'twin')
  assert.equal(code, 1)
  const [accessor = ''] =
    /Use an accessor: (\S+) \(read, created \S+\), \S+ \(metrics,/.exec(err)?.slice(1) ?? []
  assert.equal((await run('token', 'revoke', accessor)).code, 0)
  assert.equal((await run('token', 'revoke', 'twin')).code, 0)
})

test('a token for agents is made and shown with its limits', async (t) => {
  const {run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  const limits = ['--names', 'press-*', '--tag', 'room=a', 'room=b', '--slots', '8']
  const made = await run('token', 'create', 'press', '--type', 'agent', ...limits)
  assert.equal(made.code, 0, made.err)
  const shown = (await run('token', 'show', 'press')).out
  assert.match(shown, /node +-\nnames +press-\*\ntags +room=a\|b\nslots +8\n/)
  assert.match((await run('token', 'create', 'x', '--tag', 'room')).err, /--tag must be key=value/)
  const fleet = await run('token', 'create', 'fleet', '--type', 'join', '--uses', '20')
  assert.match(fleet.out, /^belfry_join_\S+\n$/)
  assert.match(fleet.err, /uses left +20\n/)
  const none = await run('token', 'create', 'x', '--type', 'agent', '--uses', '2')
  assert.match(none.err, /uses: is only for a token of type join, not agent/)
  const wrong = await run('token', 'create', 'x', '--type', 'agent', '--slots', 'many')
  assert.match(wrong.err, /--slots must be a whole number/)
})

test('policies are applied, listed, shown, tested and deleted', async (t) => {
  const {directory, run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  const file = join(directory, 'ci.json')
  const rules = '{\n  "path": {"/v1/jobs/deploy/run": {"capabilities": ["create"]}}\n}\n'
  await writeFile(file, rules)
  assert.equal((await run('policy', 'apply', 'ci', '-f', file)).out, 'applied ci\n')
  state.input = rules
  assert.equal((await run('policy', 'apply', 'ci', '-f', '-')).code, 0)
  assert.equal((await run('policy', 'show', 'ci')).out, rules)
  assert.match((await run('policy', 'list')).out, /ci +\/v1\/jobs\/deploy\/run \(create\)/)
  await run('token', 'create', 'ci', '--policy', 'ci')
  assert.equal(
    (await run('policy', 'test', 'ci', 'POST', '/v1/jobs/deploy/run')).out,
    'allowed\n  create /v1/jobs/deploy/run is granted: "/v1/jobs/deploy/run" of the policy ci decides\n',
  )
  const refused = await run('policy', 'test', 'ci', 'GET', '/v1/jobs/deploy')
  assert.match(refused.out, /^not allowed: The token "ci" may not read \/v1\/jobs\/deploy: no glob/)
  const both = await run('token', 'create', 'two', '--policy', 'ci', 'more')
  assert.match(both.err, /warning: policies: there is no policy more/)
  assert.equal((await run('policy', 'delete', 'ci')).out, 'deleted ci\n')
  assert.match((await run('policy', 'show', 'ci')).err, /no policy named "ci"/)
})

test('the answer to what a token may do says why, and is the exit code', async (t) => {
  const {directory, run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  const file = join(directory, 'ci.json')
  const rules = {path: {'/v1/jobs/ci-*': {capabilities: ['read']}, '/v1/secrets/db': READ}}
  await writeFile(file, JSON.stringify(rules))
  assert.equal((await run('policy', 'apply', 'ci', '-f', file)).err, '')
  await run('token', 'create', 'ci', '--policy', 'ci')
  await run('token', 'create', 'wall', '--type', 'read')
  const cases: readonly (readonly [asked: string, code: number, out: RegExp])[] = [
    [
      'bootstrap DELETE /v1/jobs/x',
      0,
      /^allowed\n  delete .* granted: a management token may do ev/,
    ],
    ['bootstrap POST /v1/jobs', 0, /^allowed\n/],
    ['wall GET /v1/jobs/x', 0, /^allowed\n  read .* granted: a read token reads everything\n/],
    ['wall DELETE /v1/jobs/x', 1, /^not allowed: .* refused: a read token changes nothing\n/s],
    ['ci get /v1/jobs/ci-1', 0, /^allowed\n/],
    ['ci GET /v1/jobs/x', 1, /^not allowed: .* refused: no glob of its policies matches\n/s],
    [
      'ci POST /v1/jobs',
      1,
      /^not known: The body decides, job by job\. Ask for PUT \/v1\/jobs\/NAME\.\n/,
    ],
    ['ci GET /v1/secrets/db', 0, /^allowed\n  read \/v1\/secrets\/db is granted/],
    ['ci GET /v1/secrets/other', 1, /^not allowed: /],
  ]
  for (const [asked, code, out] of cases) {
    const ran = await run('policy', 'test', ...asked.split(' '))
    assert.match(ran.out, out, asked)
    assert.deepEqual([ran.code, ran.err], [code, ''], asked)
  }
  const relative = await run('policy', 'test', 'ci', 'GET', 'v1/jobs')
  assert.deepEqual([relative.code, relative.out], [2, ''])
  assert.match(relative.err, /must begin with "\/"/)
  assert.match((await run('policy', 'test', 'ci', 'FETCH', '/v1/jobs')).err, /must be one of GET,/)
  const put = await run('policy', 'test', 'ci', 'PUT', '/v1/jobs')
  assert.match(put.err, /no route is PUT \/v1\/jobs; its methods are GET, .*POST/)
})

test('a policy that does less than it seems is applied with a warning', async (t) => {
  const {run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  const cases: readonly (readonly [rules: object, warning: RegExp | null])[] = [
    [{path: {}}, /grants nothing: it has no globs/],
    [{path: {'/v1/job': READ}}, /the glob "\/v1\/job" matches no path of the API/],
    [{path: {'/v2/**': READ}}, /the glob "\/v2\/\*\*" matches no path/],
    [{path: {'/**': READ}, executors: ['shel']}, /executors: "shel" is no executor/],
    [{path: {'/**': READ, '/v1/jobs/*/run': READ, '/v1/**/output': READ}, executors: ['s*']}, null],
  ]
  for (const [rules, warning] of cases) {
    state.input = JSON.stringify(rules)
    const {code, err} = await run('policy', 'apply', 'odd', '-f', '-')
    assert.equal(code, 0)
    if (warning === null) assert.equal(err, '')
    else assert.match(err, warning)
  }
  await run('token', 'create', 'ci', '--policy', 'odd')
  assert.match((await run('policy', 'delete', 'odd')).err, /^warning: tokens still name it: ci\n/)
  state.input = '{"path":\n {"/v1/jobs": ]}}'
  assert.match(
    (await run('policy', 'apply', 'odd', '-f', '-')).err,
    /^belfry: Standard input cannot be applied: Rules is not JSON: Unexp.*not valid JSON.\n$/,
  )
  state.input = '{}'
  assert.match((await run('policy', 'apply', 'odd', '-f', '-')).err, /Rules has no member "path"/)
})

test('rules that would grant nothing are not applied', async (t) => {
  const {api, directory, run} = await commands(t)
  const file = join(directory, 'wrong.json')
  await writeFile(file, '{"path": {"jobs/*": {"capabilities": ["read"]}}}')
  const {code, err} = await run('policy', 'apply', 'wrong', '-f', file)
  assert.equal(code, 1)
  assert.match(err, /wrong\.json cannot be applied: the glob "jobs\/\*" must start with "\/"/)
  assert.deepEqual((await api.get('/v1/acl/policies')).json, [])
  await api.post('/v1/acl/policies/wrong', {Rules: 'not JSON'})
  assert.match((await run('policy', 'list')).out, /grants nothing: Rules is not JSON/)
})

test('a secret is set from standard input or a file, and never shown', async (t) => {
  const {api, directory, state, run} = await commands(t)
  state.input = 'hunter2-hunter2\n'
  assert.equal((await run('secret', 'set', 'db')).out, 'set db\n')
  const file = join(directory, 'value')
  await writeFile(file, 'first line\r\nlast line\r\n')
  assert.equal((await run('secret', 'set', 'key', '--file', file)).code, 0)
  const list = await run('secret', 'list')
  assert.match(list.out, /db +now[^]*key +now/)
  assert.ok(!list.out.includes('hunter2'))
  assert.deepEqual(JSON.parse((await run('--json', 'secret', 'list')).out).length, 2)
  const stored = await api.store.sealedSecrets(['db', 'key'])
  assert.deepEqual(
    stored.map(({name, ciphertext}) => api.vault.open(name, ciphertext)),
    ['hunter2-hunter2', 'first line\r\nlast line'],
  )
  assert.equal((await run('secret', 'set', 'db', 'hunter2-hunter2')).code, 2)
  assert.equal((await run('secret', 'delete', 'db')).out, 'deleted db\n')
  assert.match((await run('secret', 'delete', 'db')).err, /There is no secret named "db"/)
})

test('the history of a job shows who changed what, and leads back', async (t) => {
  const {api, run} = await commands(t)
  await api.job('report', {retries: 1, metadata: {a: '1', b: '2'}})
  await api.job('report', {retries: 2, metadata: {a: '1', b: '3'}})
  await run('jobs', 'toggle', 'report')
  const history = (await run('jobs', 'history', 'report', '--limit', '2')).out.split('\n')
  assert.match(history[0]!, /^REVISION +TIME +ACTOR +ACTION +DETAIL$/)
  assert.match(history[1]!, /^3 +\S+ \S+Z +local +job\.toggle +disabled$/)
  assert.match(history[2]!, /^2 +\S+ \S+Z +local +job\.update$/)
  assert.equal((await run('jobs', 'diff', 'report')).out, '- disabled: false\n+ disabled: true\n')
  const second = '- metadata.b: "2"\n+ metadata.b: "3"\n- retries: 1\n+ retries: 2\n'
  assert.equal((await run('jobs', 'diff', 'report', '2')).out, second)
  assert.equal((await run('jobs', 'diff', 'report', '2', '2')).out, 'No difference.\n')
  assert.match((await run('jobs', 'diff', 'report', '3', '1')).out, /\+ disabled: false\n/)
  const reverted = await run('jobs', 'revert', 'report', '1')
  assert.equal(reverted.out, 'report is as it was in revision 1\n')
  assert.equal((await run('jobs', 'diff', 'report', '1', '4')).out, 'No difference.\n')
  assert.match((await run('jobs', 'revert', 'report', '9')).err, /no revision "9"/)
})

test('the audit log shows who changed what', async (t) => {
  const {api, run, state} = await commands(t)
  await api.job('report', {retries: 1})
  state.token = (await run('token', 'bootstrap')).out.trim()
  await run('jobs', 'toggle', 'report')
  const {out, err} = await run('audit', '--limit', '2')
  const [titles, toggled, token] = out.split('\n')
  assert.match(titles!, /^TIME +ACTOR +ADDRESS +ACTION +TARGET +REVISION +DETAIL$/)
  assert.match(toggled!, /bootstrap +127\.0\.0\.1 +job\.toggle +job report +1 → 2 +disabled$/)
  assert.match(token!, /local +127\.0\.0\.1 +token\.create +token bootstrap +- +accessor/)
  assert.equal(err, '2 of 3 entries\n')
  const filtered = await run(
    '--json',
    'audit',
    '--job',
    'report',
    '--actor',
    'local',
    '--from',
    '1h',
  )
  assert.deepEqual(
    JSON.parse(filtered.out).map(({action}: {action: string}) => action),
    ['job.create'],
  )
  assert.equal((await run('audit', '--to', '1h')).out, 'No entries.\n')
})
