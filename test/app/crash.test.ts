/** A real server killed with SIGKILL, and its recovery by the next incarnation. */
import assert from 'node:assert/strict'
import {existsSync, readdirSync, readFileSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {describe, test} from 'node:test'
import {childrenOf, isAlive, markedProcesses} from '../support/living-processes.ts'
import {
  aServer,
  temporaryDirectory,
  type Answer,
  type ServerProcess,
} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'
import {revisionIn} from '../support/etag.ts'

const byHand = {schedule: '@manually', executor: 'shell'}
const shell = (command: string) => ({shell: 'true', command})
const SECOND_MS = 1_000

/** Stores the state of a server killed after the commit of a claim and before its start. */
function storeUnstartedClaim(data: string, job: string): void {
  const database = new DatabaseSync(join(data, 'belfry.sqlite'))
  const {changes} = database
    .prepare(
      `UPDATE executions SET status = 'running', started_at = not_before, revision = 1,
        claim_token = 'a-token', incarnation = (SELECT incarnation FROM members)
        WHERE job_name = ? AND status = 'pending'`,
    )
    .run(job)
  database.close()
  assert.equal(changes, 1)
}

describe('kill -9', {concurrency: 2}, () => {
  test('keeps everything acknowledged', async (t) => {
    const server = await aServer(t, {flags: ['--slots', '1']})
    const go = join(temporaryDirectory(t), 'go')
    const hold = `while [ ! -e ${go} ]; do sleep 0.05; done`
    const stored = await server.store({
      name: 'whole',
      displayname: 'Ganz',
      schedule: '0 30 2 * * *',
      timezone: 'Europe/Berlin',
      owner_email: 'a@example.org',
      tags: {role: 'belfry'},
      metadata: {team: 'a'},
      retries: 2,
      concurrency: 'forbid',
      executor: 'shell',
      executor_config: shell('true'),
      processors: {log: {forward: 'true'}},
    })
    await server.store({name: 'holder', ...byHand, executor_config: shell(hold)})
    await server.run('holder')
    await server.execution('holder', ({status}) => status === 'running')
    const waits = await server.run('whole')
    await server.execution('whole', ({status}) => status === 'pending')
    await server.post('/pause')
    const rules = '{"path":{}}'
    await server.post('/acl/policies/p', {Rules: rules})
    await server.post('/jobs/holder/toggle')
    await server.crash()

    const next = await aServer(t, {data: server.data, flags: ['--slots', '1']})
    const {status: _1, success_count: _2, last_success: _3, ...definition} = stored.json
    const {
      status: _4,
      success_count: _5,
      last_success: _6,
      ...again
    } = (await next.get('/jobs/whole')).json
    assert.deepEqual(again, definition)
    const etag = (await next.get('/jobs/whole')).headers.get('etag')
    assert.equal(revisionIn(etag), revisionIn(stored.headers.get('etag')))
    assert.equal((await next.get('/jobs/holder')).json.disabled, true)
    assert.equal((await next.get('/pause')).json.paused, true)
    assert.equal((await next.get('/acl/policies/p')).json.Rules, rules)
    const ran = await next.execution('whole')
    assert.deepEqual([ran.group, ran.status], [waits, 'succeeded'], 'the pending launch runs now')
    assert.equal((await next.execution('holder')).status, 'lost')
  })

  for (const [what, becomes] of [
    ['runs after all', 'succeeded'],
    ['is lost, when its disk does not say that nothing was started', 'lost'],
  ] as const)
    test(`between a claim and the start: the claimed execution ${what}`, async (t) => {
      const server = await aServer(t, {flags: ['--slots', '1']})
      const runs = join(temporaryDirectory(t), 'runs')
      const holds = shell(`echo holder >> ${runs}; sleep 600`)
      await server.store({name: 'holder', ...byHand, executor_config: holds})
      await server.store({name: 'next', ...byHand, executor_config: shell(`echo next >> ${runs}`)})
      await server.run('holder')
      await until('it runs', () => existsSync(runs))
      await server.run('next')
      await server.execution('next', ({status}) => status === 'pending')
      await server.crash()
      storeUnstartedClaim(server.data, 'next')
      const records = readdirSync(join(server.data, 'executions')).filter((name) =>
        name.startsWith('begun-'),
      )
      assert.equal(records.length, 1)
      if (becomes === 'lost') rmSync(join(server.data, 'executions', records[0]!))

      const again = await aServer(t, {data: server.data, flags: ['--slots', '1']})
      const {status, attempt} = await again.execution('next')
      assert.deepEqual([status, attempt], [becomes, 1])
      assert.equal((await again.execution('holder')).status, 'lost')
      const ran = becomes === 'lost' ? 'holder\n' : 'holder\nnext\n'
      assert.equal(readFileSync(runs, 'utf8'), ran)
    })

  for (const also of ['the server alone', 'its helper too'] as const) {
    test(`${also}: orphan processes are ended first, then lost, then retried`, async (t) => {
      const server = await aServer(t)
      const directory = temporaryDirectory(t)
      const file = (name: string) => join(directory, name)
      // Two processes that would outlive it: one ignores TERM, one has a session of its own.
      const command =
        `if [ $BELFRY_ATTEMPT = 1 ]; then trap '' TERM; ` +
        `setsid sh -c 'echo $$ > ${file('escaped')}; exec sleep 300' & ` +
        `echo $$ > ${file('own')}; while :; do sleep 1; done; fi; ` +
        `for p in $(cat ${file('own')} ${file('escaped')}); do ` +
        `grep -qs '^State:.[^ZX]' /proc/$p/status && echo $p >> ${file('alive')}; done; exit 0`
      await server.store({name: 'tree', ...byHand, retries: 1, executor_config: shell(command)})
      const group = await server.run('tree')
      await until('the tree stands', () => existsSync(file('own')) && existsSync(file('escaped')))
      const tree = [file('own'), file('escaped')].map((path) => Number(readFileSync(path, 'utf8')))
      assert.ok(tree.every(isAlive))
      const [helper] = childrenOf(server.pid)
      if (also === 'its helper too') process.kill(helper!, 'SIGKILL')
      await server.crash()

      const next = await aServer(t, {data: server.data})
      assert.deepEqual(tree.filter(isAlive), [], 'ended before the server is ready')
      const second = await next.execution(
        'tree',
        ({attempt, status}) => attempt === 2 && status === 'succeeded',
      )
      assert.ok(!existsSync(file('alive')), 'ended before the retry starts')
      const [, first] = await next.executions('tree')
      assert.deepEqual([first.status, first.group, second.group], ['lost', group, group])
      assert.match(first.output, /^lost: the node went down/m)
      const job = (await next.get('/jobs/tree')).json
      assert.deepEqual([job.success_count, job.error_count, job.status], [1, 1, 'success'])
      assert.deepEqual(markedProcesses(next.data), [])
    })
  }

  test('of the helper alone: its commands are lost or failed, and the next ones run', async (t) => {
    const server = await aServer(t)
    await server.store({name: 'long', ...byHand, retries: 0, executor_config: shell('sleep 300')})
    await server.run('long')
    await until('it runs', () => markedProcesses(server.data).length > 0)
    process.kill(childrenOf(server.pid)[0]!, 'SIGKILL')
    const end = await server.execution('long')
    assert.ok(['failed', 'lost'].includes(end.status), end.status)
    assert.notEqual(end.output, '', 'says why')
    assert.deepEqual(markedProcesses(server.data), [], 'no process is left')
    await server.store({name: 'next', ...byHand, executor_config: shell('echo fine')})
    await server.run('next')
    assert.equal((await server.execution('next')).output, 'fine\n')
  })

  test('by a job: the job is disabled after two deaths, with the reason in its launch record', async (t) => {
    let server = await aServer(t)
    // The parent of the command is the helper, whose parent is the server.
    const command = `kill -9 $(sed 's/.*) . //' /proc/$PPID/stat | cut -d' ' -f1)`
    await server.store({name: 'poison', ...byHand, retries: 5, executor_config: shell(command)})
    await server.run('poison')
    for (const death of ['first', 'second']) {
      const exit = await within(server.program.gone, `the ${death} death`, 15 * SECOND_MS)
      assert.equal(exit.signal, 'SIGKILL')
      server = await aServer(t, {data: server.data})
    }
    const rows = await until('the reason', async () => {
      const found = await server.launches('poison')
      return found.some(({reason}) => reason.startsWith('quarantined')) ? found : undefined
    })
    assert.deepEqual(
      rows.map(({decision}) => decision),
      ['launched', 'skipped'],
    )
    assert.match(rows[1].reason, /^quarantined: .*died.*launch 1.*disabled/)
    assert.equal((await server.get('/jobs/poison')).json.disabled, true)
    const ends = (await server.executions('poison')).map(({attempt, status}) => [attempt, status])
    assert.deepEqual(ends, [
      [2, 'lost'],
      [1, 'lost'],
    ])
  })
})

/** Decision of each planned time, expanded from the launch records. */
function planned(rows: readonly Answer['json'][], everyMs: number): Map<number, string> {
  const times = new Map<number, string>()
  // The span of a disabled job has no planned times at first.
  for (const row of rows.filter(({cause, count}) => cause === 'schedule' && count > 0)) {
    const from = Date.parse(row.scheduled_at)
    const to = Date.parse(row.scheduled_until)
    let count = 0
    for (let at = from; at <= to; at += everyMs) {
      assert.ok(!times.has(at), `${new Date(at).toISOString()} has two rows`)
      times.set(at, row.decision)
      count += 1
    }
    assert.equal(row.count, count, 'count of a row')
  }
  return times
}

function assertNoGap(times: Map<number, string>, everyMs: number): void {
  const sorted = [...times.keys()].toSorted((a, b) => a - b)
  const gap = sorted.find((at, index) => index > 0 && at - sorted[index - 1]! !== everyMs)
  assert.equal(gap, undefined, `no row for the time before ${new Date(gap ?? 0).toISOString()}`)
}

async function launchedCount(server: ServerProcess, name: string): Promise<number> {
  return (await server.launches(name)).filter(({decision}) => decision === 'launched').length
}

test('missed times are caught up by the policy of each job, each is stored once, phases stay', async (t) => {
  const marks = join(temporaryDirectory(t), 'marks')
  const flags = ['--late-after', '1s']
  const server = await aServer(t, {flags})
  const command = `echo $BELFRY_JOB $BELFRY_SCHEDULED_AT >> ${marks}`
  const jobs = [
    ['all', '* * * * * *', 1],
    ['latest', '* * * * * *', 1],
    ['skip', '* * * * * *', 1],
    ['phase', '@every 2s', 2],
  ] as const
  for (const [name, schedule] of jobs) {
    const catchUp = name === 'phase' ? 'all' : name
    const job = {
      name,
      schedule,
      catch_up: catchUp,
      executor: 'shell',
      executor_config: shell(command),
    }
    await server.store(job)
  }
  await until('the first', async () => (await launchedCount(server, 'phase')) > 0)
  await server.crash()
  const diedAt = Date.now()
  await until('it has been off for a while', () => Date.now() - diedAt > 5.2 * SECOND_MS)

  const next = await aServer(t, {data: server.data, flags})
  const readyAt = Date.now()
  await until('it launches again', async () => {
    const [row] = (await next.launches('phase')).slice(-1)
    return Date.parse(row.scheduled_at) > readyAt
  })
  for (const [name] of jobs) await next.post(`/jobs/${name}/toggle`)
  await until('nothing runs', async () => (await next.get('/busy')).json.length === 0)

  const lines = readFileSync(marks, 'utf8').trimEnd().split('\n')
  assert.equal(new Set(lines).size, lines.length, 'no execution ran twice')
  for (const [name, , seconds] of jobs) {
    const rows = await next.launches(name)
    const times = planned(rows, seconds * SECOND_MS)
    assertNoGap(times, seconds * SECOND_MS)
    const launched = [...times].filter(([, decision]) => decision === 'launched').map(([at]) => at)
    const marked = lines
      .filter((line) => line.startsWith(`${name} `))
      .map((line) => Date.parse(line.split(' ')[1]!))
    const lost = (await next.executions(name)).filter(({status}) => status === 'lost').length
    assert.deepEqual(
      marked.filter((at) => !launched.includes(at)),
      [],
      'nothing ran that was not launched',
    )
    assert.ok(launched.length - marked.length <= lost, 'launched executions have run')

    const missed = [...times].filter(([, decision]) => decision === 'missed')
    const off = [...times].filter(([at]) => at > diedAt && at < readyAt - 3 * SECOND_MS)
    assert.ok(off.length > 0 || name === 'phase')
    if (name === 'all' || name === 'phase') assert.equal(missed.length, 0)
    else assert.ok(missed.length >= 1, `${name} missed some`)
    if (name === 'latest') {
      const until = Math.max(...missed.map(([at]) => at))
      assert.equal(times.get(until + SECOND_MS), 'launched', 'the newest missed time')
    }
    if (name === 'skip') for (const [, decision] of off) assert.equal(decision, 'missed')
  }
})
