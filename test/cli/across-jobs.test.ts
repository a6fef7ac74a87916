/** `belfry launches`, `belfry trace`, and `belfry runs list` without a job. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {cannedServer, json} from './canned-server.ts'
import {commands} from './real-api.ts'
import {runHere} from './run-cli.ts'

test('launches of all jobs are read page by page, up to the limit', async (t) => {
  const row = {
    job_name: 'a',
    scheduled_at: '2026-03-01T11:00:00Z',
    scheduled_until: '2026-03-01T11:00:00Z',
    count: 1,
    decided_at: null,
    cause: 'manual',
    decision: 'launched',
    reason: '',
    status: 'success',
    executions: [],
  }
  const pages: Record<string, object> = {
    '': {launches: [{...row, group: 9}], next: 'x'},
    x: {launches: [], next: 'y'},
    y: {launches: [{...row, group: 8}], next: 'z'},
  }
  const server = await cannedServer(({line}, response) => {
    const after = /after=(\w+)/.exec(line)?.[1] ?? ''
    json(response, 200, pages[after])
  })
  t.after(() => server.close())
  const here = (...argv: string[]) => runHere(['--server', server.url, ...argv])
  const {out} = await here('launches', '--limit', '2', '--job', 'a*', '--status', 'failed')
  assert.deepEqual(
    out.match(/^\d+/gm),
    ['9', '8'],
    'executions that are not kept do not hide the end',
  )
  assert.match(out, /manual +launched +success/)
  assert.match(server.asked[0]!.line, /\?(?=.*job=a\*)(?=.*status=failed)(?=.*limit=2)/)
  const {out: text} = await here('launches', '--limit', '2', '--json')
  const {launches, next} = JSON.parse(text) as {launches: object[]; next: string}
  assert.deepEqual([launches.length, next], [2, 'z'])
})

test('a chain is a tree, with what ran, what did not, and why', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  await api.job('extract')
  await api.job('load', {parent_job: 'extract', schedule: ''})
  await api.job('mart', {parent_job: 'load', schedule: ''})
  await api.job('mail', {parent_job: 'mart', schedule: ''})
  await api.job('index', {parent_job: 'extract', schedule: ''})
  await api.finish(await api.running('extract'))
  await api.launch()
  const claimed = await api.claim()
  for (const one of claimed)
    await api.finish(one, one.execution.jobName === 'load' ? 'failed' : 'succeeded')
  const [extract] = (await api.get('/v1/jobs/extract/launches')).json
  const {out, code} = await run('trace', String(extract.group), '--utc')
  assert.equal(code, 0)
  const lines = out.split('\n').map((line) => line.replace(/\d{4}-\d\d-\d\d [\d:]+Z/, 'TIME'))
  const shown = (line: string | undefined) => line?.replaceAll(/ {2,}/g, '  ')
  assert.match(lines[0]!, /^JOB +LAUNCH +STARTED +TOOK +STATUS +WHY$/)
  assert.match(lines[1]!, /^extract +1 +TIME +\S+ +success$/)
  const tree = lines.slice(2, -1)
  assert.deepEqual(
    tree.map((line) => /^[│├└ ]*\w+/.exec(line)?.[0]),
    ['├ index', '└ load', '  └ mart', '    └ mail'],
  )
  assert.match(shown(tree[1])!, /failed {2}exit code 1$/)
  assert.match(shown(tree[2])!, /not run {2}.*load.* failed/)
  assert.equal(JSON.parse((await run('trace', '1', '--json')).out).launches.length, 5)
  const unknown = await run('trace', '999')
  assert.deepEqual([unknown.code, unknown.err.includes('no such launch')], [1, true])
})

test('executions are listed without a job, and by filters also with one', async (t) => {
  const {api, run} = await commands(t)
  await api.join()
  for (const name of ['a', 'b']) {
    await api.job(name)
    await api.finish(await api.running(name), name === 'a' ? 'failed' : 'succeeded')
  }
  const all = await run('runs', 'list')
  assert.match(all.out, /^JOB +EXECUTION.*\nb .*succeeded.*\na .*failed/)
  const failed = await run('runs', 'list', '--status', 'failed', '--ended-since', '8h')
  assert.match(failed.out, /^JOB.*\na .*\n$/)
  assert.match((await run('runs', 'list', 'b', '--min-duration', '1ms')).out, /^JOB.*\nb .*\n$/)
  assert.equal((await run('runs', 'list', 'b', '--exit-code', '9')).out, 'No executions.\n')
  assert.equal((await run('runs', 'list', 'a', '--job', 'b')).code, 2)
  assert.equal((await run('runs', 'list', '--min-duration', 'long')).code, 2)
  assert.equal((await run('launches', '--since', 'yesterday')).code, 2)
  const since = await run('launches', '--since', '8h', '--cause', 'manual', '--metadata', 'k=v')
  assert.equal(since.out, 'No launches.\n')
})
