/** `belfry jobs run --wait`: it ends as the launch does. */
import assert from 'node:assert/strict'
import {Readable} from 'node:stream'
import {test, type TestContext} from 'node:test'
import {Command} from 'commander'
import {runCli} from '../../src/cli/program.ts'
import {cannedServer, json} from './canned-server.ts'

/** Runs the command; the server answers each question for the launch with the next reply. */
async function waiting(t: TestContext, argv: readonly string[], ...replies: (object | number)[]) {
  const server = await cannedServer(({line}, response) => {
    if (line === 'POST /v1/jobs/backup/run')
      return json(response, 202, {name: 'backup', ephemeral: false}, {'x-launch-id': '12'})
    assert.equal(line, 'GET /v1/jobs/backup/launches/12')
    const reply = replies.shift()!
    if (typeof reply === 'number') json(response, reply, {detail: 'no'})
    else json(response, 200, reply)
  })
  t.after(() => server.close())
  let out = ''
  let err = ''
  const code = await runCli(['jobs', 'run', 'backup', ...argv], {
    terminal: {
      out: (text) => void (out += text),
      outBytes: async () => {},
      err: (text) => void (err += text),
      input: () => Readable.from([]),
      colours: false,
      progress: false,
    },
    env: {BELFRY_SERVER: server.url},
    clock: {
      now: () => 0,
      monotonicMs: () => 0,
      after: (_delayMs, callback) => {
        setImmediate(callback)
        return {cancel: () => {}}
      },
    },
    version: '1',
    serverCommand: new Command('server'),
    restoreBackup: async () => ({ok: true}),
    migrateStore: async () => ({ok: true}) as never,
  })
  assert.equal(replies.length, 0, 'it does not end before the launch')
  return {code, out, err}
}

const OPEN = {group: 12, decision: 'pending', reason: '', status: '', executions: []}
const launched = (status: string, ...ends: string[]) => {
  const executions = ends.map((end, at) => ({id: `12-tower-${at + 1}`, status: end}))
  return {...OPEN, decision: 'launched', status, executions}
}
const GOOD = launched('success', 'failed', 'succeeded')

test('a run that succeeds after a retry ends with 0, across a restart of the server', async (t) => {
  const retried = launched('', 'failed', 'pending')
  assert.deepEqual(await waiting(t, ['--wait'], OPEN, 503, retried, GOOD), {
    code: 0,
    out: 'backup will run as launch 12\n12-tower-1 failed\n12-tower-2 succeeded\n',
    err: '',
  })
  const printed = await waiting(t, ['--wait', '--json'], GOOD)
  assert.deepEqual(JSON.parse(printed.out), GOOD)
  const {group} = JSON.parse((await waiting(t, ['--json'])).out) as {group: number}
  assert.equal(group, 12)
})

for (const [title, reply, says] of [
  [
    'a failure',
    launched('partially_failed', 'succeeded', 'failed'),
    /partially failed in launch 12.* belfry runs output backup 12-tower-\d/,
  ],
  ['a skipped run', {...OPEN, decision: 'skipped', reason: 'no_target'}, /skipped \(no_target\)/],
  ['a launch that the token may not read', 403, /no/],
  ['a job that is deleted meanwhile', 404, /the job was deleted meanwhile/],
] as const)
  test(`${title} ends a wait with 1`, async (t) => {
    const {code, err} = await waiting(t, ['--wait'], reply)
    assert.equal(code, 1)
    assert.match(err, says)
  })
