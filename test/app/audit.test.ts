/** `npm run audit`: what its exit code says, with a npm that answers what the test makes. */
import assert from 'node:assert/strict'
import {spawnSync} from 'node:child_process'
import {chmodSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {temporaryDirectory} from '../support/server-process.ts'

const SCRIPT = join(import.meta.dirname, '..', '..', 'scripts', 'audit.ts')
const FOUND = {ws: {severity: 'high', range: '<8.23.1'}}

test('known vulnerabilities fail the audit, and a registry without a list does not pass it', (t) => {
  const folder = temporaryDirectory(t)
  const npm = join(folder, 'npm')
  for (const [answer, code, says] of [
    [JSON.stringify({vulnerabilities: {}}), 0, /^0 packages/],
    [JSON.stringify({vulnerabilities: FOUND}), 1, /^high: ws <8\.23\.1\n1 packages/],
    [
      JSON.stringify({message: '405 Method Not Allowed'}),
      3,
      /cannot be listed: 405 .*Nothing was checked/,
    ],
    ['not json', 3, /cannot be listed: npm printed no JSON/],
  ] as const) {
    writeFileSync(npm, `#!/bin/sh\ncat <<'END'\n${answer}\nEND\n`)
    chmodSync(npm, 0o755)
    const env = {...process.env, PATH: `${folder}:/usr/bin:/bin`}
    const {status, stderr} = spawnSync(process.execPath, [SCRIPT], {env, encoding: 'utf8'})
    assert.equal(status, code, answer)
    assert.match(stderr, says)
  }
})
