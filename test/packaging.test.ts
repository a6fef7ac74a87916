/**
 * The files in packaging/ agree with the program: every setting they use exists, and every file they name.
 * Making packages, images and charts takes programs that a test machine does not have.
 */
import assert from 'node:assert/strict'
import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {parse} from 'yaml'
import {AGENT_OPTIONS} from '../src/config/commands.ts'
import {LIMITS} from '../src/config/limits.ts'
import {CONFIG_OPTION, OPTIONS} from '../src/config/options.ts'
import {parseDuration} from '../src/lib/duration.ts'

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
      // Not after a leave, which exits with 0.
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

test('the chart uses settings that there are', () => {
  for (const command of ['server', 'agent'] as const)
    assertSettings(command, flagsIn(read(`helm/belfry/templates/${command}s.yaml`)))
})

test('the image starts a server with settings that there are', () => {
  const command = /^CMD \[(.*)\]$/m.exec(read('container/Containerfile'))
  assertSettings('server', flagsIn(` ${command![1]!}`))
})
