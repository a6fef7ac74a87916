/** The commands of the README, run as they stand there against a fresh server: what is pasted must work. */
import assert from 'node:assert/strict'
import {execFile} from 'node:child_process'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {promisify} from 'node:util'
import {readEvents} from '../src/cli/client.ts'
import {aServer} from './support/server-process.ts'

const ROOT = join(import.meta.dirname, '..')
const README = readFileSync(join(ROOT, 'README.md'), 'utf8')
const ADDRESS = 'http://127.0.0.1:8080'

/** Blocks that follow the mark `<!-- run -->`. */
const BLOCKS = [...README.matchAll(/<!-- run -->\n```bash\n([^]*?)```/g)].map((match) => match[1]!)

/** Listens from now on; what it answers waits until an execution has ended. */
async function listen(t: TestContext, url: string): Promise<() => Promise<void>> {
  const leaving = new AbortController()
  t.after(() => leaving.abort())
  const response = await fetch(`${url}/v1/events`, {signal: leaving.signal})
  return async () => {
    for await (const event of readEvents(response.body!))
      if (event.name === 'execution_finished') return
    assert.fail('the stream of events ended')
  }
}

async function run(block: string, url: string): Promise<string> {
  const {stdout} = await promisify(execFile)(
    'bash',
    ['-euo', 'pipefail', '-c', block.replaceAll(ADDRESS, url)],
    {cwd: ROOT, env: {...process.env, BELFRY_SERVER: url}, timeout: 30_000},
  )
  return stdout
}

test('the first minute of the README goes as it says', async (t) => {
  assert.equal(BLOCKS.length, 5)
  const [create, executions, ledger, client, remove] = BLOCKS
  const {url} = await aServer(t)
  const finished = await listen(t, url)
  const job = JSON.parse(await run(create!, url)) as {name: string}
  assert.equal(job.name, 'hello')
  await finished()
  assert.match(await run(executions!, url), /"output": "The bell rings at [^"]*\d/)
  const said = await run(ledger!, url)
  assert.match(said, /"cause": "create"[^]*"decision": "launched"/)
  assert.match(said, /"next": \[\s*"20/)
  const shown = await run(client!, url)
  assert.match(shown, /^hello +@every 10s +/m)
  assert.match(shown, /succeeded/)
  assert.equal([...shown.matchAll(/T0[01]:30:00\.000Z/g)].length, 3, 'half past two in Berlin')
  await run(remove!, url)
  assert.deepEqual(await (await fetch(`${url}/v1/jobs`)).json(), [])
})

test('every command of the README that is not run is one of those that cannot be', () => {
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
