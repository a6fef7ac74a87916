/** docs/reference/notice-channels.md lists exactly the kinds and their fields; its examples are valid. */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {test} from 'node:test'
import {MESSAGE_KINDS, SEVERITIES} from '../../src/core/notice-message.ts'
import {checkChannel} from '../../src/notices/channels/deliver.ts'
import {CHANNEL_KINDS} from '../../src/notices/channels/kinds.ts'
import {checkOf} from '../../src/wire/check.ts'
import {Message} from '../../src/wire/notice-message.ts'

const PAGE = readFileSync(
  new URL('../../docs/reference/notice-channels.md', import.meta.url),
  'utf8',
)

test('each kind has a section with exactly its fields, and marks its secret', () => {
  for (const {name, config, secretField} of CHANNEL_KINDS) {
    const section = PAGE.split(/^## /m).find((text) => text.startsWith(`${name}\n`))
    assert.ok(section !== undefined, `the page has no section ${name}`)
    const rows = [...section.matchAll(/^\| `(\w+)` \| ([^|]*) \| (.*)\|$/gm)]
    assert.deepEqual(
      rows.map(([, field]) => field),
      Object.keys(config.properties),
      name,
    )
    for (const [, field, fallback, meaning] of rows) {
      assert.equal(fallback === 'required', config.required?.includes(field!), `${name} ${field}`)
      assert.equal(meaning?.includes('Secret by nature'), field === secretField, `${name} ${field}`)
    }
  }
})

test('the list of kinds is complete', () => {
  const listed = [...PAGE.matchAll(/^\| \[`(\w+)`\]\(#\1\) \|/gm)].map(([, name]) => name)
  assert.deepEqual(
    listed,
    CHANNEL_KINDS.map(({name}) => name),
  )
})

test('the documented examples are valid', () => {
  const [channel, message, ...others] = [...PAGE.matchAll(/^```json\n(.*?)^```/gms)].map(
    ([, text]) => JSON.parse(text!) as {kind: string; config: unknown},
  )
  assert.deepEqual(others, [])
  assert.deepEqual(checkChannel(channel!.kind, channel!.config), [])
  assert.ok(checkOf(Message)(message))
})

test('all kinds of messages and severities are documented', () => {
  const row = (field: string) => new RegExp(`^\\| \`${field}\` \\| (.*) \\|$`, 'm').exec(PAGE)![1]
  assert.equal(row('kind'), MESSAGE_KINDS.map((kind) => `\`${kind}\``).join(', '))
  assert.equal(row('severity'), SEVERITIES.map((severity) => `\`${severity}\``).join(', '))
})
