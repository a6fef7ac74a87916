/**
 * A real server under load, killed repeatedly at random moments. Its launch records are checked against marks
 * that the jobs themselves wrote to a file.
 */
import assert from 'node:assert/strict'
import {readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {test} from 'node:test'
import {
  aServer,
  temporaryDirectory,
  type Answer,
  type ServerProcess,
} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

/** `BELFRY_CRASH_KILLS=n` for more. */
const KILLS = Number(process.env['BELFRY_CRASH_KILLS'] ?? 6)
const JOBS = 20
const CLIENTS = 4
const SECOND_MS = 1_000

/** Acknowledged requests of the clients. */
interface Acknowledged {
  readonly stored: Map<string, string>
  readonly deleted: Set<string>
  readonly runs: {readonly job: string; readonly group: number}[]
}

/** Submits, changes, runs and deletes until the server is killed; records what was acknowledged. */
async function client(
  server: ServerProcess,
  who: string,
  acknowledged: Acknowledged,
): Promise<void> {
  for (let count = 0; ; count++) {
    const name = `${who}-${count}`
    try {
      const text = `text ${name}`
      const stored = await server.post('/jobs', {
        name,
        displayname: text,
        schedule: '@manually',
        executor: 'shell',
        executor_config: {shell: 'true', command: markCommand},
      })
      if (stored.status === 201) acknowledged.stored.set(name, text)
      const ran = await server.post(`/jobs/${name}/run`)
      if (ran.status === 202)
        acknowledged.runs.push({job: name, group: Number(ran.headers.get('x-launch-id'))})
      if (count % 5 !== 4) continue
      // The state of the job is unknown until the reply arrives.
      acknowledged.stored.delete(name)
      const deleted = await server.ask('DELETE', `/jobs/${name}`)
      if (deleted.status === 200) acknowledged.deleted.add(name)
    } catch (error) {
      // The server was killed: a request without a reply was not acknowledged.
      if (error instanceof TypeError || (error as Error).name === 'TimeoutError') return
      throw error
    }
  }
}

let markCommand = ''

/** Executions that wrote a mark, with the number of marks of each. */
function readMarks(file: string): Map<string, number> {
  const marks = new Map<string, number>()
  for (const line of readFileSync(file, 'utf8').split('\n'))
    if (line !== '') marks.set(line, (marks.get(line) ?? 0) + 1)
  return marks
}

function assertLaunches(name: string, rows: readonly Answer['json'][], marks: Map<string, number>) {
  let expected: number | null = null
  for (const row of rows.filter(({cause}) => cause === 'schedule')) {
    const from = Date.parse(row.scheduled_at)
    const to = Date.parse(row.scheduled_until)
    assert.equal(row.count, (to - from) / SECOND_MS + 1, `${name}: a row stands for what it says`)
    if (expected !== null)
      assert.equal(
        row.scheduled_at,
        new Date(expected).toISOString(),
        `${name}: no gap, no duplicate`,
      )
    expected = to + SECOND_MS
    if (row.decision !== 'launched') continue
    const traces = row.executions.map(
      (execution: Answer['json']) => marks.has(execution.id) || execution.status === 'lost',
    )
    assert.ok(
      traces.length > 0 && traces.every(Boolean),
      `${name} ${row.scheduled_at} left a trace`,
    )
  }
  assert.notEqual(expected, null, `${name} was planned at all`)
}

test(`${KILLS} times kill -9 under load: nothing acknowledged is lost, nothing runs twice`, async (t) => {
  const file = join(temporaryDirectory(t), 'marks')
  writeFileSync(file, '')
  markCommand = `echo $BELFRY_EXECUTION >> ${file}; sleep 0.05`
  const acknowledged: Acknowledged = {stored: new Map(), deleted: new Set(), runs: []}
  const names = Array.from({length: JOBS}, (_, index) => `every-${index}`)
  const flags = ['--keep-executions', '10000', '--keep-launches', '10000', '--log-level', 'warn']
  let server = await aServer(t, {flags})
  for (const [index, name] of names.entries()) {
    await server.store({
      name,
      schedule: index % 2 === 0 ? '* * * * * *' : '@every 1s',
      catch_up: ['latest', 'skip', 'all'][index % 3],
      executor: 'shell',
      executor_config: {shell: 'true', command: markCommand},
    })
  }
  for (let round = 0; round < KILLS; round++) {
    const who = `r${round}`
    const clients = Array.from({length: CLIENTS}, (_, id) =>
      client(server, `${who}-c${id}`, acknowledged),
    )
    const bound = acknowledged.runs.length + 1 + Math.floor(Math.random() * 60)
    const readyAt = performance.now()
    // Long enough for a planned time in most incarnations.
    const uptimeMs = 300 + Math.random() * 900
    await until('enough was acknowledged', () => {
      return acknowledged.runs.length >= bound && performance.now() - readyAt >= uptimeMs
    })
    await server.crash()
    await Promise.all(clients)
    server = await aServer(t, {data: server.data, flags})
  }
  for (const name of names) await server.post(`/jobs/${name}/toggle`)
  await until('everything has ended', async () => {
    const {gossip} = (await server.get('/')).json
    return gossip.running === '0' && gossip.pending === '0' && gossip.undecided === '0'
  })
  await assertPromises(server, acknowledged)
  const marks = readMarks(file)
  const twice = [...marks].filter(([, count]) => count > 1)
  assert.deepEqual(twice, [], 'no execution started twice')
  for (const name of names) {
    assertLaunches(name, await server.launches(name), marks)
    await assertCounters(server, name)
  }
  assert.deepEqual(await server.stop(), {code: 0, signal: null})
  assertIntegrity(server.data)
  t.diagnostic(
    `${acknowledged.stored.size} jobs, ${acknowledged.runs.length} runs, ${marks.size} marks`,
  )
})

async function assertPromises(server: ServerProcess, acknowledged: Acknowledged): Promise<void> {
  const jobs = new Map<string, Answer['json']>(
    (await server.get('/jobs')).json.map((job: Answer['json']) => [job.name, job]),
  )
  for (const [name, text] of acknowledged.stored)
    assert.equal(jobs.get(name)?.displayname, text, `${name} was acknowledged`)
  for (const name of acknowledged.deleted) assert.ok(!jobs.has(name), `${name} was deleted`)
  const kept = acknowledged.runs.filter(({job}) => acknowledged.stored.has(job))
  for (const {job, group} of kept) {
    const {status, json} = await server.get(`/jobs/${job}/launches/${group}`)
    assert.equal(status, 200, `run ${group} of ${job} was acknowledged`)
    assert.equal(json.decision, 'launched')
  }
  const groups = acknowledged.runs.map(({group}) => group)
  assert.equal(new Set(groups).size, groups.length, 'launch numbers are unique')
}

/** Counters are the fold of the executions. */
async function assertCounters(server: ServerProcess, name: string): Promise<void> {
  const executions = (await server.executions(name)) as {status: string}[]
  const succeeded = executions.filter(({status}) => status === 'succeeded').length
  const {success_count, error_count} = (await server.get(`/jobs/${name}`)).json
  assert.deepEqual(
    {success_count, error_count},
    {success_count: succeeded, error_count: executions.length - succeeded},
    name,
  )
}

function assertIntegrity(data: string): void {
  const database = new DatabaseSync(join(data, 'belfry.sqlite'), {readOnly: true})
  try {
    assert.deepEqual(
      database
        .prepare('PRAGMA integrity_check')
        .all()
        .map((row) => row['integrity_check']),
      ['ok'],
    )
    assert.deepEqual(database.prepare('PRAGMA foreign_key_check').all(), [])
  } finally {
    database.close()
  }
}
