/** Results on an agent's disk: there before they are offered, gone when a server has them. */
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
import {journaledFinish} from '../../src/app/agent.ts'
import type {FinishItem} from '../../src/ports/node-store.ts'
import {ResultJournal} from '../../src/agents/client/result-log.ts'
import {systemClock} from '../../src/platform/clock.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {aServer, isOver} from '../support/server-process.ts'
import {SOON_MS, until, within} from '../support/waiting.ts'
import {anAgent, startedAgent} from './agent-process.ts'

const clock = systemClock()
const FILE = 'results'
/** Some milliseconds on a machine with nothing else to do; it was two seconds while it waited for output. */
const AT_ONCE_MS = 1_000

function aDirectory(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'belfry-results-'))
  t.after(() => rmSync(directory, {recursive: true, force: true}))
  return directory
}

function anEnd(group: number, bytes: Uint8Array = Uint8Array.from([0, 10, 255])): FinishItem {
  return {
    key: {group, node: 'agent-a', attempt: 1},
    token: `token-${group}`,
    status: 'failed',
    durationMs: 12,
    exitCode: 3,
    reason: '',
    outputHead: 'exit status 3\n',
    outputFoot: '',
    output: {offset: 7, bytes, totalBytes: 7 + bytes.length},
    dropOutput: false,
    jitter: 0.25,
  }
}

test('what no server has is there for the next life, whole and in order', async (t) => {
  const directory = aDirectory(t)
  const first = await ResultJournal.open(directory, clock)
  assert.deepEqual(first.left, [])
  await Promise.all([1, 2, 3].map((group) => first.journal.keep(anEnd(group))))
  await first.journal.delivered([anEnd(2).key])
  // Nothing is closed: this life was killed.
  const second = await ResultJournal.open(directory, clock)
  assert.deepEqual(
    second.left.map(({output, ...end}) => ({
      ...end,
      output: {...output, bytes: Uint8Array.from(output.bytes)},
    })),
    [anEnd(1), anEnd(3)],
  )
  await second.journal.delivered(second.left.map(({key}) => key))
  assert.equal(statSync(join(directory, FILE)).size, 0)
  const third = await ResultJournal.open(directory, clock)
  assert.deepEqual(third.left, [])
  await third.journal.close()
  await first.journal.close()
  await second.journal.close()
})

test('a torn line costs its own result at the most', async (t) => {
  const directory = aDirectory(t)
  const {journal} = await ResultJournal.open(directory, clock)
  await journal.keep(anEnd(1))
  await journal.close()
  appendFileSync(join(directory, FILE), '{"finish":{"key":{"group":2,')
  const next = await ResultJournal.open(directory, clock)
  await next.journal.keep(anEnd(3))
  await next.journal.close()
  const {left, journal: last} = await ResultJournal.open(directory, clock)
  assert.deepEqual(
    left.map(({key}) => key.group),
    [1, 3],
  )
  await last.close()
})

test('it is for its owner only, and holds no more than what waits', async (t) => {
  const directory = aDirectory(t)
  const {journal} = await ResultJournal.open(directory, clock)
  assert.equal(statSync(join(directory, FILE)).mode & 0o777, 0o600)
  const large = new Uint8Array(256 * 1024)
  await journal.keep(anEnd(1))
  for (let group = 2; group < 130; group += 1) {
    await journal.keep(anEnd(group, large))
    await journal.delivered([anEnd(group).key])
  }
  const {size} = statSync(join(directory, FILE))
  assert.ok(size < 20 * 2 ** 20, `${size} bytes for one small result`)
  assert.equal(journal.waitingCount, 1)
  await journal.close()
})

test('with very many waiting, results are kept without their output', async (t) => {
  const directory = aDirectory(t)
  const {journal} = await ResultJournal.open(directory, clock)
  const large = new Uint8Array(256 * 1024)
  for (let group = 1; group <= 240; group += 1) await journal.keep(anEnd(group, large))
  const {size} = statSync(join(directory, FILE))
  assert.ok(size < 70 * 2 ** 20, `${size} bytes`)
  await journal.close()
  const {left, journal: next} = await ResultJournal.open(directory, clock)
  assert.equal(left.length, 240)
  const last = left.at(-1)!
  assert.deepEqual([last.output.bytes.length, last.output.totalBytes], [0, 7 + large.length])
  assert.equal(readFileSync(join(directory, FILE)).length <= size, true)
  await next.close()
})

test('what cannot be read is counted and left out; the rest is delivered', async (t) => {
  const directory = aDirectory(t)
  const {journal} = await ResultJournal.open(directory, clock)
  await journal.keep(anEnd(1))
  await journal.keep(anEnd(2))
  await journal.close()
  const path = join(directory, FILE)
  const whole = readFileSync(path)
  const torn = whole.subarray(0, whole.length - 40)
  const garbage = Buffer.from([0, 255, 10, 0x7b, 0x7d, 10, 0xc3])
  writeFileSync(path, Buffer.concat([garbage, Buffer.from('\n{"finish":{"key":7}}\n'), torn]))
  const next = await ResultJournal.open(directory, clock)
  assert.deepEqual(
    next.left.map(({key}) => key.group),
    [1],
  )
  // "{}" says nothing, and is no damage.
  assert.equal(next.unreadable, 4)
  await next.journal.close()
  const last = await ResultJournal.open(directory, clock)
  assert.equal(last.unreadable, 0, 'told once')
  await last.journal.close()
})

test('a disk without room for a fresh file costs nothing: the old one is written on', async (t) => {
  const directory = aDirectory(t)
  const {journal} = await ResultJournal.open(directory, clock)
  await journal.keep(anEnd(1))
  await journal.close()
  // Where the fresh file would be.
  mkdirSync(join(directory, `${FILE}.new`, 'in-the-way'), {recursive: true})
  const next = await ResultJournal.open(directory, clock)
  assert.equal(next.left.length, 1)
  await next.journal.keep(anEnd(2))
  await next.journal.delivered([anEnd(1).key])
  await next.journal.close()
  const last = await ResultJournal.open(directory, clock)
  assert.deepEqual(
    last.left.map(({key}) => key.group),
    [2],
  )
  await last.journal.close()
})

test('a result that the disk does not take is offered all the same, and that is told', async () => {
  const events = new RecordedEvents()
  const said: string[] = []
  const finishing = journaledFinish(
    {
      keep: () => Promise.reject(new Error('ENOSPC: no space left on device')),
      delivered: async () => void said.push('delivered'),
    },
    events,
  )
  await finishing(anEnd(1), async () => said.push('offered'))
  assert.deepEqual(said, ['offered', 'delivered'])
  const [failed] = events.of('step_failed')
  assert.deepEqual(failed, {
    step: 'keep_result',
    message: 'Error: ENOSPC: no space left on device',
  })
})

test('a result is on disk at once, also while output waits for a server, and outlives a kill', async (t) => {
  const server = await aServer(t)
  const flags = ['--tag', 'place=far']
  const agent = await anAgent(t, [server.url], {flags})
  const [go, ended] = ['go', 'ended'].map((file) => join(aDirectory(t), file)) as [string, string]
  // Talks for longer than output is gathered for, so that some of it is under way when it ends.
  const command = `echo begun; while [ ! -e ${go} ]; do sleep 0.05; done
    for tick in 1 2 3 4 5 6; do echo $tick; sleep 0.25; done; echo > ${ended}`
  const onAgent = {schedule: '@manually', executor: 'shell', tags: {place: 'far'}}
  await server.store({name: 'far', ...onAgent, executor_config: {shell: 'true', command}})
  await server.run('far')
  await server.execution('far', ({output}) => output.includes('begun'))
  // Frozen, it answers nothing and its connections stay.
  server.program.signal('SIGSTOP')
  writeFileSync(go, '')
  await until('the command ends', () => existsSync(ended))
  const endedAt = clock.monotonicMs()
  await until('its result is kept', () => statSync(join(agent.data, FILE)).size > 0)
  const lastedMs = clock.monotonicMs() - endedAt
  agent.program.signal('SIGKILL')
  await agent.program.gone
  server.program.signal('SIGCONT')
  assert.ok(lastedMs < AT_ONCE_MS, `${lastedMs} ms`)
  await anAgent(t, [server.url], {data: agent.data, flags})
  const {status, attempt, output} = await server.execution('far', isOver)
  assert.deepEqual([status, attempt, output], ['succeeded', 1, 'begun\n1\n2\n3\n4\n5\n6\n'])
})

const DAMAGED: readonly (readonly [file: string, sentence: RegExp])[] = [
  ['results', /The undelivered results in \S+ cannot be opened: EISDIR.* --data\.$/],
  ['node-id', /The node id in \S+ cannot be used: EISDIR/],
  ['belfry.lock', /The data directory \S+ cannot be used: unable to open/],
  ['cluster-id', /EISDIR/],
]
for (const [file, sentence] of DAMAGED)
  test(`an agent does not start with a directory for its ${file}, and says so`, async (t) => {
    const data = join(aDirectory(t), 'data')
    mkdirSync(join(data, file), {recursive: true})
    await refused(t, data, sentence)
  })

test('nor with a file for the directory of its executions', async (t) => {
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
