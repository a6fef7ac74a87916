/**
 * The files in packaging/ agree with the program: every setting they use exists, and every file they name.
 * Making packages, images and charts takes programs that a test machine does not have.
 */
import assert from 'node:assert/strict'
import {spawn, spawnSync} from 'node:child_process'
import {once} from 'node:events'
import {copyFileSync, existsSync, readFileSync, statSync, writeFileSync} from 'node:fs'
import {createServer} from 'node:http'
import type {AddressInfo} from 'node:net'
import {join} from 'node:path'
import {test} from 'node:test'
import {parse} from 'yaml'
import {AGENT_OPTIONS} from '../src/config/commands.ts'
import {LIMITS} from '../src/config/limits.ts'
import {CONFIG_OPTION, OPTIONS} from '../src/config/options.ts'
import {parseDuration} from '../src/lib/duration.ts'
import {temporaryDirectory} from './support/server-process.ts'

const ROOT = join(import.meta.dirname, '..')
const PACKAGING = join(ROOT, 'packaging')
const read = (path: string) => readFileSync(join(PACKAGING, path), 'utf8')
const namesOf = (options: readonly {readonly name: string}[]) =>
  new Set([...options, CONFIG_OPTION].map(({name}) => name))
const SETTINGS = {server: namesOf(OPTIONS), agent: namesOf(AGENT_OPTIONS)}
type Command = keyof typeof SETTINGS

function flagsIn(text: string): readonly string[] {
  return [...text.matchAll(/(?<=[\s"'[])--([a-z][a-z-]*)/g)].map((match) => match[1]!)
}

function assertSettings(command: Command, names: readonly string[]): void {
  assert.ok(names.length > 0, 'there are some')
  for (const name of names) assert.ok(SETTINGS[command].has(name), `${command} has no ${name}`)
}

for (const command of ['server', 'agent'] as const)
  test(`the unit and the settings of the ${command} use settings that it has`, () => {
    const unit = read(`systemd/belfry-${command}.service`)
    const start = /^ExecStart=belfry (\w+) (.*)$/m.exec(unit)
    assert.equal(start?.[1], command)
    assertSettings(command, flagsIn(` ${start?.[2] ?? ''}`))
    const example = read(`linux/${command}.yaml`)
    // Settings to remove the comment sign from, too.
    const names = [...example.matchAll(/^(?:# )?([a-z-]+):/gm)].map((match) => match[1]!)
    assertSettings(command, names)
    assert.doesNotThrow(() => parse(example))
  })

test('the units wait for the longest shutdown, and restart without a limit', () => {
  const fallback = OPTIONS.find(({name}) => name === 'grace')!.fallback!
  const stopMs = parseDuration(fallback)! + LIMITS.killAfterMs.value + LIMITS.drainTimeoutMs.value
  for (const command of ['server', 'agent']) {
    const unit = read(`systemd/belfry-${command}.service`)
    const waitMs = 1_000 * Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)![1])
    assert.ok(waitMs > stopMs, `${waitMs} ms are more than ${stopMs}`)
    for (const line of [
      'After=network-online.target',
      'Wants=network-online.target',
      'StartLimitIntervalSec=0',
      // A leave exits with 0: no restart.
      'Restart=on-failure',
      'KillMode=mixed',
    ])
      assert.ok(unit.includes(`\n${line}\n`), line)
  }
})

test('the Debian and RPM packages contain files that exist', () => {
  const {contents, scripts} = parse(read('linux/nfpm.yaml')) as {
    readonly contents: readonly {readonly src?: string; readonly type?: string}[]
    readonly scripts: Readonly<Record<string, string>>
  }
  const sources = contents.filter(({type}) => type !== 'symlink').map(({src}) => src ?? '')
  for (const path of [...sources, ...Object.values(scripts)])
    if (!path.startsWith('${TREE}')) assert.ok(existsSync(join(ROOT, path)), path)
})

/** The packages of the libraries that Node loads: Debian, Red Hat. */
const PACKAGES: Readonly<Record<string, readonly [string, string]>> = {
  atomic: ['libatomic1', 'libatomic'],
  'stdc++': ['libstdc++6', 'libstdc++'],
  gcc_s: ['libstdc++6', 'libstdc++'],
  c: ['libc6', 'glibc'],
  dl: ['libc6', 'glibc'],
  m: ['libc6', 'glibc'],
  pthread: ['libc6', 'glibc'],
}

const libraries = (
  process.report.getReport() as {readonly sharedObjects: readonly string[]}
).sharedObjects.flatMap((path) => /\/lib([^/]+)\.so\.\d+$/.exec(path)?.[1] ?? [])

test('a machine gets all libraries that Node loads', {skip: libraries.length === 0}, () => {
  const {overrides} = parse(read('linux/nfpm.yaml')) as {
    readonly overrides: Readonly<Record<'deb' | 'rpm', {readonly depends: readonly string[]}>>
  }
  const image = read('container/Containerfile')
  for (const library of libraries) {
    const packages = PACKAGES[library]
    assert.ok(packages !== undefined, `add the packages with ${library}`)
    const [deb, rpm] = packages
    assert.ok(overrides.deb.depends.includes(deb), `deb: ${deb}`)
    assert.ok(overrides.rpm.depends.includes(rpm), `rpm: ${rpm}`)
    assert.ok(deb === 'libc6' || image.includes(` ${deb} `), `image: ${deb}`)
  }
})

test('the compose file uses settings that there are', () => {
  interface Service {
    readonly command?: readonly [Command, ...string[]]
    readonly environment: Readonly<Record<string, string>>
  }
  const text = read('container/compose.yaml')
  const {services} = parse(text, {merge: true}) as {
    readonly services: Readonly<Record<string, Service>>
  }
  for (const {command, environment} of Object.values(services)) {
    if (command === undefined) continue
    assertSettings(command[0], flagsIn(` ${command.join(' ')}`))
    const variables = Object.keys(environment).map((name) => name.slice('BELFRY_'.length))
    assertSettings(
      command[0],
      variables.map((name) => name.toLowerCase().replaceAll('_', '-')),
    )
  }
})

/** The command of the health check, for another port. */
function healthCheck(port: number): readonly string[] {
  const command = /^HEALTHCHECK .*\\\n\s+CMD (.*)$/m.exec(read('container/Containerfile'))![1]!
  return (JSON.parse(command) as string[]).map((part) => part.replace('8080', String(port)))
}

for (const [status, expected] of [
  [200, 0],
  [503, 1],
] as const)
  test(`the health check of the image ends with ${expected} if a server replies ${status}`, async (t) => {
    const asked: (string | undefined)[] = []
    const server = createServer((request, response) => {
      asked.push(request.url)
      response.writeHead(status).end()
    }).listen(0, '127.0.0.1')
    t.after(() => server.close())
    await once(server, 'listening')
    const {port} = server.address() as AddressInfo
    const [program, ...parameters] = healthCheck(port)
    const check = spawn(program!, parameters, {stdio: 'ignore'})
    assert.deepEqual(await once(check, 'exit'), [expected, null])
    assert.deepEqual(asked, ['/livez'])
  })

test('the health check of the image fails if nothing listens', async () => {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const {port} = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  const [program, ...parameters] = healthCheck(port)
  const check = spawn(program!, parameters, {stdio: 'ignore'})
  assert.deepEqual(await once(check, 'exit'), [1, null])
})

test('the script makes every secret of the compose file, once', (t) => {
  const folder = temporaryDirectory(t)
  copyFileSync(join(PACKAGING, 'container', 'make-secrets.sh'), join(folder, 'make-secrets.sh'))
  // The script would change an owner as root.
  for (const name of ['chown', 'sudo'])
    writeFileSync(join(folder, name), '#!/bin/sh\n', {mode: 0o755})
  const env = {...process.env, PATH: `${folder}:${process.env['PATH']}`}
  const make = () => spawnSync(join(folder, 'make-secrets.sh'), {env}).status
  assert.equal(make(), 0)
  const {secrets} = parse(read('container/compose.yaml')) as {
    readonly secrets: Readonly<Record<string, {readonly file: string}>>
  }
  const files = Object.values(secrets).map(({file}) => join(folder, file))
  const text = (name: string) => readFileSync(join(folder, 'secrets', name), 'utf8')
  for (const file of files) assert.ok(existsSync(file), file)
  assert.match(text('token'), /^[0-9a-f]{48}$/)
  const password = text('database-password')
  assert.equal(text('server.yaml'), `store: postgres://belfry:${password}@database/belfry\n`)
  const key = statSync(join(folder, 'secrets', 'secret-key'))
  assert.deepEqual([key.size, key.mode & 0o777], [32, 0o600])
  assert.equal(statSync(join(folder, 'secrets')).mode & 0o777, 0o700)
  const before = text('token')
  assert.notEqual(make(), 0)
  assert.equal(text('token'), before)
})

test('the chart uses settings that there are', () => {
  for (const command of ['server', 'agent'] as const)
    assertSettings(command, flagsIn(read(`helm/belfry/templates/${command}s.yaml`)))
})

test('the image starts a server with settings that there are', () => {
  const command = /^CMD \[(.*)\]$/m.exec(read('container/Containerfile'))
  assertSettings('server', flagsIn(` ${command![1]!}`))
})
