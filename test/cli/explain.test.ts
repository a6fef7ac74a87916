/** `belfry explain`: what it asks, what it prints, and commands that work when typed. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {reasonTold} from '../../src/core/explain/reasons.ts'
import {wordsIn} from '../../src/core/explain/words.ts'
import {LAUNCH_REASONS} from '../../src/core/launch-reasons.ts'
import type {ExplanationJson} from '../../src/wire/explain.ts'
import {aJob, NOON} from '../support/fixtures.ts'
import {cannedServer, json} from './canned-server.ts'
import {runHere} from './run-cli.ts'

const REPLY: ExplanationJson = {
  job: 'report',
  timezone: 'Europe/Berlin',
  at: '2026-03-01T02:30:00+01:00',
  kind: 'not_run',
  code: 'no_target',
  sentences: ['It was planned for 02:30:00, and did not run.', 'It waited 10m.'],
  advice: 'Correct the tag.',
  commands: ['belfry jobs edit report'],
  facts: {},
  before: null,
  after: null,
  now: {state: 'idle', sentences: ['Nothing runs or waits.']},
  next: [{at: '2026-03-02T02:30:00+01:00', unless: ['no node takes it', 'it is paused']}],
}

test('prints the sentences, the state now, the next times and the command to try', async (t) => {
  const server = await cannedServer((_asked, response) => json(response, 200, REPLY))
  t.after(() => server.close())
  const {out, err, code} = await runHere(['--server', server.url, 'explain', 'report'])
  assert.equal(
    out,
    'report at 2026-03-01 02:30:00 +01:00: did not run\n' +
      'It was planned for 02:30:00, and did not run.\n' +
      'It waited 10m.\n' +
      '\n' +
      'Now: Nothing runs or waits.\n' +
      'Next: 2026-03-02 02:30:00 +01:00 (in 13h30m), unless no node takes it; or it is paused\n' +
      '\n' +
      'Correct the tag.\n' +
      '  belfry jobs edit report\n',
  )
  assert.deepEqual([err, code], ['', 0])
})

test('a terminal says the zone of the sentences if the title is in another one', async (t) => {
  const server = await cannedServer((_asked, response) => json(response, 200, REPLY))
  t.after(() => server.close())
  const noteOf = async (options: readonly string[], progress: boolean) => {
    const argv = ['--server', server.url, ...options, 'explain', 'report']
    return (await runHere(argv, {terminal: {progress}})).err
  }
  const note = 'Times in sentences are in Europe/Berlin.\n'
  assert.equal(await noteOf(['--utc'], true), note)
  assert.deepEqual([await noteOf(['--utc'], false), await noteOf([], true)], ['', ''])
})

const SUBJECTS: readonly (readonly [option: readonly string[], query: string])[] = [
  [[], ''],
  [['--at', 'yesterday 02:30'], '?at=2026-02-28T02%3A30'],
  [['--at', 'today'], '?at=2026-03-01'],
  [['--at', '2026-02-11 04:00'], '?at=2026-02-11T04%3A00'],
  [['--at', 'now'], '?at=2026-03-01T12%3A00%3A00.000Z'],
  [['--at', '2h'], '?at=2026-03-01T10%3A00%3A00.000Z'],
  [['--launch', '12'], '?launch=12'],
]
test('the time is given as a word, a date, a time or a duration ago, or by a launch', async (t) => {
  const server = await cannedServer((_asked, response) => json(response, 200, REPLY))
  t.after(() => server.close())
  for (const [option, query] of SUBJECTS) {
    await runHere(['--server', server.url, 'explain', 'report', ...option])
    assert.equal(server.asked.at(-1)!.line, `GET /v1/jobs/report/explain${query}`)
  }
  for (const option of [
    ['--at', 'soon'],
    ['--at', 'now 02:30'],
    ['--launch', 'x'],
    ['--at', '2h', '--launch', '1'],
  ])
    assert.equal((await runHere(['--server', server.url, 'explain', 'r', ...option])).code, 2)
})

test('the commands of all reasons are commands of this program', async (t) => {
  const server = await cannedServer((_asked, response) => json(response, 404, {}))
  t.after(() => server.close())
  const words = wordsIn('UTC', NOON)
  const launch = {
    group: 9,
    jobName: 'report',
    cause: 'schedule' as const,
    decision: 'skipped' as const,
    scheduledAt: NOON,
    scheduledUntil: NOON,
    count: 1,
    decidedAt: NOON,
  }
  const other = {group: 7, jobName: 'load', launch: {...launch, reason: ''}, executions: []}
  const related = {...other, status: null}
  const nodes = {matching: 0, cordoned: [], gone: [], nearest: null}
  const pause = {jobs: 'r*', reason: '', pausedAt: NOON, pausedBy: 'ops', until: null}
  const known = {spec: aJob('report').disabled().spec, related, parent: related, nodes, pause}
  const commands = Object.keys(LAUNCH_REASONS).flatMap(
    (reason) => reasonTold({...launch, reason}, known, words).commands ?? [],
  )
  assert.ok(commands.length > 10)
  for (const command of new Set(commands)) {
    const [program, ...argv] = command.replaceAll("'", '').split(' ')
    assert.equal(program, 'belfry')
    const {code, err} = await runHere(['--server', server.url, ...argv])
    assert.notEqual(code, 2, `${command}: ${err}`)
  }
})
