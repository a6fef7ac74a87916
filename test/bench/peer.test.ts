/** The comparison with another server measures both, and leaves nothing there. No test asserts a duration. */
import assert from 'node:assert/strict'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {Contender, peerApi} from '../../tools/bench/contender.ts'
import {Figures} from '../../tools/bench/figures.ts'
import {QUICK, type Plan} from '../../tools/bench/plan.ts'
import {Scratch} from '../../tools/bench/scratch.ts'
import {peerSection} from '../../tools/bench/sections/peer.ts'
import {ServerProcess} from '../../tools/bench/server-process.ts'

// Compiling the servers would take most of the time without a shared cache.
process.env['NODE_COMPILE_CACHE'] ??= join(
  import.meta.dirname,
  '../../node_modules/.cache/compiled',
)

const TINY: Plan = {
  ...QUICK,
  submitMs: 50,
  submitClients: 2,
  listRequests: 2,
  peer: {
    rounds: 1,
    startRounds: 1,
    listed: 5,
    burstsDue: [5],
    rampFirst: 10,
    rampGrowth: 0.6,
    rampLimitMs: 0,
    windowMs: 1_000,
    // A single start is enough: a busy machine is no failure.
    keptUpShare: 0.05,
  },
}

async function aPeer(context: TestContext): Promise<{server: ServerProcess; scratch: Scratch}> {
  const scratch = new Scratch()
  context.after(() => scratch.clear())
  const server = await ServerProcess.start(scratch, {dataDir: await scratch.folder()})
  await server.store([{name: 'a-job-of-its-owner', schedule: '@every 8760h', executor: 'shell'}])
  return {server, scratch}
}

async function namesOf(server: ServerProcess): Promise<string[]> {
  const jobs = (await (await server.get('/v1/jobs')).json()) as readonly {name: string}[]
  return jobs.map(({name}) => name)
}

test('a peer is used on the loopback only', () => {
  assert.equal(peerApi('http://127.0.0.1:8080/'), 'http://127.0.0.1:8080/v1')
  assert.equal(peerApi('http://localhost:8080/v1'), 'http://localhost:8080/v1')
  assert.equal(peerApi('http://[::1]:8080'), 'http://[::1]:8080/v1')
  for (const url of ['http://example.org', 'http://127.0.0.1.example.org', 'http://10.0.0.1', 'x'])
    assert.throws(() => peerApi(url), /--peer must be an http URL on 127\.0\.0\.1/, url)
})

test('both servers are measured, and the peer keeps only its own jobs', async (context) => {
  const {server, scratch} = await aPeer(context)
  const figures = new Figures('peer')
  const own = new Scratch()
  const ignore = () => undefined
  const bench = {plan: TINY, scratch: own, figures, say: ignore, note: ignore, again: () => true}
  try {
    await peerSection(peerApi(server.url)).measure(bench)
  } finally {
    await own.clear()
  }
  assert.deepEqual(await namesOf(server), ['a-job-of-its-owner'])
  assert.deepEqual(
    figures.all.filter(({unit}) => unit === '×').map(({name}) => name),
    [
      'submits, 2 clients: Belfry / peer',
      'submits, 1 client: Belfry / peer',
      'first page of 5 jobs: peer / Belfry',
      'every-second jobs kept up with: Belfry / peer',
      '5 due at once, last command started: peer / Belfry',
    ],
  )
  for (const {name, samples} of figures.all)
    assert.ok(
      samples.every((sample) => sample > 0 && Number.isFinite(sample)),
      `${name}: ${samples.join(' ')}`,
    )
  await scratch.clear()
})

test('a peer that died is named, with the request it did not answer', async (context) => {
  const {server} = await aPeer(context)
  const peer = new Contender('peer', peerApi(server.url))
  const job = {name: 'never', schedule: '@every 8760h', config: {command: 'true'}}
  await peer.create([job])
  assert.ok(await peer.isAnswering())
  assert.ok((await namesOf(server)).includes(`${peer.prefix}never`))
  await peer.remove()
  assert.deepEqual(await namesOf(server), ['a-job-of-its-owner'])
  await server.kill()
  assert.equal(await peer.isAnswering(), false)
  await assert.rejects(peer.create([job]), /peer does not answer POST \/jobs: .*ECONNREFUSED/)
})
