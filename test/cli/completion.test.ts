/** Completion in bash with the real script, and what the program offers. Misspelt words get a hint. */
import assert from 'node:assert/strict'
import {execFile} from 'node:child_process'
import {join} from 'node:path'
import {test} from 'node:test'
import {promisify} from 'node:util'
import {cannedServer, json} from './canned-server.ts'
import {runHere} from './run-cli.ts'

const BIN = join(import.meta.dirname, '..', '..', 'bin', 'belfry.js')

/** The words offered in place of the last. */
async function offered(env: Record<string, string>, ...words: string[]): Promise<string[]> {
  const {out} = await runHere(['__complete', '--', ...words], {env})
  return out.split('\n').slice(0, -1)
}

test('commands, flags and names of jobs are completed', async (t) => {
  const names = ['backup', 'bill $(reboot)', 'b-2', 'other']
  const server = await cannedServer((_asked, response) =>
    json(
      response,
      200,
      names.map((name) => ({name})),
    ),
  )
  t.after(() => server.close())
  const env = {BELFRY_SERVER: server.url}
  assert.deepEqual(await offered(env, 'jo'), ['jobs'])
  assert.ok((await offered(env, 'jobs', '')).includes('launches'))
  assert.deepEqual(await offered(env, 'jobs', 'run', '--w'), ['--wait'])
  assert.ok((await offered(env, '--')).includes('--timeout'))
  assert.deepEqual(await offered(env, 'jobs', 'show', 'b'), ['backup', 'b-2'])
  assert.deepEqual(await offered({}, '--server', server.url, 'runs', 'list', 'o'), ['other'])
  assert.equal(server.asked[0]!.line, 'GET /v1/jobs?q=b&_end=200')
  assert.deepEqual(await offered(env, 'jobs', 'list', '--status', ''), [], 'a value')
  assert.deepEqual(await offered(env, 'jobs', 'show', 'backup', ''), [])
  assert.deepEqual(await offered({BELFRY_SERVER: 'ftp://x'}, 'jobs', 'show', ''), [])
})

test('executions, nodes and tokens are completed', async (t) => {
  const server = await cannedServer(({line}, response) => {
    if (line.startsWith('GET /v1/jobs/backup/executions?status=all'))
      return json(response, 200, [{id: '3-web-1'}, {id: '2-web-1'}])
    if (line === 'GET /v1/members') return json(response, 200, [{Name: 'web'}, {Name: 'db'}])
    json(response, 200, [{name: 'ci'}, {name: 'ci'}, {name: 'team'}])
  })
  t.after(() => server.close())
  const env = {BELFRY_SERVER: server.url}
  for (const [words, expected] of [
    ['runs show backup 3', ['3-web-1']],
    ['node drain ', ['web', 'db']],
    ['members remove d', ['db']],
    ['token revoke c', ['ci']],
    ['jobs delete one c', ['ci']],
    ['jobs show one c', []],
  ] as const)
    assert.deepEqual(await offered(env, ...words.split(' ')), expected, words)
})

test('bash completes with the script', async () => {
  const typed = (line: string) => `
    source <("$BELFRY" completion bash)
    COMP_WORDS=("$BELFRY" ${line}); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1))
    _belfry; printf '%s\\n' "\${COMPREPLY[@]}"`
  const {stdout} = await promisify(execFile)('bash', ['-c', typed('runs ca')], {
    env: {...process.env, BELFRY: BIN},
  })
  assert.equal(stdout, 'cancel\n')
  assert.equal((await runHere(['completion', 'tcsh'])).code, 2)
  for (const shell of ['zsh', 'fish'])
    assert.match((await runHere(['completion', shell])).out, /__complete -- /)
})

test('misspelt commands and variables get a hint', async () => {
  for (const [argv, says] of [
    [['help', 'jbs'], "Unknown command 'jbs'. Did you mean jobs? See belfry --help.\n"],
    [['help', 'jobs', 'lst'], "Unknown command 'lst'. Did you mean list? See belfry jobs --help."],
    [['jbs'], "Unknown command 'jbs' (Did you mean jobs?). See belfry --help."],
    [['jobs', 'list', '--limt', '3'], "Unknown option '--limt' (Did you mean --limit?)."],
  ] as const) {
    const ran = await runHere(argv)
    assert.deepEqual([ran.code, ran.out], [2, ''])
    assert.ok(ran.err.startsWith(`belfry: ${says}`), ran.err)
  }
  assert.equal((await runHere(['help', 'jobs'])).code, 0)
  const env = {BELFRY_SERVR: 'x', BELFRY_JOB: 'x', BELFRY_SERVER: 'ftp://x'}
  const {err} = await runHere(['busy'], {env})
  assert.match(err, /^warning: BELFRY_SERVR has no effect\. Did you mean BELFRY_SERVER\?\nbelfry: /)
})
