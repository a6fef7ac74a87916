/** docs/reference/processors.md lists exactly the parameters of the processors, and its example is valid. */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {test} from 'node:test'

import {createProcessors} from '../../src/processors/registry.ts'
import {realClock} from './support.ts'

const PAGE = readFileSync(new URL('../../docs/reference/processors.md', import.meta.url), 'utf8')

const processors = createProcessors({
  dataDir: '/nowhere',
  nodeName: 'web',
  clock: realClock,
  logRoot: null,
  syslogUrl: null,
  warn: () => undefined,
  writeLog: () => undefined,
  runProgram: null,
})

test('each processor has a section with exactly its parameters', () => {
  for (const name of processors.names()) {
    const section = PAGE.split(/^## /m).find((text) => text.startsWith(`${name}\n`))
    assert.ok(section !== undefined, `docs/reference/processors.md has no section ${name}`)
    const rows = [...section.matchAll(/^\| `(\w+)` +\|/gm)]
    assert.deepEqual(
      rows.map((row) => row[1]!).toSorted(),
      processors.get(name)!.parameters.toSorted(),
    )
  }
})

test('the documented example causes no problem', () => {
  const [, example] = /^```json\n(.*?)^```/ms.exec(PAGE)!
  const job = JSON.parse(example!) as {processors: Record<string, Record<string, string>>}
  for (const [name, config] of Object.entries(job.processors)) {
    assert.deepEqual(processors.get(name)!.check(config), [], name)
  }
})
