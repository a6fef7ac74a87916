/** `belfry jobs edit`, with scripts as editors, against the real API. */
import assert from 'node:assert/strict'
import {chmod, readFile, writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {test} from 'node:test'
import {commands} from './real-api.ts'
import {runHere} from './run-cli.ts'

test('a job is edited; a fault and a conflict open the editor again, and nothing is lost', async (t) => {
  const {api, directory} = await commands(t)
  await api.job('e', {schedule: '@hourly', retries: 1})
  const editor = join(directory, 'editor')
  const edit = async (script: string) => {
    await writeFile(editor, `#!/bin/sh\nn=$(cat ${editor}.n 2>/dev/null || echo 0)\n${script}`)
    await chmod(editor, 0o700)
    const env = {BELFRY_SERVER: api.url, EDITOR: editor}
    return runHere(['jobs', 'edit', 'e'], {env})
  }
  const replace = (from: string, to: string) =>
    `sed 's/${from}/${to}/' "$1" > "$1.new" && mv "$1.new" "$1"`
  const changed = await edit(replace('"retries": 1', '"retries": 3'))
  assert.deepEqual([changed.code, changed.out], [0, 'changed e\n'])
  assert.match(changed.err, /^- retries: 1\n\+ retries: 3\n$/)
  const same = await edit('true')
  assert.deepEqual([same.code, same.err], [0, 'Nothing was changed.\n'])
  // Wrong the first time, then corrected by what the notice says.
  const fixed = await edit(
    `if grep -q '^# .*retries' "$1"; then ${replace('"retries": -1', '"retries": 4')}; ` +
      `else ${replace('"retries": 3', '"retries": -1')}; fi`,
  )
  assert.deepEqual([fixed.code, fixed.out], [0, 'changed e\n'])
  const kept = await edit(replace('"retries": 4', '"retries": -2'))
  assert.equal(kept.code, 1)
  const file = /Your text is in (\S+)\.\n/.exec(kept.err)![1]!
  assert.match(await readFile(file, 'utf8'), /^# .*retries[^]*"retries": -2/)
  // Another change while the editor is open.
  const other = `curl -fsS -o /dev/null -X POST ${api.url}/v1/jobs/e/toggle`
  const conflict = await edit(
    `if grep -q '^# The job was changed meanwhile' "$1"; then ` +
      `${replace('"displayname": "mine"', '"displayname": "both"')}; ` +
      `else ${other}; ${replace('"displayname": "[^"]*"', '"displayname": "mine"')}; fi`,
  )
  assert.deepEqual([conflict.code, conflict.out], [0, 'changed e\n'], conflict.err)
  assert.match(conflict.err, /^- disabled: true$/m, 'what it would undo is shown')
  assert.equal((await edit('exit 3')).code, 1)
})
