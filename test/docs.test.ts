/**
 * The documentation against the code: what can be told, refused, set, asked or measured stands in
 * `docs/`, and nothing else is claimed there. Where a table of the code is the truth, the page must
 * hold exactly its rows.
 */
import assert from 'node:assert/strict'
import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {test} from 'node:test'
import {LIMITS} from '../src/config/limits.ts'
import {CONFIG_OPTION, OPTIONS} from '../src/config/options.ts'
import {SYSTEM_TAGS} from '../src/core/node.ts'
import {REASONS} from '../src/core/launch-record.ts'
import {REFUSAL_STATUSES} from '../src/http/errors.ts'
import {parseDuration} from '../src/lib/duration.ts'
import {localEvents} from '../src/telemetry/event-bus.ts'
import {openMetrics} from '../src/telemetry/metrics.ts'
import {systemClock} from '../src/platform/clock.ts'
import {limitRow, settingRow} from './docs/rows.ts'
import {aServer} from './support/server-process.ts'
import {dotted, isNode, parseSource, walk} from './tidy/source.ts'

const ROOT = join(import.meta.dirname, '..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')
const PAGES = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'))

/** The first cells of the table rows below a heading (or of the whole page), without the row of titles. */
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

test('every error code stands in errors.md with its status', () => {
  const documented = rowsOf(read('docs/errors.md')).map(([code, status]) => `${code} ${status}`)
  sameSet(
    documented,
    Object.entries(REFUSAL_STATUSES).map(([code, status]) => `\`${code}\` ${status}`),
  )
})

test('every reason of the ledger stands in jobs.md', () => {
  const rows = rowsOf(read('docs/jobs.md'), '## The ledger')
  sameSet(
    rows.map(([code]) => code!),
    REASONS.map((reason) => `\`${reason}\``),
  )
})

/** Names and fields of the catalogue, which is a type and so only to be read from its text. */
function catalogue(): ReadonlyMap<string, readonly string[]> {
  const events = new Map<string, readonly string[]>()
  const source = parseSource('src/ports/events.ts', read('src/ports/events.ts'))
  walk(source.tree, (node) => {
    const id = node['id']
    if (node.type !== 'TSInterfaceDeclaration' || !isNode(id) || dotted(id) !== 'EventPayloads')
      return
    walk(node, (inner, parents) => {
      if (inner.type !== 'TSPropertySignature' || parents.length !== 2) return
      const fields: string[] = []
      walk(inner, (field, within) => {
        if (field.type === 'TSPropertySignature' && within.length === 3)
          fields.push(dotted(field['key']))
      })
      events.set(dotted(inner['key']), fields)
    })
  })
  return events
}

test('every event stands in events.md with its fields', () => {
  const events = catalogue()
  assert.ok(events.size > 10, 'the catalogue was read')
  const rows = rowsOf(read('docs/events.md'))
  sameSet(
    rows.map(([name, fields]) => `${name}: ${quoted(fields!).join(', ')}`),
    [...events].map(([name, fields]) => `\`${name}\`: ${fields.join(', ')}`),
  )
})

test('every setting stands in configuration.md as it is', () => {
  const section = sectionOf(read('docs/configuration.md'), '## Settings of `belfry server`')
  const rows = section.split('\n').filter((line) => line.startsWith('| `'))
  assert.deepEqual(rows, [...OPTIONS, CONFIG_OPTION].map(settingRow))
  const named = quoted(section.slice(section.lastIndexOf('|')))
  for (const tag of SYSTEM_TAGS) assert.ok(named.includes(tag), tag)
})

test('every limit stands in configuration.md as it is, and bounds something', () => {
  const section = sectionOf(read('docs/configuration.md'), '## Limits')
  const rows = section.split('\n').filter((line) => line.startsWith('| `'))
  assert.deepEqual(
    rows,
    Object.entries(LIMITS).map(([name, limit]) => limitRow(name, limit)),
  )
  const roots = readdirSync(join(ROOT, 'src')).filter((name) => /^(server|agent).*\.ts$/.test(name))
  const composition = roots.map((name) => read(`src/${name}`)).join('\n')
  for (const name of Object.keys(LIMITS))
    assert.match(composition, new RegExp(`\\b${name}\\b`), `${name} is used`)
})

test('the units of systemd wait for a stop as long as one may take, and never give up', () => {
  const units = read('docs/operations.md').match(/^```ini\n[^`]*/gm)!
  assert.deepEqual(
    units.map((unit) => /^ExecStart=\S+ (\w+)/m.exec(unit)![1]),
    ['server', 'agent'],
  )
  const fallback = OPTIONS.find(({name}) => name === 'grace')!.fallback!
  const stopMs = parseDuration(fallback)! + LIMITS.killAfterMs.value + LIMITS.drainTimeoutMs.value
  for (const unit of units) {
    const waitMs = 1_000 * Number(/^TimeoutStopSec=(\d+)$/m.exec(unit)![1])
    assert.ok(waitMs > stopMs, `${waitMs} ms are more than ${stopMs}`)
    for (const line of [
      'After=network-online.target',
      'Wants=network-online.target',
      'StartLimitIntervalSec=0',
      'Restart=always',
      'KillMode=mixed',
    ])
      assert.ok(unit.includes(`\n${line}\n`), line)
  }
})

test('every metric stands in operations.md with its type and labels', async () => {
  const metrics = openMetrics({
    events: localEvents(systemClock()),
    totals: () => Promise.resolve({jobs: 0, running: 0, pending: 0, undecided: 0}),
    version: '0',
  })
  try {
    metrics.answered({method: 'GET', route: '/', status: 200, durationMs: 1})
    const text = await metrics.text()
    const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)]
    const rows = rowsOf(read('docs/operations.md'), '## Metrics')
    sameSet(
      rows.map(([name, type]) => `${name} ${type}`),
      types.map(([, name, type]) => `\`${name}\` ${type}`),
    )
    for (const [name, , labels] of rows) {
      const plain = quoted(name!)[0]!
      for (const sample of text.matchAll(new RegExp(`^${plain}(?:_count)?\\{([^}]+)\\}`, 'gm'))) {
        const real = [...sample[1]!.matchAll(/(\w+)="/g)].map((match) => match[1]!)
        sameSet(quoted(labels!), real)
      }
    }
  } finally {
    metrics.stop()
  }
})

/** `GET /v1/jobs/{name}` for every route that is answered, parameters named as in the documentation. */
async function realRoutes(t: Parameters<typeof aServer>[0]): Promise<readonly string[]> {
  const server = await aServer(t)
  const {json} = await server.get('/openapi.json')
  const paths = Object.entries(json.paths as Record<string, Record<string, unknown>>)
  return paths.flatMap(([path, methods]) =>
    Object.keys(methods)
      .filter((method) => method !== 'head')
      .map((method) => `${method.toUpperCase()} ${plainPath(path)}`),
  )
}

/** Parameters named as in the documentation; a slash at the end is the same path. */
function plainPath(path: string): string {
  return path.replace('{execution}', '{id}').replace(/(?<=.)\/$/, '')
}

/** Routes named in api.md, such as `GET /v1/x`, or `GET`, `POST`, `DELETE /v1/x`, or a bare path. */
function documentedRoutes(page: string): readonly string[] {
  const routes = new Set<string>()
  for (const [cell] of rowsOf(page)) {
    let methods: string[] = []
    for (const text of quoted(cell!)) {
      const [method, path] = text.startsWith('/') ? ['GET', text] : text.split(' ')
      methods.push(method!)
      if (path === undefined) continue
      for (const one of methods) routes.add(`${one} ${plainPath(path)}`)
      methods = []
    }
  }
  return [...routes]
}

test('every route stands in api.md', async (t) => {
  const api = read('docs/api.md')
  const named = new Set(documentedRoutes(api))
  // Named in the text of another row, not as a row.
  for (const alias of ['/v1/executions/{name}'])
    if (api.includes(`\`${alias}\``)) named.add(`GET ${alias}`)
  const real = await realRoutes(t)
  for (const route of real) assert.ok(named.has(route), `${route} stands in api.md`)
  // Pages, which are not part of the description of the interface.
  const pages = ['GET /docs', 'GET /ui', 'GET /v1/openapi.json']
  for (const route of named)
    assert.ok(real.includes(route) || pages.includes(route), `${route} is answered`)
})

test('the glossary explains each word once, and every word that it may not lack', () => {
  const words = read('docs/glossary.md')
    .split('\n')
    .filter((line) => line.startsWith('| **'))
    .flatMap((line) => [...line.split('|')[1]!.matchAll(/\*\*([^*]+)\*\*/g)])
    .map((match) => match[1]!)
  assert.equal(new Set(words).size, words.length, 'once')
  for (const word of ['job', 'launch', 'execution', 'attempt', 'claim', 'lease', 'term', 'slot'])
    assert.ok(words.includes(word), word)
})

const WRITTEN = [
  'README.md',
  'ARCHITECTURE.md',
  'CONTRIBUTING.md',
  ...PAGES.map((name) => `docs/${name}`),
]

/** Headings as anchors, in the way usual hosts make them. */
function anchorsOf(page: string): readonly string[] {
  return [...page.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  )
}

for (const path of WRITTEN)
  test(`links of ${path} lead somewhere`, () => {
    for (const [, target] of read(path).matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^https?:/.test(target!)) continue
      const [file, anchor] = target!.split('#')
      const at = file === '' ? path : join(dirname(path), file!)
      assert.ok(existsSync(join(ROOT, at)), `${target} is there`)
      if (anchor !== undefined)
        assert.ok(anchorsOf(read(at)).includes(anchor), `${target} is there`)
    }
  })

test('every page of docs is reached from the README', () => {
  const readme = read('README.md')
  for (const name of PAGES) assert.ok(readme.includes(`(docs/${name})`), name)
})

test('nothing speaks of what is not in the repository', () => {
  const outside = new RegExp(['\\.\\./shared', '/work/', 'interface-source'].join('|'))
  for (const path of WRITTEN) assert.doesNotMatch(read(path), outside, path)
})
