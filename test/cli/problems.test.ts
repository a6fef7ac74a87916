/** `belfry problems`: what it asks, what it prints for people and scripts, and its exit code. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {ProblemJson, ProblemsJson} from '../../src/wire/problems.ts'
import {cannedServer, json} from './canned-server.ts'
import {commands} from './real-api.ts'
import {runHere} from './run-cli.ts'

const PROBLEM: ProblemJson = {
  kind: 'skipped',
  code: 'no_target',
  cause: {tags: {group: 'wbe'}, nearest_tag: 'group=web'},
  over: false,
  since: '2026-03-01T09:05:00.000Z',
  until: null,
  jobs: ['report-eu', 'report-us'],
  jobs_total: 2,
  planned_times: 61,
  launches: [48190],
  sentence: 'No node has group=wbe.',
  advice: 'Nearest tag: group=web (3 nodes).',
}
const FAILED: ProblemJson = {
  ...PROBLEM,
  kind: 'failed',
  code: 'failed',
  cause: {job: 'load', launch: 48240, dependents: 2, last_line: 'no relation\u001b[31m'},
  jobs: ['load', 'mart', 'mail'],
  jobs_total: 3,
  planned_times: 1,
  launches: [48240],
  sentence: 'load failed: exit code 3.',
  advice: 'Read its output.',
}
const LEADER: ProblemJson = {
  ...PROBLEM,
  kind: 'cluster',
  code: 'no_leader',
  cause: {late: 3, missed: 0},
  over: true,
  until: '2026-03-01T09:05:06.000Z',
  jobs: [],
  jobs_total: 0,
  planned_times: 0,
  launches: [],
  sentence: 'No server led for 6s. a ended, b took over.',
  advice: '',
}
const PAUSED: ProblemJson = {
  ...PROBLEM,
  kind: 'on_purpose',
  code: 'firing_paused',
  cause: {by: 'ops', text: 'new storage', until_at: '2026-03-01T16:00:00.000Z'},
  jobs: Array.from({length: 20}, (_, index) => `j${index}`),
  jobs_total: 25,
  planned_times: 260,
  sentence: 'Firing was paused by ops: "new storage".',
  advice: '',
}
const REPLY: ProblemsJson = {
  from: '2026-03-01T04:00:00.000Z',
  to: '2026-03-01T12:00:00.000Z',
  partial: false,
  oldest: '2026-03-01T04:00:00.000Z',
  not_over: 2,
  next: null,
  problems: [PROBLEM, FAILED, LEADER],
  on_purpose: [PAUSED],
}

async function serverWith(pages: Readonly<Record<string, ProblemsJson>>) {
  return await cannedServer(({line}, response) => {
    json(response, 200, pages[/after=(\w+)/.exec(line)?.[1] ?? ''])
  })
}

test('prints what is not over first, with the jobs, the times and the next command', async (t) => {
  const server = await serverWith({'': REPLY})
  t.after(() => server.close())
  const {out, code} = await runHere(['--server', server.url, 'problems'])
  assert.equal(
    out,
    `3 problems since 2026-03-01 04:00:00Z, 2 not over

NOT OVER
  skipped   No node has group=wbe.
            2 jobs (report-eu and report-us), 61 planned times, since 09:05:00
            Nearest tag: group=web (3 nodes).
            belfry explain report-eu
  failed    load failed: exit code 3.
            3 jobs (load, mart and mail), launch 48240, at 09:05:00, 2 dependents did not run
            Last line of its output: no relation
            Read its output.
            belfry trace 48240

OVER
  cluster   No server led for 6s. a ended, b took over.
            09:05:00 to 09:05:06

ON PURPOSE
  paused    Firing was paused by ops: "new storage".
            25 jobs (j0, j1, j2, j3, j4 and 20 more), 260 planned times, since 09:05:00, until 16:00:00

`,
  )
  assert.equal(code, 1, 'something is not over')
})

test('flags are parameters, pages are one list, and JSON is the reply', async (t) => {
  const page = {...REPLY, problems: [PROBLEM], next: 'x', on_purpose: [PAUSED]}
  const server = await serverWith({'': page, x: {...REPLY, problems: [LEADER], on_purpose: []}})
  t.after(() => server.close())
  const flags = ['--job', 'r*', '--metadata', 'k=v', '--open', '--since', '2h', '--until', '1h']
  const {out} = await runHere(['--server', server.url, '--json', 'problems', ...flags])
  assert.deepEqual(JSON.parse(out), {...page, next: null, problems: [PROBLEM, LEADER]})
  const {line} = server.asked[0]!
  for (const part of ['job=r*', 'metadata=k%3Dv', 'open=true', 'since=2h', 'limit=100'])
    assert.ok(line.includes(part), `${line} has ${part}`)
  assert.match(line, /until=2026-03-01T11%3A00%3A00/)
  for (const wrong of [['--since', 'soon'], ['--until', 'x'], ['--limit', '0'], ['extra']])
    assert.equal((await runHere(['--server', server.url, 'problems', ...wrong])).code, 2)
})

test('the end of what is kept or read is said, and nothing wrong is exit code 0', async (t) => {
  const none = {...REPLY, problems: [], on_purpose: [], not_over: 0}
  const cut = {...REPLY, partial: true, oldest: '2026-03-01T06:00:00.000Z', next: 'x'}
  const server = await serverWith({'': cut, x: cut})
  t.after(() => server.close())
  const {out} = await runHere(['--server', server.url, 'problems', '--limit', '3'])
  assert.match(out, /^3 problems or more since/)
  assert.match(out, /Not complete: .*\n.*complete since 2026-03-01 06:00:00Z\.\nThere are more/)
  const quiet = await serverWith({'': none})
  t.after(() => quiet.close())
  const {out: text, code} = await runHere(['--server', quiet.url, 'problems'])
  assert.deepEqual([text, code], ['No problems since 2026-03-01 04:00:00Z.\n', 0])
})

test('the commands that it prints are commands of this program, against the real API', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  await api.job('load')
  await api.job('mart', {parent_job: 'load', schedule: ''})
  await api.finish(await api.running('load'), 'failed')
  await api.job('other')
  await api.finish(await api.running('other'), 'failed')
  const {out, code} = await run('problems', '--utc')
  assert.equal(code, 1)
  const printed = [...out.matchAll(/^ +belfry (.*)$/gm)].map(([, command]) => command!)
  assert.equal(printed.length, 2)
  for (const command of printed) assert.equal((await run(...command.split(' '))).code, 0, command)
})
