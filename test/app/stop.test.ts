/** Graceful shutdown of a real server: by signal and by request, with and without running executions. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {connect} from 'node:net'
import {join} from 'node:path'
import {describe, test, type TestContext} from 'node:test'
import {childrenOf, isAlive, markedProcesses} from '../support/living-processes.ts'
import {aServer, temporaryDirectory, type ServerProcess} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'

/** Time within which the entry counts two signals as one. */
const ONE_PRESS_MS = 500
const ENDS_WITHIN_MS = 10_000

const byHand = {schedule: '@manually', executor: 'shell'}

/** A job that creates a file when it starts, and runs until another file exists. */
function waitingJob(name: string, directory: string, more: object = {}) {
  const started = join(directory, `${name}-started`)
  const go = join(directory, `${name}-go`)
  const done = join(directory, `${name}-done`)
  const command = `echo > ${started}; while [ ! -e ${go} ]; do sleep 0.05; done; echo > ${done}`
  return {
    job: {name, ...byHand, executor_config: {shell: 'true', command}, ...more},
    isRunning: () => until(`${name} runs`, () => existsSync(started)),
    letGo: () => writeFileSync(go, ''),
    isDone: () => existsSync(done),
  }
}

async function startedPatient(t: TestContext, server: ServerProcess, more: object = {}) {
  const work = waitingJob('work', temporaryDirectory(t), more)
  await server.store(work.job)
  await server.run('work')
  await work.isRunning()
  return work
}

/** A connection that the client never closes. Its bytes have reached the server. */
async function heldConnection(t: TestContext, server: ServerProcess, text: string): Promise<void> {
  const {hostname, port} = new URL(server.url)
  const socket = connect({host: hostname, port: Number(port), allowHalfOpen: true})
  t.after(() => socket.destroy())
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  await new Promise<void>((resolve) => socket.write(text, () => resolve()))
  await server.get('/pause')
}

/** The server, its helper, and all processes of its jobs. */
async function leavesNothing(server: ServerProcess, children: readonly number[]): Promise<void> {
  assert.deepEqual(markedProcesses(server.data), [])
  assert.deepEqual(children.filter(isAlive), [])
  assert.ok(!existsSync(join(server.data, 'belfry.open')), 'the store was closed')
}

describe('a stop', {concurrency: 3}, () => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    test(`${signal}: running executions finish, then the process exits with 0`, async (t) => {
      const server = await aServer(t, {flags: ['--slots', '1']})
      const work = await startedPatient(t, server)
      await server.store({name: 'later', ...byHand, executor_config: {command: 'true'}})
      await server.run('later')
      await server.execution('later', ({status}) => status === 'pending')
      const children = childrenOf(server.pid)
      assert.equal(children.length, 1, 'one helper starts all commands')
      server.program.signal(signal)
      await until('the node is leaving', async () => {
        const {json} = await server.get('/members')
        return json[0].Status === 2
      })
      assert.equal((await server.post('/jobs/work/run')).status, 409, 'nothing new')
      work.letGo()
      assert.deepEqual(await server.stop(signal), {code: 0, signal: null})
      assert.ok(work.isDone())
      await leavesNothing(server, children)

      const next = await aServer(t, {data: server.data})
      assert.equal((await next.execution('work')).status, 'succeeded')
      assert.equal((await next.execution('later')).status, 'succeeded')
      assert.doesNotMatch(next.program.stderr(), /unclean shutdown/)
    })
  }

  test('--grace 0: executions are killed at once, lost, and retried after the restart', async (t) => {
    const server = await aServer(t, {flags: ['--grace', '0']})
    const marks = join(temporaryDirectory(t), 'marks')
    const command =
      `echo $BELFRY_ATTEMPT >> ${marks}; trap "" TERM; ` +
      `[ $BELFRY_ATTEMPT = 2 ] && exit 0; setsid sleep 300 & sleep 300`
    const job = {name: 'long', ...byHand, retries: 3, executor_config: {shell: 'true', command}}
    await server.store(job)
    await server.run('long')
    await until('both run', () => markedProcesses(server.data).length >= 3)
    const children = childrenOf(server.pid)
    server.program.signal('SIGTERM')
    assert.deepEqual(await within(server.program.exit, 'the end', ENDS_WITHIN_MS), {
      code: 0,
      signal: null,
    })
    await leavesNothing(server, children)

    const next = await aServer(t, {data: server.data})
    const second = await next.execution('long', ({status}) => status === 'succeeded')
    assert.equal(second.attempt, 2)
    const [, first] = await next.executions('long')
    assert.equal(first.status, 'lost')
    assert.match(first.output, /^lost: the node was stopped/m, 'the reason is in its output')
    assert.equal(readFileSync(marks, 'utf8'), '1\n2\n')
    const {success_count, error_count, status} = (await next.get('/jobs/long')).json
    assert.deepEqual(
      {success_count, error_count, status},
      {success_count: 1, error_count: 1, status: 'success'},
    )
  })

  test('the end of the grace period stops the rest', async (t) => {
    const server = await aServer(t, {flags: ['--grace', '300ms']})
    await startedPatient(t, server)
    const children = childrenOf(server.pid)
    server.program.signal('SIGTERM')
    const exit = await within(server.program.exit, 'the end', ENDS_WITHIN_MS)
    assert.deepEqual(exit, {code: 0, signal: null})
    await leavesNothing(server, children)
    const next = await aServer(t, {data: server.data})
    assert.equal((await next.execution('work')).status, 'lost')
  })

  test('a second signal forces the stop; one Ctrl-C that arrives twice does not', async (t) => {
    const server = await aServer(t, {flags: ['--grace', 'infinite']})
    const work = await startedPatient(t, server, {name: 'work'})
    const children = childrenOf(server.pid)
    server.program.signal('SIGINT')
    server.program.signal('SIGINT')
    const pressedAt = performance.now()
    await until('that is over', () => performance.now() - pressedAt > 2 * ONE_PRESS_MS)
    assert.equal((await server.get('/busy')).json.length, 1)
    server.program.signal('SIGINT')
    const exit = await within(server.program.exit, 'the end', ENDS_WITHIN_MS)
    assert.deepEqual(exit, {code: 0, signal: null})
    assert.ok(!work.isDone())
    await leavesNothing(server, children)
  })

  test('POST /leave on a busy node: leaving, and its executions finish first', async (t) => {
    const server = await aServer(t)
    const work = await startedPatient(t, server)
    const answer = await server.post('/leave')
    assert.equal(answer.json[0].Status, 2)
    assert.equal((await server.post('/leave')).status, 200, 'a second request changes nothing')
    work.letGo()
    const exit = await within(server.program.exit, 'the end', ENDS_WITHIN_MS)
    assert.deepEqual(exit, {code: 0, signal: null})
    assert.ok(work.isDone())
  })

  for (const end of ['SIGTERM', 'POST /leave'] as const) {
    test(`${end}, idle: open requests, streams and refused agents do not delay the exit`, async (t) => {
      const server = await aServer(t)
      const agent =
        'GET /v1/agent HTTP/1.1\r\nHost: 127.0.0.1\r\nVia: 1.1 x\r\nConnection: Upgrade\r\n' +
        'Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n\r\n'
      const unfinished = ['GET /v1/jobs HTTP/1.1\r\nHost: 127', 'POST /v1/jobs HT', agent, '']
      await Promise.all(unfinished.map((text) => heldConnection(t, server, text)))
      const events = await fetch(`${server.url}/v1/events`)
      const reader = events.body!.getReader()
      await reader.read()
      if (end === 'SIGTERM') server.program.signal(end)
      else {
        assert.equal((await server.get('/leave')).status, 405)
        const answer = await server.post('/leave')
        assert.deepEqual([answer.status, answer.json[0].Status], [200, 3])
      }
      const exit = await within(server.program.exit, 'the end', ENDS_WITHIN_MS)
      assert.deepEqual(exit, {code: 0, signal: null})
      await reader.cancel().catch(() => undefined)
      // The node can start again.
      if (end === 'SIGTERM') return
      const next = await aServer(t, {data: server.data})
      assert.equal((await next.get('/members')).json[0].Status, 1)
    })
  }
})
