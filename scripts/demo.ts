/**
 * `npm run demo`: a cluster on this machine. PostgreSQL in a temporary folder, three servers, two agents
 * and a few jobs. Ctrl-C ends and removes everything, and so does killing this script. Nothing is kept.
 */
import {spawn, type ChildProcess} from 'node:child_process'
import {once} from 'node:events'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {createInterface} from 'node:readline'
import {TestPostgres} from '../test/support/postgres.ts'

const BELFRY = new URL('../bin/belfry.js', import.meta.url).pathname
/** PostgreSQL settings of a durable production database. */
const DURABLE = {fsync: 'on', synchronous_commit: 'on', full_page_writes: 'on'}

const JOBS = [
  {
    name: 'tick',
    displayname: 'On one node, every five seconds',
    schedule: '*/5 * * * * *',
    executor: 'shell',
    executor_config: {
      command: 'echo "launched for $BELFRY_SCHEDULED_AT on $BELFRY_NODE"',
      shell: 'true',
    },
  },
  {
    name: 'everywhere',
    displayname: 'On every node, each minute',
    schedule: '0 * * * * *',
    tags: {role: 'belfry'},
    executor: 'shell',
    executor_config: {command: 'uptime', shell: 'true'},
  },
  {
    name: 'print',
    displayname: 'Only on the node with the printer',
    schedule: '@every 20s',
    tags: {room: 'printing'},
    executor: 'shell',
    executor_config: {command: 'sleep 3 && echo printed', shell: 'true'},
  },
  {
    name: 'after-print',
    displayname: 'After each successful print',
    parent_job: 'print',
    executor: 'shell',
    executor_config: {command: 'echo thanks', shell: 'true'},
  },
  {
    name: 'fails',
    displayname: 'Fails, and is retried twice',
    schedule: '@every 1m',
    retries: 2,
    executor: 'shell',
    executor_config: {command: 'echo "no luck" && exit 3', shell: 'true'},
  },
]

/**
 * Shell script that ends a node and removes its folder when standard input closes: this script has ended or
 * was killed. Arguments: the node's folder, then its command.
 */
const KEEPER = `folder=$1; shift
"$@" </dev/null & node=$!
exec >&-
if read -r word; then folder=; fi
kill -TERM $node 2>/dev/null
wait $node
[ -z "$folder" ] || { rm -rf "$folder"; rmdir "\${folder%/*}" 2>/dev/null; }`

const folder = mkdtempSync(join(tmpdir(), 'belfry-demo-'))
const started: ChildProcess[] = []
let isEnding = false

/** Starts a node; resolves with its ready line, rejects if the process exits first. */
async function start(name: string, words: readonly string[]): Promise<string> {
  if (isEnding) throw new Error('the demo is ending')
  const data = join(folder, name)
  const flags = ['--name', name, '--data', data, '--log-level', 'error']
  const command = [process.execPath, BELFRY, ...words, ...flags]
  const child = spawn('sh', ['-c', KEEPER, 'keeper', data, ...command], {
    stdio: ['pipe', 'pipe', 'inherit'],
    // Ctrl-C reaches this script only, which ends the nodes in order.
    detached: true,
  })
  started.push(child)
  const lines = createInterface(child.stdout)
  return Promise.race([
    once(lines, 'line').then(([first]) => String(first)),
    // The node's output closes when it exits, although the keeper still runs.
    once(lines, 'close').then(() => Promise.reject(new Error(`${name} did not start`))),
  ])
}

async function stopAll(): Promise<void> {
  isEnding = true
  for (const child of started.toReversed()) {
    if (child.exitCode !== null || child.signalCode !== null) continue
    child.stdin?.end('stop\n')
    await once(child, 'exit')
  }
}

/** URL in a ready line. */
function urlIn(line: string): string {
  return /https?:\/\/\S+/.exec(line)![0]
}

async function run(postgres: TestPostgres): Promise<void> {
  const store = await postgres.database()
  const urls: string[] = []
  for (const name of ['server-1', 'server-2', 'server-3']) {
    const words = ['server', '--http', '127.0.0.1:0', '--store', store, '--grace', '5s']
    urls.push(urlIn(await start(name, words)))
  }
  const servers = urls.flatMap((url) => ['--server', url])
  await start('agent-1', ['agent', ...servers, '--tag', 'room=printing', '--grace', '5s'])
  await start('agent-2', ['agent', ...servers, '--tag', 'room=kitchen', '--grace', '5s'])
  for (const job of JOBS) {
    const answer = await fetch(`${urls[0]}/v1/jobs`, {method: 'POST', body: JSON.stringify(job)})
    if (!answer.ok) throw new Error(`${job.name}: ${await answer.text()}`)
  }
  process.stdout.write(`
Three servers, two agents and ${JOBS.length} jobs. Any server answers everything:

${urls.map((url) => `  ${url}/ui/`).join('\n')}

Try:  curl -s '${urls[1]}/v1/members?pretty'
      curl -s '${urls[2]}/v1/jobs/tick/executions?pretty&_end=3'
      kill -9 a server's process, and watch another lead

Ctrl-C ends all of it.
`)
}

const asked = new Promise<void>((resolve) => {
  // A closed terminal sends SIGHUP.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => resolve())
})
// A closed output must not end this script and leave the nodes running.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
const postgres = await TestPostgres.start(DURABLE)
try {
  await Promise.race([run(postgres), asked])
  await asked
  process.stdout.write('\nEnding everything …\n')
} finally {
  await stopAll()
  await postgres.close()
  rmSync(folder, {recursive: true, force: true})
}
