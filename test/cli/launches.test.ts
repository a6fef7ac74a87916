/** `belfry jobs launches` and `belfry runs cancel --job`. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {endReason, resultOf} from '../../src/cli/commands/launches.ts'
import {wordsIn} from '../../src/core/explain/words.ts'
import type {LaunchJson} from '../../src/wire/execution.ts'
import {cannedServer, json} from './canned-server.ts'
import {runHere} from './run-cli.ts'

const LAUNCH: LaunchJson = {
  group: 7,
  job_name: 'x',
  scheduled_at: '2026-03-01T11:00:00Z',
  scheduled_until: '2026-03-01T11:00:00Z',
  count: 1,
  decided_at: '2026-03-01T11:00:00.100Z',
  cause: 'schedule',
  decision: 'launched',
  reason: '',
  status: '',
  term: 1,
  executions: [],
}
const ended = (status: 'succeeded' | 'failed', id = '7-a-1') => ({
  id,
  node_name: 'a',
  attempt: 1,
  status,
  success: status === 'succeeded',
  started_at: '',
  finished_at: '',
  reason: '',
  exit_code: status === 'failed' ? 3 : 0,
})

test('a launch is one row: late ones say so, many nodes are counted, reasons are sentences', async (t) => {
  const rows: LaunchJson[] = [
    {...LAUNCH, decided_at: '2026-03-01T11:01:30Z', executions: [ended('failed')]},
    {...LAUNCH, executions: [ended('succeeded'), ended('succeeded', 'b'), ended('failed', 'c')]},
    {...LAUNCH, decision: 'missed', reason: 'catch_up_latest', count: 3},
  ]
  const server = await cannedServer((_asked, response) => json(response, 200, rows))
  t.after(() => server.close())
  const {out} = await runHere(['--server', server.url, 'jobs', 'launches', 'x'])
  assert.equal(
    out,
    'LAUNCH  PLANNED               LATE   CAUSE     DECISION  TIMES  RESULT\n' +
      '7       2026-03-01 11:00:00Z  1m30s  schedule  launched         7-a-1 failed (exit code 3)\n' +
      '7       2026-03-01 11:00:00Z         schedule  launched         2 succeeded, 1 failed\n' +
      '7       2026-03-01 11:00:00Z         schedule  missed    3      ' +
      'Only the newest missed time ran.\n',
  )
})

test('reasons of newer and older servers are shown as they are', () => {
  const words = wordsIn('UTC', Date.parse(LAUNCH.scheduled_at))
  assert.equal(resultOf({...LAUNCH, reason: 'new_code: because'}, words), 'new_code: because')
  assert.match(resultOf({...LAUNCH, reason: 'forbid: of 12'}, words), /^Another launch was open/)
  assert.equal(endReason({status: 'failed'}), '')
  assert.equal(endReason({status: 'lost', reason: 'node_lost'}).includes('heartbeats'), true)
})

test('runs cancel --job cancels all of a job, in several requests if there are many', async (t) => {
  const replies = [
    {cancelled: ['1-a-1', '2-a-1'], more: true},
    {cancelled: ['3-a-1'], more: false},
  ]
  const server = await cannedServer((_asked, response) => json(response, 202, replies.shift()))
  t.after(() => server.close())
  const run = (...argv: string[]) => runHere(['--server', server.url, 'runs', 'cancel', ...argv])
  assert.deepEqual(await run('--job', 'x'), {
    code: 0,
    out: '3 executions of x are being cancelled\n',
    err: 'New launches may start. To prevent them: belfry jobs disable x\n',
  })
  replies.push({cancelled: [], more: true})
  const one = await run('--job', 'x', '--launch', '7', '--json')
  assert.deepEqual(JSON.parse(one.out), {cancelled: []})
  assert.equal(server.asked.at(-1)!.line, 'POST /v1/jobs/x/executions/cancel?launch=7')
  for (const argv of [[], ['x'], ['x', '1-a-1', '--job', 'y'], ['x', '1-a-1', '--launch', '7']])
    assert.equal((await run(...argv)).code, 2)
})
