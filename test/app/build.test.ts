/**
 * The build that `npm ci` makes: it is complete without the sources, small, and never run for other sources
 * than its own. The tests work on copies: a build of this tree would disturb tests that run beside them.
 */
import assert from 'node:assert/strict'
import {execFileSync} from 'node:child_process'
import {
  appendFileSync,
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {basename, join} from 'node:path'
import {after, before, test, type TestContext} from 'node:test'
import {fakeProvider} from '../support/oidc-providers.ts'
import {childrenOf, peakResidentBytes} from '../support/living-processes.ts'
import {aServer, temporaryDirectory} from '../support/server-process.ts'

const ROOT = join(import.meta.dirname, '..', '..')
/** Inputs of a build, and files that it needs to run. */
const PARTS = [
  'bin',
  'packaging',
  'scripts',
  'src',
  'package.json',
  'package-lock.json',
  'README.md',
  'LICENSE',
]
const PACKAGED =
  /^(?:bin|dist\/[0-9a-f]{16}\/(?:program|ui|LICENSES\.txt$|commit$))|^(?:package\.json|[A-Z]+(?:\.md)?)$|^packaging\//
/** Files that the how-to pages copy out of the package. */
const COPIED = [
  'systemd/belfry-server.service',
  'linux/server.yaml',
  'monitoring/belfry-alerts.yml',
]
interface Packed {
  readonly filename: string
  readonly files: readonly {readonly path: string}[]
}
/** Measured: 165 MiB. Running the sources takes 280 MiB. */
const RESIDENT_MAX_BYTES = 220 * 2 ** 20

/** A copy of the tree, with the build of this tree if there is one: a bundle takes seconds. */
let original = ''
before(() => {
  original = mkdtempSync(join(tmpdir(), 'belfry-build-'))
  // The build belongs to the exact times of the files, which `cpSync` rounds.
  execFileSync('cp', ['-a', ...PARTS.map((part) => join(ROOT, part)), original])
  symlinkSync(join(ROOT, 'node_modules'), join(original, 'node_modules'))
  const known = buildToRun(ROOT)
  if (known !== null) cpSync(join(ROOT, known), join(original, known), {recursive: true})
  build(original)
})
after(() => rmSync(original, {recursive: true, force: true}))

/** A copy of it, which the build belongs to as well. */
function built(t: TestContext): string {
  const tree = join(temporaryDirectory(t), 'belfry')
  execFileSync('cp', ['-a', original, tree])
  return tree
}

function build(tree: string): void {
  execFileSync(process.execPath, [join(tree, 'scripts', 'build.js')], {stdio: 'inherit'})
}

/** The entry that `bin/belfry.js` would import, relative to the tree; `null` = the sources. */
function buildToRun(tree: string): string | null {
  const module = JSON.stringify(join(tree, 'bin', 'build-id.js'))
  const program = `import {builtFolder} from ${module}; process.stdout.write(builtFolder() ?? '')`
  const folder = String(execFileSync(process.execPath, ['--input-type=module', '-e', program]))
  return folder === '' ? null : folder.slice(tree.length + 1)
}

/** The folder that npm makes of the package of this tree, without the Node that it brings. */
function installed(t: TestContext): string {
  const folder = temporaryDirectory(t)
  const npm = (...parameters: readonly string[]) =>
    String(execFileSync('npm', [...parameters, '--loglevel=warn'], {cwd: original, stdio: 'pipe'}))
  const file = npm('pack', '--json', '--pack-destination', folder)
  const [{filename, files}] = JSON.parse(file.slice(file.indexOf('['))) as [Packed]
  const foreign = files.map(({path}) => path).filter((path) => !PACKAGED.test(path))
  assert.deepEqual(foreign, [], 'only what running needs')
  npm('install', '--prefix', folder, '--omit=optional', '--offline', join(folder, filename))
  return join(folder, 'node_modules', 'belfry')
}

test('a build shows its commit in the version, a release only its number', (t) => {
  const tree = built(t)
  const git = (...parameters: readonly string[]) => {
    const author = ['-c', 'user.name=test', '-c', 'user.email=test@example.org']
    return String(execFileSync('git', [...author, ...parameters], {cwd: tree})).trim()
  }
  const version = () => String(execFileSync(join(tree, 'bin', 'belfry.js'), ['version'])).trim()
  const release = version()
  assert.match(release, /^\d+\.\d+\.\d+$/, 'an archive without a repository is a release')
  writeFileSync(join(tree, '.gitignore'), 'dist\nnode_modules\n')
  git('init', '--quiet')
  git('add', '.')
  git('commit', '--quiet', '--message', 'first')
  build(tree)
  const head = git('rev-parse', '--short=7', 'HEAD')
  assert.equal(version(), `${release}-dev+${head}`)
  git('tag', `v${release}`)
  build(tree)
  assert.equal(version(), release)
  // The mode is a change for git, and none for the build: it needs no other bundle.
  chmodSync(join(tree, 'src', 'main.ts'), 0o755)
  build(tree)
  assert.equal(version(), `${release}-dev+${head}.dirty`)
  rmSync(join(tree, 'dist'), {recursive: true})
  assert.equal(version(), `${release}-dev`, 'the sources without a build')
})

test('an installed package runs: jobs, pages and the API document', async (t) => {
  const tree = installed(t)
  const packages = readdirSync(join(tree, '..')).filter((name) => !name.startsWith('.'))
  assert.deepEqual(packages, ['belfry'], 'it needs no other package')
  for (const path of COPIED) assert.ok(existsSync(join(tree, 'packaging', path)), path)
  const config = join(tree, 'server.yaml')
  writeFileSync(config, 'timezone: Europe/Berlin\n')
  const flags = ['--config', config]
  const server = await aServer(t, {belfry: join(tree, 'bin', 'belfry.js'), flags})
  await server.store({
    name: 'shell',
    schedule: '@manually',
    executor: 'shell',
    executor_config: {command: 'echo built'},
  })
  await server.run('shell')
  assert.equal((await server.execution('shell')).output.trim(), 'built')
  const url = `${server.url}/livez`
  await server.store({
    name: 'http',
    schedule: '@manually',
    executor: 'http',
    executor_config: {url, method: 'GET'},
  })
  await server.run('http')
  const {success, output} = await server.execution('http')
  assert.equal(success, true, output)
  for (const path of ['/v1/openapi.json', '/metrics', '/docs/', '/docs/js/scalar.js', '/ui/'])
    assert.equal((await server.get(`/${path}`)).status, 200, path)
  assert.equal((await server.stop()).code, 0)
})

test('the licenses of a build have a text for each package, and the notices of what is within', () => {
  const [folder = ''] = readdirSync(join(original, 'dist'))
  const text = readFileSync(join(original, 'dist', folder, 'LICENSES.txt'), 'utf8')
  const entries = text.split(/\n\n-{100}\n\n/)
  assert(entries.length > 90)
  for (const entry of entries) {
    const [title = '', ...lines] = entry.split('\n')
    assert.match(title, /^\S+ \d\S+: \S/)
    assert(lines.join(' ').length > 400, title)
  }
  for (const notice of ['* vue v3.', '* tabbable 6.', 'James Sumners', 'Hannes Hörl', 'radix-vue'])
    assert(text.includes(notice), notice)
})

test('a build sends people to the provider of their sign-in', async (t) => {
  const {issuer} = await fakeProvider(t)
  const provider = ['--oidc-issuer', issuer, '--oidc-client-id', 'c', '--oidc-map', 'ops=read']
  const server = await aServer(t, {
    belfry: join(built(t), 'bin', 'belfry.js'),
    flags: [...provider, '--public-url', 'http://localhost:8080'],
  })
  const origin = new URL(server.url).origin
  const reply = await fetch(`${origin}/v1/session/oidc`, {redirect: 'manual'})
  assert.equal(reply.status, 303)
  assert.ok(reply.headers.get('location')!.startsWith(`${issuer}/auth?`))
  assert.equal((await fetch(`${origin}/v1/jobs`)).status, 401, 'every request needs a token')
})

test('a built server and its helper stay small', async (t) => {
  const server = await aServer(t, {belfry: join(built(t), 'bin', 'belfry.js')})
  // Only /proc shows what a process has open.
  if (process.platform !== 'linux') return
  const processes = [server.pid, ...childrenOf(server.pid)]
  assert.equal(processes.length, 2, 'the server and its helper')
  const resident = processes.reduce((sum, pid) => sum + peakResidentBytes(pid), 0)
  assert.ok(resident < RESIDENT_MAX_BYTES, `${Math.round(resident / 2 ** 20)} MiB`)
})

test('sources that are edited, added or removed are run instead of a build; the newest builds stay', (t) => {
  const tree = built(t)
  const source = join(tree, 'src', 'platform', 'clock.ts')
  const first = buildToRun(tree)
  assert.match(first!, /^dist\/[0-9a-f]{16}$/)
  cpSync(source, `${source}.added`)
  assert.equal(buildToRun(tree), null, 'added')
  rmSync(`${source}.added`)
  assert.equal(buildToRun(tree), first, 'as it was built')
  appendFileSync(source, '\n')
  assert.equal(buildToRun(tree), null, 'edited')
  const old = Array.from({length: 15}, (_, index) => join(tree, 'dist', `old-${index + 10}`))
  for (const [index, folder] of old.entries()) {
    mkdirSync(folder)
    utimesSync(folder, index + 1, index + 1)
  }
  build(tree)
  const second = buildToRun(tree)!
  assert.notEqual(second, first)
  // A server may still run the previous build.
  assert.deepEqual(
    readdirSync(join(tree, 'dist')).toSorted(),
    [...old.slice(-8), first!, second].map((folder) => basename(folder)).toSorted(),
  )
  rmSync(source)
  assert.equal(buildToRun(tree), null, 'removed')
})

test('a build that ended halfway is not run', (t) => {
  const tree = built(t)
  const current = buildToRun(tree)!
  renameSync(join(tree, current), join(tree, `${current}.4711`))
  assert.equal(buildToRun(tree), null)
})
