/**
 * The hunt for a secret: jobs on a server and on an agent print it in every way, and then it is searched in
 * every reply, event, log, backup, file, and command line. Only the environment of the command may have it.
 */
import assert from 'node:assert/strict'
import {createHash, randomBytes} from 'node:crypto'
import {readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {createServer} from 'node:http'
import type {AddressInfo} from 'node:net'
import {join} from 'node:path'
import {test} from 'node:test'
import {anAgent} from '../agents/agent-process.ts'
import {aServer, isOver, type ServerProcess, temporaryDirectory} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

const LINES = [
  `hunted-${randomBytes(12).toString('hex')}`,
  `second-${randomBytes(9).toString('hex')}`,
]
const VALUE = LINES.join('\n')
/** None of them may be anywhere. The store has other random texts, so these are long. */
const TRACES = [
  ...LINES,
  Buffer.from(VALUE).toString('hex'),
  Buffer.from(VALUE).toString('base64').slice(0, 40),
  ...LINES.map((line) => Buffer.from(line).toString('base64').slice(0, 24)),
]

/** Prints the value in two writes, in lines, in encodings, and a digest that shows that it had it. */
const PRINTING = (go: string) => `
  printf '%s' "\${V%????????????}"
  : > ${go}.$BELFRY_JOB
  while [ ! -e ${go} ]; do sleep 0.02; done
  printf '%s\\n' "\${V#"\${V%????????????}"}"
  echo "$V" >&2
  env | grep -a -A1 '^V='
  printf '%s' "$V" | base64 -w0; echo
  printf '%s' "$V" | od -An -v -tx1 | tr -d ' \\n'; echo
  printf '%s' "$V" | sha256sum
  printf '%s' "$V"
  exit 3
`

function assertClean(text: string | Buffer, place: string): void {
  for (const trace of TRACES) assert.ok(!text.includes(trace), `${place} has ${trace}`)
}

function filesBelow(directory: string): readonly string[] {
  return readdirSync(directory, {recursive: true, withFileTypes: true})
    .filter((entry) => entry.isFile())
    .map(({parentPath, name}) => join(parentPath, name))
}

function assertCleanFiles(directory: string): number {
  const files = filesBelow(directory)
  for (const file of files) assertClean(readFileSync(file), file)
  return files.length
}

/** Processes come and go meanwhile. */
function assertCleanCommandLines(): void {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
    let line = ''
    try {
      line = readFileSync(`/proc/${pid}/cmdline`, 'utf8')
    } catch {
      continue // it has ended
    }
    assertClean(line, `the command line of ${pid}`)
  }
}

/** Every GET route of the API, for the job and one of its executions, and then the backup. */
async function assertCleanReplies(server: ServerProcess, job: string): Promise<void> {
  const {json: document} = await server.get('/openapi.json')
  const [{id, group}] = await server.executions(job)
  const values: Readonly<Record<string, string>> = {name: job, execution: id, group: String(group)}
  const paths = Object.entries<object>(document.paths)
    .filter(([path, methods]) => 'get' in methods && path !== '/v1/events')
    .map(([path]) => path.replace(/\{(\w+)\}/g, (_all, name: string) => values[name] ?? 'db'))
  assert.ok(paths.length > 20)
  for (const path of paths) {
    const reply = await fetch(`${server.url}${path}`)
    assertClean(Buffer.from(await reply.arrayBuffer()), `GET ${path}`)
  }
}

test('a secret is nowhere but in the environment of its command', async (t) => {
  const go = join(temporaryDirectory(t), 'go')
  const server = await aServer(t, {flags: ['--log-level', 'trace', '--name', 'near']})
  const agent = await anAgent(t, [server.url], {
    flags: ['--tag', 'place=far', '--log-level', 'trace'],
  })
  let events = ''
  const stream = await fetch(`${server.url}/v1/events`)
  const reading = (async () => {
    const decoder = new TextDecoder()
    for await (const bytes of stream.body!) events += decoder.decode(bytes, {stream: true})
  })().catch(() => undefined)
  const target = createServer((request, response) => {
    const {authorization} = request.headers
    response.writeHead(500, {'x-echo': String(authorization)})
    response.end(`${request.url} ${authorization}`)
  })
  await new Promise<void>((resolve) => target.listen(0, '127.0.0.1', resolve))
  t.after(() => target.close())

  await server.ask('PUT', '/secrets/prey', {value: VALUE})
  await server.ask('PUT', '/secrets/word', {value: LINES[0]})
  const shell = {shell: 'true', command: PRINTING(go), env: 'V=${secret:prey}'}
  const printing = {schedule: '@manually', executor: 'shell', executor_config: shell}
  const processors = {files: {forward: 'true'}, log: {forward: 'true'}}
  await server.store({name: 'near', ...printing, tags: {server: 'true'}, processors})
  await server.store({name: 'far', ...printing, tags: {place: 'far'}, processors})
  const {port} = target.address() as AddressInfo
  await server.store({
    name: 'call',
    schedule: '@manually',
    executor: 'http',
    executor_config: {
      url: `http://me:\${secret:word}@127.0.0.1:${port}/\${secret:word}`,
      debug: 'true',
    },
  })
  await Promise.all([server.run('near'), server.run('far'), server.run('call')])
  await until('both have printed a part of it', () => filesBelow(join(go, '..')).length === 2)
  const [{id}] = await server.executions('near')
  const headers = {accept: 'text/event-stream'}
  const live = await fetch(`${server.url}/v1/jobs/near/executions/${id}/output`, {headers})
  // While they run: command lines, start logs, journals, the live output.
  assertCleanCommandLines()
  for (const directory of [server.data, agent.data]) assert.ok(assertCleanFiles(directory) > 3)
  writeFileSync(go, '')

  const digest = createHash('sha256').update(VALUE).digest('hex')
  for (const name of ['near', 'far']) {
    const {output, status} = await server.execution(name, isOver)
    assert.equal(status, 'failed')
    assert.match(output, /^exit status 3\n\[secret\]\n\[secret\]\n/, name)
    assert.match(output, new RegExp(`\\n${digest} `), 'the command had it')
    assert.match(output, /\[secret\]$/, 'also what was held back at the end')
  }
  const followed = await live.text()
  assertClean(followed, 'the stream of the output')
  assert.match(followed, new RegExp(digest))
  const {output} = await server.execution('call', isOver)
  assert.match(output, /> GET \S+\/\[secret\]\n< 500\n[^]*x-echo: Basic \S*\[secret\]/)

  await server.ask('DELETE', '/secrets/prey')
  await server.run('near')
  await until('it fails without its secret', async () => {
    const [newest] = await server.executions('near')
    return newest.status === 'failed' && newest.output.includes('there is no secret "prey"')
  })
  for (const job of ['near', 'far', 'call']) await assertCleanReplies(server, job)
  assertClean(events, 'the event stream')
  assert.match(events, /event: execution_finished/)
  await server.stop()
  await reading
  agent.program.signal('SIGTERM')
  await agent.program.exit
  for (const program of [server.program, agent.program])
    assertClean(program.stdout() + program.stderr(), 'the log')
  for (const directory of [server.data, agent.data]) assert.ok(assertCleanFiles(directory) > 3)
})
