/**
 * Operations on running executions and on the whole server: cancel, timeout, slots, pause, restore, backup.
 */
import assert from 'node:assert/strict'
import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {markedProcesses} from '../support/living-processes.ts'
import {
  aServer,
  sharedServer,
  runProgram,
  temporaryDirectory,
  type ServerProcess,
} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

const byHand = {schedule: '@manually', executor: 'shell'}
const shell = (command: string) => ({shell: 'true', command})

/** A process tree with a member in a session of its own. */
const TREE = `setsid sleep 300 & sh -c 'sleep 300 & wait' & wait`
const TREE_SIZE = 4

async function restore(server: ServerProcess, jobs: unknown, query = '') {
  const form = new FormData()
  form.set('file', new Blob([JSON.stringify(jobs)], {type: 'application/json'}), 'jobs.json')
  const response = await fetch(`${server.url}/v1/restore${query}`, {method: 'POST', body: form})
  const text = await response.text()
  return {status: response.status, text, lines: response.ok ? (JSON.parse(text) as string[]) : []}
}

describe('running executions', () => {
  const shared = sharedServer({flags: ['--slots', '16']})

  test('cancel and timeout end the whole process tree', async () => {
    const server = shared()
    await server.store({name: 'tree', ...byHand, retries: 3, executor_config: shell(TREE)})
    await server.run('tree')
    const {id} = await server.execution('tree', ({status}) => status === 'running')
    await until('the tree stands', () => markedProcesses(server.data).length >= TREE_SIZE)
    const asked = await server.post(`/jobs/tree/executions/${id}/cancel`)
    assert.deepEqual([asked.status, asked.json.id], [202, id])
    const cancelled = await server.execution('tree')
    assert.deepEqual([cancelled.status, cancelled.success], ['cancelled', false])
    assert.match(cancelled.output, /cancelled/)
    assert.deepEqual(markedProcesses(server.data), [])
    assert.equal(
      (await server.executions('tree')).length,
      1,
      'a cancelled execution is not retried',
    )
    assert.equal((await server.post(`/jobs/tree/executions/${id}/cancel`)).status, 409)
    assert.equal((await server.post('/jobs/tree/executions/99-x-1/cancel')).status, 404)

    const config = {...shell(TREE), timeout: '500ms'}
    await server.store({name: 'slow', ...byHand, executor_config: config})
    await server.run('slow')
    const timedOut = await server.execution('slow')
    assert.equal(timedOut.status, 'timed_out')
    assert.match(timedOut.output, /timed out after 500ms/)
    assert.deepEqual(markedProcesses(server.data), [])
  })

  test('deleting a job stops its executions, and its name is free at once', async () => {
    const server = shared()
    const job = {name: 'gone', ...byHand, executor_config: shell(TREE)}
    await server.store(job)
    await server.run('gone')
    await until('the tree stands', () => markedProcesses(server.data).length >= TREE_SIZE)
    assert.equal((await server.ask('DELETE', '/jobs/gone')).json.name, 'gone')
    assert.equal((await server.get('/jobs/gone')).status, 404)
    assert.deepEqual((await server.get('/busy')).json, [])
    await server.store({...job, executor_config: shell('echo new')})
    assert.deepEqual(await server.executions('gone'), [])
    await until('nothing of it is left', () => markedProcesses(server.data).length === 0)
    await server.run('gone')
    assert.equal((await server.execution('gone')).output, 'new\n')
    assert.equal((await server.get('/jobs/gone')).json.error_count, 0)
  })

  test('a hundred runs on sixteen slots: pending ones are listed, and all succeed', async (t) => {
    const server = shared()
    const go = join(temporaryDirectory(t), 'go')
    const command = `while [ ! -e ${go} ]; do sleep 0.2; done`
    await server.store({name: 'many', ...byHand, executor_config: shell(command)})
    await Promise.all(Array.from({length: 100}, () => server.run('many')))
    const counts = async () => {
      const rows = (await server.get('/jobs/many/executions?status=all&_end=1000')).json as {
        status: string
      }[]
      const count = (wanted: string) => rows.filter(({status}) => status === wanted).length
      return {running: count('running'), pending: count('pending'), well: count('succeeded')}
    }
    // The last requests may be decided while the first executions run.
    await until('the slots are full, the others wait', async () => {
      const {running, pending} = await counts()
      return running === 16 && running + pending === 100
    })
    assert.deepEqual(await counts(), {running: 16, pending: 84, well: 0})
    assert.equal((await server.get('/busy')).headers.get('x-total-count'), '16')
    const waiting = (await server.get('/jobs/many/executions?status=pending&_end=1')).json[0]
    assert.equal(waiting.started_at, '0001-01-01T00:00:00Z')
    assert.match((await server.ask('GET', '//metrics')).text, /pending\S* 84|waiting\S* 84/)
    writeFileSync(go, '')
    await until('all are through', async () => (await counts()).well === 100)
    assert.equal((await server.get('/jobs/many')).json.success_count, 100)
  })
})

describe('a server', {concurrency: 2}, () => {
  test('pause refuses submissions, not runs, and survives a restart', async (t) => {
    const server = await aServer(t)
    const job = {name: 'before', ...byHand, executor_config: shell('echo ran')}
    await server.store(job)
    assert.deepEqual((await server.post('/pause')).json, {paused: true})
    assert.deepEqual(await server.stop(), {code: 0, signal: null})

    const next = await aServer(t, {data: server.data})
    assert.deepEqual((await next.get('/pause')).json, {paused: true})
    const refused = await next.post('/jobs', {...job, name: 'after'})
    assert.equal(refused.status, 503)
    assert.match(refused.text, /paused/)
    assert.equal((await restore(next, [job])).status, 503)
    await next.run('before')
    assert.equal((await next.execution('before')).output, 'ran\n')
    assert.deepEqual((await next.post('/unpause')).json, {paused: false})
    await next.store({...job, name: 'after'})
  })

  test('restore accepts the reply of GET /jobs, parents first, and launches no missed times', async (t) => {
    const server = await aServer(t)
    const mark = join(temporaryDirectory(t), 'mark')
    const command = shell(`echo $BELFRY_SCHEDULED_AT >> ${mark}`)
    const jobs = [
      {name: 'a-child', parent_job: 'z-parent', executor: 'shell', executor_config: command},
      {name: 'z-parent', schedule: '0 0 3 * * *', executor: 'shell', executor_config: command},
      {
        name: 'once',
        schedule: '@at 2020-01-01T00:00:00Z',
        executor: 'shell',
        executor_config: command,
      },
    ]
    const first = await restore(server, jobs)
    assert.equal(first.status, 200, first.text)
    assert.deepEqual(first.lines.toSorted(), [
      'success create a-child',
      'success create once',
      'success create z-parent',
    ])
    const all = (await server.get('/jobs')).json
    const counted = all.map((job: object) => ({
      ...job,
      success_count: 7,
      last_success: '2026-01-01T00:00:00Z',
    }))
    assert.ok((await restore(server, all)).lines.every((line) => line.startsWith('success update')))
    const other = await aServer(t)
    assert.equal((await restore(other, counted)).status, 200)
    assert.equal((await other.get('/jobs/z-parent')).json.success_count, 7)
    assert.deepEqual((await other.get('/jobs/z-parent')).json.dependent_jobs, ['a-child'])
    const bad = await restore(server, [...jobs, {name: 'Bad', schedule: 'never'}])
    assert.equal(bad.status, 400)
    assert.match(bad.text, /Bad/)
    await server.run('z-parent')
    assert.equal((await server.execution('a-child')).status, 'succeeded', 'its parent succeeded')
    assert.equal(
      (await server.launches('once')).filter(({decision}) => decision === 'launched').length,
      0,
    )
    assert.equal(readFileSync(mark, 'utf8').trimEnd().split('\n').length, 2)
  })

  test('a restored backup is complete, has a new store identity, and launches no missed times', async (t) => {
    const marks = join(temporaryDirectory(t), 'marks')
    const server = await aServer(t)
    await server.store({
      name: 'tick',
      schedule: '* * * * * *',
      catch_up: 'all',
      executor: 'shell',
      executor_config: shell(`echo $BELFRY_SCHEDULED_AT >> ${marks}`),
    })
    await server.store({name: 'long', ...byHand, retries: 2, executor_config: shell('sleep 300')})
    await server.run('long')
    await server.execution('long', ({status}) => status === 'running')
    await until('two ticks', async () => (await server.executions('tick')).length >= 2)
    const directory = temporaryDirectory(t)
    const image = join(directory, 'image.sqlite')
    const backup = runProgram(t, ['backup', '--server', server.url, image])
    assert.deepEqual(await backup.exit, {code: 0, signal: null}, backup.stderr())
    const takenAt = Date.now()
    await server.crash()
    await until('time passes', () => Date.now() - takenAt > 2_000)

    const data = join(directory, 'restored')
    const restored = runProgram(t, ['restore-store', image, '--data', data])
    assert.deepEqual(await restored.exit, {code: 0, signal: null}, restored.stderr())
    const before = readFileSync(marks, 'utf8')
    const idle = await aServer(t, {data})
    await until('planned times pass', () => Date.now() - takenAt > 6_000)
    await idle.stop()
    const next = await aServer(t, {data})
    assert.equal((await next.get('/')).json.gossip.firing, 'paused (restored)')
    assert.match(next.program.stderr(), /Planned times are not launched/)
    assert.equal(readFileSync(marks, 'utf8'), before, 'nothing was launched')
    const resumed = runProgram(t, ['resume', '--server', next.url])
    assert.deepEqual(await resumed.exit, {code: 0, signal: null}, resumed.stderr())
    const readyAt = Date.now()
    assert.equal((await next.get('/')).json.gossip.firing, 'active')
    await until('it ticks', async () => {
      const [row] = (await next.launches('tick')).slice(-1)
      return row !== undefined && Date.parse(row.scheduled_at) > readyAt
    })
    const since = readFileSync(marks, 'utf8').slice(before.length).trimEnd().split('\n')
    for (const line of since.filter((text) => text !== ''))
      assert.ok(Date.parse(line) > readyAt - 2_000, `${line} is of the past`)
    assert.ok(
      !(await next.executions('long')).some(
        ({status}) => status === 'running' || status === 'pending',
      ),
    )
    assert.deepEqual(
      markedProcesses(data).filter(({job}) => job === 'long'),
      [],
    )
    assert.equal((await next.get('/jobs')).json.length, 2)

    // Never over an existing store.
    const again = runProgram(t, ['restore-store', image, '--data', data])
    assert.notEqual((await again.exit).code, 0)
    assert.match(again.stderr(), /^[^\n]+\n$/)
    const junk = join(directory, 'junk')
    writeFileSync(junk, 'no image')
    const refused = runProgram(t, ['restore-store', junk, '--data', join(directory, 'none')])
    assert.notEqual((await refused.exit).code, 0)
    assert.ok(!existsSync(join(directory, 'none', 'belfry.sqlite')))
    const better = runProgram(t, ['restore-store', image, '--data', join(directory, 'none')])
    assert.equal((await better.exit).code, 0, 'a refused restore leaves nothing behind')
  })
})
