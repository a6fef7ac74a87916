/** docs/reference/executors.md lists exactly the parameters of the executors, and its examples are valid. */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {test} from 'node:test'

import {createExecutors} from '../../src/executors/registry.ts'
import {realClock} from './support.ts'

const PAGE = readFileSync(new URL('../../docs/reference/executors.md', import.meta.url), 'utf8')

const executors = createExecutors({
  dataDir: '/nowhere',
  nodeId: 'docs',
  clock: realClock,
  environment: {},
  suAllowed: [],
  allowed: [],
  netAllow: [],
  netDeny: [],
  killAfterMs: 10_000,
  drainMs: 2_000,
  spawn: 'auto',
  report: () => undefined,
})

test('each executor has a row at the top, and a section with exactly its parameters', () => {
  for (const name of executors.names()) {
    assert.ok(PAGE.includes(`\n| [\`${name}\`](#${name}) |`), `the first table has no row ${name}`)
    const section = PAGE.split(/^## /m).find((text) => text.startsWith(`${name}\n`))
    assert.ok(section !== undefined, `docs/reference/executors.md has no section ${name}`)
    const table = section.slice(section.indexOf('| Parameter |')).split('\n\n')[0]!
    const rows = [...table.matchAll(/^\| `(\w+)` \| ([^|]*)\|/gm)]
    const parameters = executors.get(name)!.parameters
    assert.deepEqual(rows.map((row) => row[1]!).toSorted(), Object.keys(parameters).toSorted())
    for (const row of rows) {
      const preset = parameters[row[1]!]!
      if (preset !== '') assert.equal(row[2]!.trim(), `\`${preset}\``, row[1]!)
    }
  }
})

test('each executor has an example, which causes no problem and no warning', () => {
  const examples = [...PAGE.matchAll(/^```json\n(.*?)^```/gms)].map(
    (match) => JSON.parse(match[1]!) as Example,
  )
  assert.deepEqual(examples.map(({executor}) => executor).toSorted(), executors.names())
  for (const example of examples) {
    const found = executors.get(example.executor)!.check(example.executor_config)
    assert.deepEqual(found, {problems: [], warnings: []}, example.name)
  }
})

interface Example {
  name: string
  executor: string
  executor_config: Record<string, string>
}
