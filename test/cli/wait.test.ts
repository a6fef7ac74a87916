/** `belfry jobs run --wait`: it ends as the launch does. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import type {ServerResponse} from 'node:http'
import {test, type TestContext} from 'node:test'
import type {Clock} from '../../src/ports/runtime.ts'
import {cannedServer, json} from './canned-server.ts'
import {endAtOnce, runHere} from './run-cli.ts'

type Answer = Parameters<typeof cannedServer>[0]

/** Runs the command; the server answers each question for the launch with the next reply. */
async function waiting(t: TestContext, argv: readonly string[], ...replies: (object | number)[]) {
  const ran = await runWith(t, argv, endAtOnce, ({line}, response) => {
    if (line === 'GET /v1/events') return json(response, 429, {detail: 'too many'})
    assert.equal(line, 'GET /v1/jobs/backup/launches/12')
    const reply = replies.shift()!
    if (typeof reply === 'number') json(response, reply, {detail: 'no'})
    else json(response, 200, reply)
  })
  assert.equal(replies.length, 0, 'it does not end before the launch')
  return ran
}

/** `answer` is for all requests but that of the run. */
async function runWith(
  t: TestContext,
  argv: readonly string[],
  after: Clock['after'],
  answer: Answer,
) {
  const server = await cannedServer((asked, response) => {
    if (asked.line === 'POST /v1/jobs/backup/run')
      json(response, 202, {name: 'backup', ephemeral: false}, {'x-launch-id': '12'})
    else answer(asked, response)
  })
  t.after(() => server.close())
  return runHere(['jobs', 'run', 'backup', ...argv], {
    env: {BELFRY_SERVER: server.url},
    clock: {now: () => 0, monotonicMs: () => 0, after},
  })
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

test('an event of the job ends a wait before the next poll', {timeout: 60_000}, async (t) => {
  let stream: ServerResponse | null = null
  let looks = 0
  // The stream opens after the first look, and causes the second one.
  const open = () => {
    if (stream === null || looks === 0 || stream.headersSent) return
    stream.writeHead(200, {'content-type': 'text/event-stream'}).write(': \n\n')
  }
  const never: Clock['after'] = () => ({cancel: () => {}})
  const {code} = await runWith(t, ['--wait'], never, ({line}, response) => {
    if (line === 'GET /v1/events') stream = response
    else {
      looks += 1
      json(response, 200, looks < 3 ? OPEN : GOOD)
    }
    open()
    if (looks === 2) stream!.write('event: execution_finished\ndata: {"job":"backup"}\n\n')
  })
  assert.deepEqual([code, looks], [0, 3])
  await once(stream!, 'close')
})
