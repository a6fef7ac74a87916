/**
 * `npm run demo`: a cluster on this machine. PostgreSQL in a temporary folder, three servers, two agents
 * and a few jobs. A node that ends is started again after some seconds. Ctrl-C ends and removes everything,
 * and so does killing this script. Nothing is kept.
 */
import {spawn, type ChildProcess} from 'node:child_process'
import {once} from 'node:events'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {createInterface} from 'node:readline'
import {setTimeout as pause} from 'node:timers/promises'
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
 * was killed. Prints the node's process id first. Arguments: the node's folder, then its command.
 */
const KEEPER = `folder=$1; shift
"$@" </dev/null & node=$!
echo "$node"
exec >&-
if read -r word; then folder=; fi
kill -TERM $node 2>/dev/null
wait $node
[ -z "$folder" ] || { rm -rf "$folder"; rmdir "\${folder%/*}" 2>/dev/null; }`

/** Long enough to see another server lead, and the node as failed. */
const RESTART_MS = 20_000
const LEADER_POLL_MS = 500

interface Node {
  readonly name: string
  /** The words of its command line. */
  readonly words: readonly string[]
  keeper: ChildProcess
  pid: number
  /** `''` for an agent. */
  url: string
}

const folder = mkdtempSync(join(tmpdir(), 'belfry-demo-'))
const nodes = new Map<string, Node>()
const ending = new AbortController()
const began = Date.now()

function say(text: string): void {
  process.stdout.write(`${text}\n`)
}

/** Tells what happens, with the time since the start. */
function report(text: string): void {
  say(`${((Date.now() - began) / 1_000).toFixed(1).padStart(6)} s  ${text}`)
}

/** Starts a node; resolves when it is ready, rejects if it exits first. */
async function start(name: string, words: readonly string[]): Promise<Node> {
  if (ending.signal.aborted) throw new Error('the demo is ending')
  const data = join(folder, name)
  const flags = ['--name', name, '--data', data, '--log-level', 'error']
  const command = [process.execPath, BELFRY, ...words, ...flags]
  const keeper = spawn('sh', ['-c', KEEPER, 'keeper', data, ...command], {
    stdio: ['pipe', 'pipe', 'inherit'],
    // Ctrl-C reaches this script only, which ends the nodes in order.
    detached: true,
  })
  const node: Node = {name, words, keeper, pid: 0, url: ''}
  nodes.set(name, node)
  const lines = createInterface(keeper.stdout)
  const ready = new Promise<void>((resolve) => {
    lines.on('line', (line) => {
      if (/^\d+$/.test(line)) return void (node.pid = Number(line))
      // An agent names the server that it has joined.
      if (words[0] === 'server') node.url = /https?:\/\/\S+/.exec(line)?.[0] ?? ''
      resolve()
    })
  })
  // The node's output closes when it exits, although the keeper still runs.
  const closed = once(lines, 'close')
  await Promise.race([ready, closed.then(() => Promise.reject(new Error(`${name} did not start`)))])
  report(`${name} is ready (process ${node.pid})`)
  void closed.then(() => restart(node))
  return node
}

/** A server gets its port again, because agents and open pages know it. */
async function restart({name, words, keeper, pid, url}: Node): Promise<void> {
  if (ending.signal.aborted) return
  keeper.stdin?.end('stop\n')
  report(`${name} (process ${pid}) has ended; it is started again in ${RESTART_MS / 1_000} s`)
  try {
    await pause(RESTART_MS, undefined, {signal: ending.signal})
    const port = url === '' ? [] : ['--http', new URL(url).host]
    await start(name, [...words, ...port])
  } catch (error) {
    if (!ending.signal.aborted) report(`${name} cannot be started again: ${String(error)}`)
  }
}

async function stopAll(): Promise<void> {
  for (const {keeper} of [...nodes.values()].toReversed()) {
    if (keeper.exitCode !== null || keeper.signalCode !== null) continue
    keeper.stdin?.end('stop\n')
    await once(keeper, 'exit')
  }
}

/** The name of the leader, as the first server that answers knows it; `''` = none. */
async function leaderName(urls: readonly string[]): Promise<string> {
  for (const url of urls) {
    try {
      const reply = await fetch(`${url}/v1/leader`, {signal: AbortSignal.timeout(2_000)})
      if (reply.ok) return ((await reply.json()) as {Name: string}).Name
    } catch {
      // This server has ended; another one knows.
    }
  }
  return ''
}

/** Reports each new leader. */
async function watchLeader(urls: readonly string[], first: string): Promise<void> {
  for (let leader = first; ;) {
    await pause(LEADER_POLL_MS, undefined, {signal: ending.signal})
    const name = await leaderName(urls)
    if (name === '' || name === leader) continue
    report(`${name} leads now`)
    leader = name
  }
}

async function startNodes(store: string): Promise<string[]> {
  const server = ['server', '--store', store, '--grace', '5s']
  const names = ['server-1', 'server-2', 'server-3']
  report(`Starting ${names.join(', ')} …`)
  const port = ['--http', '127.0.0.1:0']
  const servers = await Promise.all(names.map((name) => start(name, [...server, ...port])))
  const urls = servers.map(({url}) => url)
  const known = urls.flatMap((url) => ['--server', url])
  report('Starting agent-1, agent-2 …')
  await Promise.all(
    ['printing', 'kitchen'].map((room, index) =>
      start(`agent-${index + 1}`, ['agent', ...known, '--tag', `room=${room}`, '--grace', '5s']),
    ),
  )
  return urls
}

async function storeJobs(url: string): Promise<void> {
  for (const job of JOBS) {
    const reply = await fetch(`${url}/v1/jobs`, {method: 'POST', body: JSON.stringify(job)})
    if (!reply.ok) throw new Error(`${job.name}: ${await reply.text()}`)
  }
  report(`${JOBS.length} jobs are stored`)
}

function introduction(urls: readonly string[], leader: string): string {
  const rows = [...nodes.values()].map(({name, pid, url}) => {
    const page = url === '' ? 'runs jobs' : `${url}/ui/`
    return `  ${name.padEnd(10)}process ${String(pid).padEnd(9)}${page}${name === leader ? '  leads' : ''}`
  })
  const pid = nodes.get(leader)?.pid ?? nodes.get('server-1')!.pid
  return `
Ready. Any server answers everything:

${rows.join('\n')}

In another terminal, in this directory:

  export BELFRY_SERVER=${urls.map((url) => new URL(url).host).join(',')}
  bin/belfry.js members
  bin/belfry.js runs list tick
  kill -9 ${pid}     # the leader: another one leads within seconds

A node that you kill is started again after ${RESTART_MS / 1_000} s. Ctrl-C ends everything.
`
}

async function run(postgres: TestPostgres): Promise<void> {
  report('PostgreSQL is ready')
  const urls = await startNodes(await postgres.database())
  await storeJobs(urls[0]!)
  const leader = await leaderName(urls)
  say(introduction(urls, leader))
  await watchLeader(urls, leader)
}

say('A Belfry cluster on this machine: PostgreSQL, three servers and two agents.')
say(`Nothing is downloaded. Files are in ${folder}; the end removes them.\n`)
report('Starting PostgreSQL (the first time takes up to a minute) …')
const asked = new Promise<void>((resolve) => {
  // A closed terminal sends SIGHUP.
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => resolve())
})
// A closed output must not end this script and leave the nodes running.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
const postgres = await TestPostgres.start(DURABLE)
try {
  await Promise.race([run(postgres), asked])
  say('\nEnding everything …')
} finally {
  ending.abort()
  await stopAll()
  await postgres.close()
  rmSync(folder, {recursive: true, force: true})
}
