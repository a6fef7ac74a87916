/** Runs the marked commands of the README and of the tutorial against a fresh server. */
import assert from 'node:assert/strict'
import {execFile} from 'node:child_process'
import {readFileSync, symlinkSync} from 'node:fs'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {promisify} from 'node:util'
import {readEvents} from '../src/cli/server-events.ts'
import {startHttp} from './notices/receivers.ts'
import {aServer, temporaryDirectory} from './support/server-process.ts'
import {until} from './support/waiting.ts'

const ROOT = join(import.meta.dirname, '..')
const README = readFileSync(join(ROOT, 'README.md'), 'utf8')
const ADDRESS = 'http://127.0.0.1:8080'

/** Code blocks of a page that follow the mark `<!-- run -->`. */
const blocksOf = (page: string) =>
  [...page.matchAll(/<!-- run -->\n```bash\n([^]*?)```/g)].map((match) => match[1]!)
const BLOCKS = blocksOf(README)

/**
 * Subscribes to events. The function it returns waits for the next end of an execution of a job. Events are
 * read at once, because a server disconnects slow clients.
 */
async function subscribe(t: TestContext, url: string): Promise<(job: string) => Promise<void>> {
  const leaving = new AbortController()
  t.after(() => leaving.abort())
  const response = await fetch(`${url}/v1/events`, {signal: leaving.signal})
  const ended: string[] = []
  let changed = Promise.withResolvers<void>()
  const reading = (async () => {
    for await (const {name, data} of readEvents(response.body!)) {
      if (name !== 'execution_finished') continue
      ended.push((JSON.parse(data) as {job: string}).job)
      changed.resolve()
      changed = Promise.withResolvers()
    }
    assert.fail('the event stream ended')
  })()
  reading.catch(() => undefined)
  return async (job) => {
    while (!ended.includes(job)) await Promise.race([changed.promise, reading])
    ended.splice(ended.indexOf(job), 1)
  }
}

async function run(block: string, url: string, cwd = ROOT): Promise<string> {
  const {stdout} = await promisify(execFile)(
    'bash',
    ['-euo', 'pipefail', '-c', block.replaceAll(ADDRESS, url)],
    {cwd, env: {...process.env, BELFRY_SERVER: url}, timeout: 30_000},
  )
  return stdout
}

test('the quick start of the README works', async (t) => {
  assert.equal(BLOCKS.length, 5)
  const [create, executions, launches, client, remove] = BLOCKS
  const {url} = await aServer(t)
  const finished = await subscribe(t, url)
  const job = JSON.parse(await run(create!, url)) as {name: string}
  assert.equal(job.name, 'hello')
  await finished('hello')
  assert.match(await run(executions!, url), /"output": "Hello from Belfry, it is [^"]*\d/)
  const decided = await run(launches!, url)
  assert.match(decided, /"cause": "create"[^]*"decision": "launched"/)
  assert.match(decided, /"next": \[\s*"20/)
  const shown = await run(client!, url)
  assert.match(shown, /^hello +@every 10s +/m)
  assert.match(shown, /succeeded/)
  assert.equal(
    [...shown.matchAll(/^\w{3} 20\S+ 0[23]:[03]0:00 \+0[12]:00 /gm)].length,
    3,
    '02:30 in Berlin',
  )
  await run(remove!, url)
  assert.deepEqual(await (await fetch(`${url}/v1/jobs`)).json(), [])
})

test('the commands of the tutorial work', async (t) => {
  const blocks = blocksOf(readFileSync(join(ROOT, 'docs', 'tutorial.md'), 'utf8'))
  assert.equal(blocks.length, 13)
  const [create, manual, lists, output, next, mistake, flaky, retried, ...others] = blocks
  const [channel, broken, incidents, remove, labels] = others
  const {url} = await aServer(t)
  const finished = await subscribe(t, url)
  // The tutorial writes files where it runs.
  const cwd = temporaryDirectory(t)
  symlinkSync(join(ROOT, 'bin'), join(cwd, 'bin'))
  assert.match(await run(create!, url, cwd), /The job is valid\.\ncreated report\n$/)
  await run(manual!, url, cwd)
  await finished('report')
  assert.match(await run(lists!, url, cwd), / manual +launched [^]* succeeded /)
  assert.match(await run(output!, url, cwd), /^Report for 20/)
  assert.match(await run(next!, url, cwd), /^(?:\w{3} 20.*0Z .*\n){3}$/)
  assert.match(await run(mistake!, url, cwd), /did you mean "schedule"\?/)
  await run(flaky!, url, cwd)
  assert.match(await run(retried!, url, cwd), /-2 +succeeded [^]*-1 +failed /)
  const receiver = await startHttp(t)
  const here = channel!.replace('http://127.0.0.1:9099', receiver.url)
  assert.match(
    await run(here, url, cwd),
    /^channel webhook: test message accepted \(200: accepted\)/,
  )
  await run(broken!, url, cwd)
  const summaries = () => receiver.received.map(({body}) => String(JSON.parse(body).summary))
  await until('the recovery arrives', () => summaries().length > 2)
  const expected = ['the channel webhook works', 'broken failed: exit code 1', 'broken: over']
  assert.deepEqual(summaries(), expected)
  assert.match(await run(incidents!, url, cwd), /broken failed: exit code 1 +closed /)
  await run(remove!, url, cwd)
  assert.deepEqual(await (await fetch(`${url}/v1/jobs`)).json(), [])
  assert.equal(await run(labels!, url, cwd), 'created labels\n')
})

test('the README has no other commands than those that a test cannot run', () => {
  const all = [...README.matchAll(/```bash\n([^]*?)```/g)].map((match) => match[1]!)
  const others = all.filter((block) => !BLOCKS.includes(block)).join('')
  const unknown = others
    .split('\n')
    .filter(
      (line) =>
        line !== '' && !/^(npm ci|npm start|npm run demo|bin\/belfry\.js --help)/.test(line),
    )
  assert.deepEqual(unknown, [])
})
