/** Result log of an agent: on disk before a result is sent, removed when a server has it. */
import assert from 'node:assert/strict'
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {encodeFinish} from '../../src/agents/codec.ts'
import type {FinishJson} from '../../src/agents/protocol.ts'
import {executionId} from '../../src/core/execution.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'
import {loggedFinisher, ResultLog} from '../../src/agents/client/result-log.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {aServer, isOver} from '../support/server-process.ts'
import {SOON_MS, until, within} from '../support/waiting.ts'
import {anAgent, startedAgent} from './agent-process.ts'

const clock = systemClock()
const FILE = 'results'
/** Some milliseconds on an idle machine; two seconds would mean that it waits for output. */
const AT_ONCE_MS = 1_000

function aDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'belfry-results-'))
  t.after(() => rmSync(directory, {recursive: true, force: true}))
  return directory
}

const SOME_OUTPUT = Uint8Array.from([0, 10, 255])

function anEnd(group: number, bytes: Uint8Array = SOME_OUTPUT): FinishItem {
  return {
    key: {group, node: 'agent-a', attempt: 1},
    token: `token-${group}`,
    status: 'failed',
    durationMs: 12,
    startedAfterMs: 0,
    exitCode: 3,
    reason: '',
    outputHead: 'exit status 3\n',
    outputFoot: '',
    output: {offset: 7, bytes, totalBytes: 7 + bytes.length},
    dropOutput: false,
    jitter: 0.25,
  }
}

function aFinish(group: number, bytes: Uint8Array = SOME_OUTPUT): FinishJson {
  return encodeFinish(anEnd(group, bytes))
}

test('undelivered results survive a restart, complete and in order', async (t) => {
  const directory = aDirectory(t)
  const first = await ResultLog.open(directory, clock)
  assert.deepEqual(first.left, [])
  await Promise.all([1, 2, 3].map((group) => first.results.keep(aFinish(group))))
  await first.results.delivered([aFinish(2)])
  // The log is not closed, as after SIGKILL.
  const second = await ResultLog.open(directory, clock)
  assert.deepEqual(second.left, [aFinish(1), aFinish(3)])
  await second.results.delivered(second.left)
  assert.equal(statSync(join(directory, FILE)).size, 0)
  const third = await ResultLog.open(directory, clock)
  assert.deepEqual(third.left, [])
  await third.results.close()
  await first.results.close()
  await second.results.close()
})

test('undelivered results of release 0.1 are read', async (t) => {
  const directory = aDirectory(t)
  const {results} = await ResultLog.open(directory, clock)
  await results.keep(aFinish(1))
  await results.close()
  const file = join(directory, FILE)
  writeFileSync(file, readFileSync(file, 'utf8').replace('"jitter"', '"dice"'))
  const {left, unreadable, results: next} = await ResultLog.open(directory, clock)
  assert.deepEqual([left.map(({jitter}) => jitter), unreadable], [[0.25], 0])
  await next.close()
})

test('an acknowledged result of a claim leaves that of a later claim of the execution', async (t) => {
  const directory = aDirectory(t)
  const {results} = await ResultLog.open(directory, clock)
  const later = {...aFinish(1), token: 'token-of-the-next-claim'}
  await results.keep(aFinish(1))
  await results.keep(later)
  assert.equal(results.waitingCount, 2)
  await results.delivered([aFinish(1)])
  await results.close()
  const {left, results: next} = await ResultLog.open(directory, clock)
  assert.deepEqual(
    left.map(({token}) => token),
    [later.token],
  )
  await next.close()
})

test('a torn line loses at most its own result', async (t) => {
  const directory = aDirectory(t)
  const {results} = await ResultLog.open(directory, clock)
  await results.keep(aFinish(1))
  await results.close()
  appendFileSync(join(directory, FILE), '{"finish":{"key":{"group":2,')
  const next = await ResultLog.open(directory, clock)
  await next.results.keep(aFinish(3))
  await next.results.close()
  const {left, results: last} = await ResultLog.open(directory, clock)
  assert.deepEqual(
    left.map(({key}) => key.group),
    [1, 3],
  )
  await last.close()
})

test('the result log has mode 0600 and drops delivered results', async (t) => {
  const directory = aDirectory(t)
  const {results} = await ResultLog.open(directory, clock)
  assert.equal(statSync(join(directory, FILE)).mode & 0o777, 0o600)
  const large = new Uint8Array(256 * 1024)
  await results.keep(aFinish(1))
  for (let group = 2; group < 130; group += 1) {
    await results.keep(aFinish(group, large))
    await results.delivered([aFinish(group)])
  }
  const {size} = statSync(join(directory, FILE))
  assert.ok(size < 20 * 2 ** 20, `${size} bytes for one small result`)
  assert.equal(results.waitingCount, 1)
  await results.close()
})

test('beyond 64 MiB of undelivered results, the rest is kept without output', async (t) => {
  const directory = aDirectory(t)
  const {results} = await ResultLog.open(directory, clock)
  const large = new Uint8Array(256 * 1024)
  for (let group = 1; group <= 240; group += 1) await results.keep(aFinish(group, large))
  const {size} = statSync(join(directory, FILE))
  assert.ok(size < 70 * 2 ** 20, `${size} bytes`)
  await results.close()
  const {left, results: next} = await ResultLog.open(directory, clock)
  assert.equal(left.length, 240)
  const last = left.at(-1)!
  assert.deepEqual([last.output.bytes.length, last.output.totalBytes], [0, 7 + large.length])
  assert.equal(readFileSync(join(directory, FILE)).length <= size, true)
  await next.close()
})

test('unreadable lines are counted and skipped, and the other results are delivered', async (t) => {
  const directory = aDirectory(t)
  const {results} = await ResultLog.open(directory, clock)
  await results.keep(aFinish(1))
  await results.keep(aFinish(2))
  await results.close()
  const path = join(directory, FILE)
  const whole = readFileSync(path)
  const torn = whole.subarray(0, whole.length - 40)
  const garbage = Buffer.from([0, 255, 10, 0x7b, 0x7d, 10, 0xc3])
  writeFileSync(path, Buffer.concat([garbage, Buffer.from('\n{"finish":{"key":7}}\n'), torn]))
  const next = await ResultLog.open(directory, clock)
  assert.deepEqual(
    next.left.map(({key}) => key.group),
    [1],
  )
  // "{}" has no result and is no damage.
  assert.equal(next.unreadable, 4)
  await next.results.close()
  const last = await ResultLog.open(directory, clock)
  assert.equal(last.unreadable, 0, 'reported once')
  await last.results.close()
})

test('a result log that cannot be rewritten is appended to, and loses nothing', async (t) => {
  const directory = aDirectory(t)
  const {results} = await ResultLog.open(directory, clock)
  await results.keep(aFinish(1))
  await results.close()
  // A directory where the draft would be.
  mkdirSync(join(directory, `${FILE}.new`, 'in-the-way'), {recursive: true})
  const next = await ResultLog.open(directory, clock)
  assert.equal(next.left.length, 1)
  await next.results.keep(aFinish(2))
  await next.results.delivered([aFinish(1)])
  await next.results.close()
  const last = await ResultLog.open(directory, clock)
  assert.deepEqual(
    last.left.map(({key}) => key.group),
    [2],
  )
  await last.results.close()
})

test('a result that cannot be written to disk is still sent, and step_failed is emitted', async () => {
  const events = new RecordedEvents()
  const calls: string[] = []
  const finisher = loggedFinisher(
    {
      keep: () => Promise.reject(new Error('ENOSPC: no space left on device')),
      delivered: async () => void calls.push('delivered'),
    },
    events,
    {
      finish: async (json) => {
        assert.deepEqual(json, aFinish(1))
        calls.push('sent')
      },
    },
  )
  await finisher.finish(anEnd(1), 'far')
  assert.deepEqual(calls, ['sent', 'delivered'])
  const [failed] = events.of('step_failed')
  assert.deepEqual(failed, {
    step: 'keep_result',
    message: 'Error: ENOSPC: no space left on device',
  })
})

test('the end of an execution is in the log of its agent at once, also while no server answers', async () => {
  const events = new RecordedEvents()
  const log = {keep: async () => undefined, delivered: async () => assert.fail('no server has it')}
  const sent = Promise.withResolvers<void>()
  const finisher = loggedFinisher(log, events, {
    finish: () => {
      sent.resolve()
      return new Promise(() => {})
    },
  })
  void finisher.finish({...anEnd(1), durationMs: 900, startedAfterMs: 200}, 'nightly')
  await sent.promise
  const {key, status} = anEnd(1)
  assert.deepEqual(
    events.all.map(({name, data}) => [name, data]),
    [
      [
        'execution_finished',
        {
          job: 'nightly',
          execution: executionId(key),
          node: key.node,
          status,
          attempt: key.attempt,
          duration_ms: 700,
        },
      ],
    ],
  )
})

test('a result is on disk at once, also while output waits for a server, and survives SIGKILL', async (t) => {
  const server = await aServer(t)
  const flags = ['--tag', 'place=far']
  const agent = await anAgent(t, [server.url], {flags})
  const [go, ended] = ['go', 'ended'].map((file) => join(aDirectory(t), file)) as [string, string]
  // Prints for longer than output is batched, so that some output is pending when it ends.
  const command = `echo started; while [ ! -e ${go} ]; do sleep 0.05; done
    for tick in 1 2 3 4 5 6; do echo $tick; sleep 0.25; done; echo > ${ended}`
  const onAgent = {schedule: '@manually', executor: 'shell', tags: {place: 'far'}}
  await server.store({name: 'far', ...onAgent, executor_config: {shell: 'true', command}})
  await server.run('far')
  await server.execution('far', ({output}) => output.includes('started'))
  // A frozen server sends nothing and keeps its connections.
  server.program.signal('SIGSTOP')
  writeFileSync(go, '')
  await until('the command ends', () => existsSync(ended))
  const endedAt = clock.monotonicMs()
  await until('the result is on disk', () => statSync(join(agent.data, FILE)).size > 0)
  const lastedMs = clock.monotonicMs() - endedAt
  agent.program.signal('SIGKILL')
  await agent.program.gone
  server.program.signal('SIGCONT')
  assert.ok(lastedMs < AT_ONCE_MS, `${lastedMs} ms`)
  await anAgent(t, [server.url], {data: agent.data, flags})
  const {status, attempt, output} = await server.execution('far', isOver)
  assert.deepEqual([status, attempt, output], ['succeeded', 1, 'started\n1\n2\n3\n4\n5\n6\n'])
})

const DAMAGED: readonly (readonly [file: string, sentence: RegExp])[] = [
  ['results', /The undelivered results in \S+ cannot be opened: EISDIR.* --data\.$/],
  ['node-id', /The node id in \S+ cannot be used: EISDIR/],
  ['belfry.lock', /The data directory \S+ cannot be used: unable to open/],
  ['cluster-id', /EISDIR/],
]
for (const [file, sentence] of DAMAGED)
  test(`an agent with a directory in place of its ${file} refuses to start`, async (t) => {
    const data = join(aDirectory(t), 'data')
    mkdirSync(join(data, file), {recursive: true})
    await refused(t, data, sentence)
  })

test('an agent with a file in place of its executions directory refuses to start', async (t) => {
  const data = aDirectory(t)
  writeFileSync(join(data, 'executions'), '')
  await refused(t, data, /Commands cannot be run from the data directory \S+: E\w+/)
})

async function refused(t: TestContext, data: string, sentence: RegExp): Promise<void> {
  const {program} = startedAgent(t, ['http://127.0.0.1:1'], {data})
  const {code} = await within(program.exit, 'it is refused', SOON_MS)
  assert.equal(code, 1)
  const said = program.stderr().trimEnd()
  assert.match(said, /^belfry: [^\n]+$/)
  assert.match(said, sentence)
}
