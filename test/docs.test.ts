/**
 * Checks the documentation against the code: every error code, event, route, command, setting, limit and
 * metric is in `docs/`, and nothing else is. Where the code has a table, the page must have exactly its rows.
 * Also checks that links resolve.
 */
import assert from 'node:assert/strict'
import {existsSync, globSync, readFileSync, readdirSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {test} from 'node:test'
import {runCli} from '../src/cli/program.ts'
import {agentCommand, serverCommand} from '../src/config/commands.ts'
import {LIMITS} from '../src/config/limits.ts'
import {SYSTEM_TAGS} from '../src/core/node.ts'
import {systemClock} from '../src/platform/clock.ts'
import {documentedPath} from './docs/routes.ts'
import {partsOf, ROUTES, TABLES} from './docs/tables.ts'
import {readSources} from './tidy/source.ts'

const ROOT = join(import.meta.dirname, '..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')
/** Every page below docs/, as `docs/reference/jobs.md`. */
const PAGES = readdirSync(join(ROOT, 'docs'), {recursive: true, encoding: 'utf8'})
  .filter((name) => name.endsWith('.md'))
  .map((name) => `docs/${name}`)

/** Cells of the table rows below a heading, or of the whole page. Rows begin with a code or a link. */
function rowsOf(page: string, heading?: string): readonly (readonly string[])[] {
  const text = heading === undefined ? page : sectionOf(page, heading)
  return text
    .split('\n')
    .filter((line) => line.startsWith('| `') || line.startsWith('| ['))
    .map((line) =>
      line
        .split(/(?<!\\)\|/)
        .slice(1, -1)
        .map((cell) => cell.trim()),
    )
}

function sectionOf(page: string, heading: string): string {
  const from = page.indexOf(`\n${heading}\n`)
  assert.notEqual(from, -1, `there is a heading ${heading}`)
  const level = /^#+/.exec(heading)![0]
  const rest = page.slice(from + heading.length + 2)
  const end = rest.search(new RegExp(`^#{1,${level.length}} `, 'm'))
  return end === -1 ? rest : rest.slice(0, end)
}

/** Every text in back quotes. */
function quoted(text: string): readonly string[] {
  return [...text.matchAll(/`([^`]+)`/g)].map((match) => match[1]!)
}

function sameSet(documented: readonly string[], real: readonly string[]): void {
  assert.deepEqual(documented.toSorted(), real.toSorted())
}

for (const table of TABLES)
  test(`${table.page} has the rows of the code below "${table.below}"`, () => {
    const fix = 'run "node test/docs/write-tables.ts"'
    assert.deepEqual(partsOf(table).rows, table.rows, fix)
  })

test('configuration.md names the tags that Belfry sets', () => {
  const section = sectionOf(
    read('docs/reference/configuration.md'),
    '## Settings of `belfry server`',
  )
  const named = quoted(section.slice(section.lastIndexOf('|')))
  for (const tag of SYSTEM_TAGS) assert.ok(named.includes(tag), tag)
})

test('every limit is used', () => {
  const paths = globSync('src/**/*.ts', {cwd: ROOT, exclude: ['src/config/limits.ts']})
  const code = paths.map(read).join('\n')
  // A name in quotes is a part of a type.
  for (const name of Object.keys(LIMITS))
    assert.match(code, new RegExp(`(?<!['\\w])${name}(?!['\\w])`), `${name} is used`)
})

test('metrics.md lists the steps that can fail, and no other', async () => {
  const source = (await readSources(ROOT, ['src'])).map(({text}) => text).join('\n')
  const documented = rowsOf(read('docs/reference/metrics.md'), '## Steps').map(
    ([step]) => quoted(step!)[0]!,
  )
  for (const [, step] of source.matchAll(/\bstep: '(\w+)'/g))
    assert.ok(documented.includes(step!), `metrics.md lacks ${step}`)
  // The last part of `agent_…` is the kind of a message.
  for (const step of documented.filter((name) => name !== 'agent_…'))
    assert.ok(source.includes(`'${step}'`), `${step} does not exist`)
})

test('api.md lists every page outside of the OpenAPI document, and no others', () => {
  const rows = rowsOf(read('docs/reference/api.md'), '### Pages')
  const {all, described} = ROUTES
  const pages = all.filter(({url}) => described.every((route) => route.url !== url))
  const files = /\.(?:js|css|svg)$/
  sameSet(
    rows.flatMap((cells) => cells.flatMap(quoted)).filter((text) => text.startsWith('GET /')),
    pages.map(({method, url}) => `${method} ${url}`).filter((name) => !files.test(name)),
  )
})

test('every tag of a route has a section in api.md', () => {
  const written = TABLES.flatMap(({page, rows}) => (page === 'api.md' ? rows : [])).join('\n')
  for (const {method, url} of ROUTES.described)
    assert.ok(written.includes(`\`${method} ${documentedPath(url)}\``), `${method} ${url}`)
})

test('the glossary defines each term once, and the terms of the flow', () => {
  const words = read('docs/reference/glossary.md')
    .split('\n')
    .filter((line) => line.startsWith('| **'))
    .flatMap((line) => [...line.split('|')[1]!.matchAll(/\*\*([^*]+)\*\*/g)])
    .map((match) => match[1]!)
  assert.equal(new Set(words).size, words.length, 'once')
  for (const word of ['job', 'launch', 'execution', 'attempt', 'claim', 'lease', 'term', 'slot'])
    assert.ok(words.includes(word), word)
})

/** Help text of a command, as `belfry <path> --help` prints it. */
async function helpOf(path: readonly string[]): Promise<string> {
  let text = ''
  const unused = () => assert.fail('help does nothing')
  const code = await runCli([...path, '--help'], {
    terminal: {
      out: (part) => void (text += part),
      outBytes: unused,
      err: unused,
      input: unused,
      colours: false,
      progress: false,
    },
    env: {},
    clock: systemClock(),
    version: '0',
    serverCommand: serverCommand(),
    agentCommand: agentCommand(),
    restoreBackup: unused,
    migrateStore: unused,
  })
  assert.equal(code, 0)
  return text
}

/** `belfry jobs list` for every command that does something; read from the help texts. */
async function realCommands(path: readonly string[]): Promise<readonly string[]> {
  const listed = (await helpOf(path)).split('\nCommands:\n')[1] ?? ''
  const names = [...listed.matchAll(/^ {2}([a-z][\w-]*)/gm)].map((match) => match[1]!)
  const found: string[] = []
  for (const name of names) {
    if (name === 'help') continue
    const below = await realCommands([...path, name])
    // These do something themselves, beside having a command of their own.
    if (below.length === 0 || ['members', 'settings'].includes(name))
      found.push(['belfry', ...path, name].join(' '))
    found.push(...below)
  }
  return found
}

/** Flags of a command, as `-q --query`; read from its help text. */
async function realFlags(command: string): Promise<readonly string[]> {
  const text = (await helpOf(command.split(' ').slice(1))).split('\nOptions:\n')[1] ?? ''
  const [options = ''] = text.split('\n\n')
  return [...options.matchAll(/^ {2}(-[^\s,]+)(?:, (--[\w-]+))?/gm)]
    .map(([, first, second = '']) => `${first} ${second}`.trim())
    .filter((flag) => !flag.includes('--help'))
}

/** Rows of commands: the command without its arguments, and the flags that the row names. */
function documentedCommands(): readonly {command: string; flags: readonly string[]}[] {
  return rowsOf(read('docs/reference/cli.md'))
    .map((cells) => cells.flatMap(quoted))
    .filter(([text = '']) => text.startsWith('belfry '))
    .map(([text = '', ...texts]) => ({
      command: text.replace(/ (?:<|\[|-).*/, ''),
      flags: [text, ...texts.filter((other) => !other.includes(' --'))].flatMap(
        (each) => each.match(/(?<![\w-])--?[a-z][\w-]*/g) ?? [],
      ),
    }))
}

test('cli.md lists every command, and no other', async () => {
  sameSet(
    documentedCommands().map(({command}) => command),
    await realCommands([]),
  )
})

test('cli.md names exactly the flags of each command', async () => {
  const shared = (await realFlags('belfry')).flatMap((flags) => flags.split(' '))
  for (const {command, flags} of documentedCommands()) {
    // The pages of settings have theirs.
    if (['belfry server', 'belfry agent'].includes(command)) continue
    const real = await realFlags(command)
    for (const forms of real)
      assert.ok(
        forms.split(' ').some((form) => flags.includes(form)),
        `cli.md lacks ${forms} of ${command}`,
      )
    const known = [...shared, ...real.flatMap((forms) => forms.split(' '))]
    for (const flag of flags) assert.ok(known.includes(flag), `${command} has no ${flag}`)
  }
})

const WRITTEN = [
  'README.md',
  'ARCHITECTURE.md',
  'THREATS.md',
  'CONTRIBUTING.md',
  'CHANGELOG.md',
  ...PAGES,
]

/** Anchors of a page's headings, in GitHub's form. */
function anchorsOf(page: string): readonly string[] {
  return [...page.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  )
}

/** Files and anchors that a page links to, relative to the root of the repository. */
function linksOf(path: string): readonly {file: string; anchor: string | undefined}[] {
  return [...read(path).matchAll(/\]\(([^)\s]+)\)/g)]
    .map((match) => match[1]!)
    .filter((target) => !/^https?:/.test(target))
    .map((target) => {
      const [file, anchor] = target.split('#')
      return {file: file === '' ? path : join(dirname(path), file!), anchor}
    })
}

for (const path of WRITTEN)
  test(`links of ${path} resolve`, () => {
    for (const {file, anchor} of linksOf(path)) {
      assert.ok(existsSync(join(ROOT, file)), `${file} does not exist`)
      if (anchor !== undefined)
        assert.ok(anchorsOf(read(file)).includes(anchor), `${file} has no heading #${anchor}`)
    }
  })

test('the README links to the index, and the index to every page', () => {
  const linked = (path: string) => linksOf(path).map(({file}) => file)
  assert.ok(linked('README.md').includes('docs/README.md'))
  for (const page of PAGES.filter((path) => path !== 'docs/README.md'))
    assert.ok(linked('docs/README.md').includes(page), `docs/README.md lacks ${page}`)
})

test('every page of docs that the sources name exists', async () => {
  const sources = await readSources(ROOT, ['src', 'test', 'tools', 'scripts', 'bin'])
  const ours = sources.filter(({path}) => path !== 'test/tidy/planted.test.ts')
  const texts = [...ours, ...WRITTEN.map((path) => ({path, text: read(path)}))]
  for (const {path, text} of texts)
    for (const [page] of text.matchAll(/\bdocs\/[\w/-]+\.md\b/g))
      assert.ok(existsSync(join(ROOT, page)), `${path} names ${page}, which does not exist`)
})

test('the documentation names nothing outside the repository', () => {
  const outside = new RegExp(['\\.\\./shared', '/work/', 'interface-source'].join('|'))
  for (const path of WRITTEN) assert.doesNotMatch(read(path), outside, path)
})
