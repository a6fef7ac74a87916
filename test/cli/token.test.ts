/** Tokens and secrets on the way to the server: refused when they are wrong, and never shown. */
import assert from 'node:assert/strict'
import {writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {PassThrough} from 'node:stream'
import {test} from 'node:test'
import {askHidden, askLine} from '../../src/cli/input.ts'
import {chooseToken} from '../../src/cli/token.ts'
import {commands} from './real-api.ts'

test('an odd token is refused before it is sent, without showing it', async (t) => {
  const {directory, run} = await commands(t)
  const lines = join(directory, 'lines')
  await writeFile(lines, 'name  bootstrap\nhunter2\n')
  const empty = join(directory, 'empty')
  await writeFile(empty, '\n')
  const ascii = 'must be printable ASCII without spaces'
  const cases: readonly (readonly [argv: readonly string[], message: string])[] = [
    [['--token', 'hunter2\nb'], `The token in --token ${ascii}: it has 2 lines.`],
    [['--token', 'hünter2'], `The token in --token ${ascii}.`],
    [['--token', ''], '--token is empty. It must be a token, or left out.'],
    [['--token-file', lines], `The token in ${lines} ${ascii}: it has 2 lines.`],
    [['--token-file', empty], `${empty} is empty. It must be a token, or left out.`],
    [
      ['--token', 'hunter2', '--token-file', lines],
      '--token and --token-file cannot be used together. Leave one of them out.',
    ],
  ]
  for (const [argv, message] of cases) {
    const ran = await run(...argv, 'jobs', 'list')
    assert.deepEqual(ran, {code: 2, out: '', err: `belfry: ${message}\n`})
  }
  await assert.rejects(chooseToken({}, {BELFRY_TOKEN: 'hünter2'}), {
    message: `The token in BELFRY_TOKEN ${ascii}.`,
  })
})

test('an error about a refused token names the source of the token', async (t) => {
  const {directory, run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  const file = join(directory, 'token')
  await writeFile(file, 'unknown-to-the-server')
  const {code, err} = await run('--token-file', file, 'jobs', 'list')
  assert.equal(code, 1)
  const why = 'it is unknown, revoked or has expired'
  assert.equal(err, `belfry: The token in ${file} is not accepted: ${why}.\n`)
})

test('a secret in place of a name is not repeated', async (t) => {
  const {run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  for (const verb of ['show', 'revoke']) {
    const {code, err} = await run('token', verb, state.token)
    assert.equal(code, 2)
    assert.match(err, /^belfry: This is the secret of a token\. Use the name/)
    assert.ok(!err.includes(state.token))
  }
})

test('the last management token is revoked only with --yes', async (t) => {
  const {api, run, state} = await commands(t)
  state.token = (await run('token', 'bootstrap')).out.trim()
  await run('token', 'create', 'soon', '--type', 'management', '--expires', '1s')
  await api.clock.advance(2_000)
  const refused = await run('token', 'revoke', 'bootstrap')
  assert.equal(refused.code, 1)
  assert.match(refused.err, /"bootstrap" is the last management token: .* Add --yes/)
  await run('token', 'create', 'second', '--type', 'management')
  assert.equal((await run('token', 'revoke', 'second')).err, '')
  const revoked = await run('token', 'revoke', 'bootstrap', '--yes')
  assert.equal(revoked.code, 0)
  assert.match(revoked.err, /^warning: there is no management token any more/)
})

test('a secret must be text', async (t) => {
  const {run, state} = await commands(t)
  state.input = Uint8Array.of(0x89, 0x50, 0xff)
  const {code, err} = await run('secret', 'set', 'png')
  assert.equal(code, 1)
  assert.match(err, /^belfry: Standard input must be UTF-8 text\. Encode it/)
})

test('a person is asked for a secret, which ends with Enter and is not shown', async () => {
  const ask = async (typed: string) => {
    let shown = ''
    const input = new PassThrough()
    const asked = askHidden(input, (text) => void (shown += text), 'Value: ')
    input.end(typed)
    const value = await asked.catch((error: Error) => error.message)
    return {value, shown}
  }
  const shown = 'Value: \n'
  assert.deepEqual(await ask('hunter2\r'), {value: 'hunter2', shown})
  assert.deepEqual(await ask('hunter3\u007f2\r'), {value: 'hunter2', shown})
  assert.deepEqual(await ask('hunter2\u0003'), {value: 'Nothing was read.', shown})
  const several = 'The value has several lines. Put it into a file, and use --file.'
  assert.deepEqual(await ask('-----BEGIN\nhunter2\n'), {value: several, shown})
})

test('a secret that is typed after another answer is not shown either', async () => {
  let shown = ''
  const input = new PassThrough()
  const output = new PassThrough()
  output.on('data', (bytes: Buffer) => void (shown += String(bytes)))
  const answer = askLine(input, output, 'Replace? ')
  input.write('y\r')
  assert.equal(await answer, 'y')
  const secret = askHidden(input, (text) => void output.write(text), 'Value: ')
  input.write('hunter2\r')
  assert.equal(await secret, 'hunter2')
  assert(!shown.includes('hunter'), shown)
})

test('what only looks like a reference to a secret is stored with a warning', async (t) => {
  const {run, state} = await commands(t)
  for (const odd of ['${secrets:', '${Secret:', '${ secret:']) {
    const executor_config = {command: 'true', env: `A=${odd}db}`}
    const job = {name: 'report', schedule: '@every 1h', executor: 'shell', executor_config}
    state.input = JSON.stringify(job)
    const {code, err} = await run('jobs', 'apply', '-f', '-')
    assert.equal(code, 0, err)
    assert.ok(err.includes(`env: ${JSON.stringify(odd)} is no reference to a secret`), err)
  }
})
