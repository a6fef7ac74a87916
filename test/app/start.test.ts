/**
 * Start of a real server: one line on standard output when ready, one sentence on standard error when
 * refused.
 */
import assert from 'node:assert/strict'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {createServer, type AddressInfo} from 'node:net'
import {join} from 'node:path'
import {describe, test, type TestContext} from 'node:test'
import {agreeZone} from '../../src/app/store.ts'
import type {Host} from '../../src/config/read.ts'
import {loadConfig} from '../../src/config/server.ts'
import {parseAddress} from '../../src/store/postgres/url.ts'
import {anAgent} from '../agents/agent-process.ts'
import {markedProcesses} from '../support/living-processes.ts'
import {
  aServer,
  isOver,
  refusedStart,
  temporaryDirectory,
  runProgram,
} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

const TOKEN = 'a-token-of-enough-characters'
const ONE_SENTENCE = /^belfry: [^\n]+\.\n$/

async function refused(
  t: TestContext,
  argv: readonly string[],
  says: RegExp,
  env: Readonly<Record<string, string>> = {},
): Promise<void> {
  const {code, stdout, stderr} = await refusedStart(t, argv, env)
  assert.notEqual(code, 0, stderr)
  assert.notEqual(code, null, stderr)
  assert.equal(stdout, '')
  assert.match(stderr, ONE_SENTENCE)
  assert.match(stderr, says)
}

const HOST: Host = {
  name: 'tower',
  cores: 2,
  timezone: 'UTC',
  directory: '/',
  readFile: (path) => readFileSync(path, 'utf8'),
}

test('a start warns of another time zone of the cluster only if one is configured', async () => {
  const warnings = async (timezone: string, isTimezoneSet: boolean, stored = 'Europe/Berlin') => {
    const lines: unknown[] = []
    const log = {logger: {warn: (...line: unknown[]) => void lines.push(line)}}
    const parts = {config: {timezone, isTimezoneSet}, log}
    assert.equal(
      await agreeZone({agreeTimezone: async () => stored} as never, parts as never),
      stored,
    )
    return lines.length
  }
  assert.equal(await warnings('Asia/Tokyo', false), 0)
  assert.equal(await warnings('Asia/Tokyo', true), 1)
  assert.equal(await warnings('Europe/Berlin', true, 'europe/berlin'), 0)
})

/**
 * A setting is checked before anything is opened, and `main.ts` prints the problem: one process for each
 * setting would find nothing more than those of `refused`.
 */
function refusedSetting(argv: readonly string[], says: RegExp): void {
  const loaded = loadConfig(argv, {}, HOST, parseAddress)
  assert.ok(!loaded.ok, argv.join(' '))
  assert.match(`belfry: ${loaded.problem}\n`, ONE_SENTENCE)
  assert.match(loaded.problem, says)
}

function address(t: TestContext): readonly string[] {
  return ['--http', '127.0.0.1:0', '--data', join(temporaryDirectory(t), 'data')]
}

/** Invalid value of every flag, and a part of its error. */
const BAD_VALUES: readonly (readonly [flag: string, value: string, says: RegExp])[] = [
  ['--http', '8080', /host:port/],
  ['--http', '127.0.0.1:99999', /host:port/],
  ['--data', '', /--data must not be empty/],
  ['--store', 'mysql://db', /--store must be/],
  ['--name', 'no spaces please', /--name must be/],
  ['--tag', 'lonely', /--tag must be/],
  ['--tag', 'role=web', /--tag cannot set/],
  ['--token', '', /--token must not be empty/],
  ['--token', 'short', /at least 16 characters/],
  ['--token-file', '/nowhere/token', /does not exist/],
  ['--tls-cert', '/nowhere/cert.pem', /--tls-key/],
  ['--tls-key', '/nowhere/key.pem', /--tls-cert/],
  ['--allow-host', 'a host', /--allow-host must be/],
  ['--timezone', 'Mars/Olympus', /--timezone must be/],
  ['--slots', '0', /--slots must be/],
  ['--slots', '1.5', /--slots must be/],
  ['--grace', 'soon', /--grace must be/],
  ['--late-after', '-1s', /--late-after/],
  ['--late-after', '10ms', /at least 1s/],
  ['--target-wait', 'never', /--target-wait must be/],
  ['--default-target', 'some', /--default-target must be/],
  ['--keep-launches', 'all', /--keep-launches must be/],
  ['--keep-days', '0', /--keep-days must be/],
  ['--keep-output-bytes', 'much', /--keep-output-bytes must be/],
  ['--keep-left', '59s', /--keep-left and --keep-failed must be at least 1m/],
  ['--keep-failed', 'ever', /--keep-failed must be a duration/],
  ['--syslog', 'http://log', /--syslog must be/],
  ['--net-allow', 'everything', /--net-allow must be/],
  ['--net-deny', '10.0.0.0/99', /--net-deny must be/],
  ['--su-allow', 'a b', /--su-allow must be/],
  ['--log-level', 'loud', /--log-level must be/],
  ['--config', '/nowhere/belfry.yaml', /does not exist/],
  ['--nonsense', 'x', /[Uu]nknown option/],
]

describe('a start', {concurrency: 2}, () => {
  test('prints one line with the URL on standard output; logs go to standard error as JSON', async (t) => {
    const server = await aServer(t, {env: {BELFRY_LOGLEVEL: 'debug'}})
    assert.match(
      server.program.stdout(),
      /^belfry \d+\.\d+\.\d+(-dev(\+[0-9a-f]+)?)? is ready on http:\/\/127\.0\.0\.1:\d+\n$/,
    )
    assert.equal((await server.get('/')).json.agent.server, 'true')
    assert.equal((await server.ask('GET', '//livez')).status, 200)
    await until('ready', async () => (await server.ask('GET', '//readyz')).status === 200)
    assert.deepEqual(await server.stop(), {code: 0, signal: null})
    assert.match(server.program.stdout(), /^[^\n]+\n$/, 'nothing more, also when it ends')
    const logged = server.program
      .stderr()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line))
    assert.ok(
      logged.some(({level, msg}) => level === 'warn' && /BELFRY_LOGLEVEL/.test(msg)),
      'an unknown setting is named',
    )
    assert.equal(logged.at(-1).msg, 'stopped')
  })

  test('with an invalid store address is a usage error: nothing is opened', async (t) => {
    const data = join(temporaryDirectory(t), 'data')
    const store = 'postgres://me:secret@127.0.0.1:1/belfry?sslmode=foo'
    const {code, stderr} = await refusedStart(t, ['--data', data, '--store', store])
    assert.equal(code, 2)
    assert.match(stderr, /^belfry: --store has an sslmode that is not known; [^\n]+\.\n$/)
    assert.equal(existsSync(data), false)
  })

  test("does not pass the server's environment to jobs", async (t) => {
    const server = await aServer(t, {
      env: {SECRET: 'hunter2', BELFRY_TOKEN: TOKEN, NODE_OPTIONS: '--max-old-space-size=512'},
    })
    const headers = {'x-service-token': TOKEN}
    const job = {
      name: 'env',
      schedule: '@manually',
      executor: 'shell',
      executor_config: {command: 'env'},
    }
    assert.equal((await server.ask('POST', '/jobs', job)).status, 401)
    assert.equal((await server.ask('POST', '/jobs', job, headers)).status, 201)
    assert.equal((await server.ask('POST', '/jobs/env/run', undefined, headers)).status, 202)
    const output = await until('the run', async () => {
      const {json} = await server.ask('GET', '/jobs/env/executions', undefined, headers)
      return json[0]?.status === 'succeeded' ? String(json[0].output) : undefined
    })
    const names = output
      .trimEnd()
      .split('\n')
      .map((line) => line.slice(0, line.indexOf('=')))
    const inherited = /^(PATH|HOME|USER|LANG|LC_\w+|TZ|TMPDIR|SHELL)$/
    const given = /^(ENV_JOB_NAME|BELFRY_(JOB|EXECUTION|SCHEDULED_AT|ATTEMPT|NODE|NODE_ID))$/
    assert.deepEqual(
      names.filter((name) => !inherited.test(name) && !given.test(name)),
      [],
    )
    assert.doesNotMatch(output, /hunter2|a-token/)
    assert.doesNotMatch(server.program.stderr(), /a-token/)
  })

  test('works with a closed standard output', async (t) => {
    const program = runProgram(t, ['server', ...address(t)])
    program.closeStdout()
    await until('it leads', () => program.stderr().includes('"this server leads now"'))
    program.signal('SIGTERM')
    assert.deepEqual(await program.exit, {code: 0, signal: null}, program.stderr())
  })

  test('is refused if the port is in use', async (t) => {
    const other = createServer()
    await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve))
    t.after(() => other.close())
    const {port} = other.address() as AddressInfo
    const data = join(temporaryDirectory(t), 'data')
    const argv = ['--http', `127.0.0.1:${port}`, '--data', data]
    await refused(t, argv, new RegExp(`cannot listen on \\S+:${port}: the port is in use`))
    // A refused start keeps no lock: the next start uses the same directory.
    await aServer(t, {data})
  })

  test('is refused if another server uses the data directory', async (t) => {
    const server = await aServer(t)
    const argv = ['--http', '127.0.0.1:0', '--data', server.data]
    await refused(t, argv, /held by another Belfry process/)
    assert.equal((await server.get('/jobs')).status, 200, 'the first server is unaffected')
    assert.equal(markedProcesses(server.data).length, 0)
  })

  test('is refused if the data directory is a file, is inside one, or cannot be created', async (t) => {
    const file = join(temporaryDirectory(t), 'file')
    writeFileSync(file, '')
    await refused(t, ['--http', '127.0.0.1:0', '--data', file], /is not a directory/)
    const below = join(file, 'below')
    await refused(t, ['--http', '127.0.0.1:0', '--data', below], /not a directory/)
    // Even root cannot create files there.
    await refused(t, ['--http', '127.0.0.1:0', '--data', '/proc/belfry/data'], /cannot be created/)
  })

  test('is refused if --executor-allow names no executor', async (t) => {
    const data = join(temporaryDirectory(t), 'data')
    const argv = ['--http', '127.0.0.1:0', '--data', data, '--executor-allow', 'shel']
    await refused(t, argv, /--executor-allow must be one of http, shell, not "shel"/)
  })

  test('is refused if the database file is no database', async (t) => {
    const data = temporaryDirectory(t)
    writeFileSync(
      join(data, 'belfry.sqlite'),
      'this is no database, whatever its name says'.repeat(100),
    )
    await refused(t, ['--http', '127.0.0.1:0', '--data', data], /belfry\.sqlite|database/)
    const other = temporaryDirectory(t)
    mkdirSync(join(other, 'belfry.sqlite'))
    await refused(t, ['--http', '127.0.0.1:0', '--data', other], /database|belfry/)
  })

  for (const [flag, value, says] of BAD_VALUES)
    test(`refuses ${flag} ${value}`, () => {
      refusedSetting(['--http', '127.0.0.1:0', '--data', '/data', flag, value], says)
    })

  test('is refused if the store cannot be reached', async (t) => {
    const store = 'postgres://127.0.0.1:1/belfry'
    await refused(t, [...address(t), '--store', store], /cannot be opened/)
  })

  test('refuses other invalid arguments', async (t) => {
    refusedSetting([...address(t), 'and-more'], /too many arguments|[Uu]nexpected/i)
    await refused(t, [...address(t), '--nonsense', 'x'], /[Uu]nknown option/)
    refusedSetting([...address(t), '--slots'], /argument missing/)
    await refused(t, address(t), /BELFRY_SLOTS must be/, {BELFRY_SLOTS: 'many'})
    const file = join(temporaryDirectory(t), 'belfry.yaml')
    for (const [text, says] of [
      ['slots: many\n', /slots in .* must be/],
      ['slotz: 3\n', /unknown setting "slotz".*"slots"/],
      ['a: [1\n', /must be YAML/],
      ['- slots\n', /must contain settings/],
    ] as const) {
      writeFileSync(file, text)
      refusedSetting(['--config', file], says)
    }
    await refused(t, [...address(t), '--config', file], /must contain settings/)
  })

  test('serves other machines only with a token, and without TLS only with --insecure', async (t) => {
    const data = ['--data', join(temporaryDirectory(t), 'data')]
    const everywhere = ['--http', '0.0.0.0:0', ...data]
    await refused(t, everywhere, /token/)
    refusedSetting([...everywhere, '--insecure'], /token/)
    refusedSetting([...everywhere, '--token', TOKEN], /--tls-cert|--insecure/)
    refusedSetting(['--http', '[::]:0', ...data], /token/)
  })
})

/** Files and folders below a directory that other users may read or write. */
function openFiles(directory: string): string[] {
  return readdirSync(directory, {recursive: true, withFileTypes: true})
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => ((statSync(path, {throwIfNoEntry: false})?.mode ?? 0) & 0o077) !== 0)
}

test('files are readable by their owner only, even in a data directory open to others', async (t) => {
  const data = join(temporaryDirectory(t), 'data')
  const far = join(temporaryDirectory(t), 'data')
  for (const each of [data, far]) mkdirSync(each, {mode: 0o755})
  const previous = await aServer(t, {data})
  const agent = await anAgent(t, [previous.url], {data: far, flags: ['--tag', 'place=far']})
  const command = 'sleep 60'
  const job = {schedule: '@manually', executor: 'shell', processors: {files: {}}}
  for (const [name, tags] of [
    ['near', {}],
    ['far', {place: 'far'}],
  ] as const) {
    await previous.store({name, tags, executor_config: {command: 'echo secret'}, ...job})
    await previous.store({name: `${name}-open`, tags, executor_config: {command}, ...job})
    await previous.run(name)
    await previous.run(`${name}-open`)
    await previous.execution(name, isOver)
    await previous.execution(`${name}-open`, ({status}) => status === 'running')
  }
  for (const each of [data, far]) assert.deepEqual(openFiles(each), [])
  await previous.crash()
  agent.program.signal('SIGKILL')
  await agent.program.gone
  for (const each of [data, far]) assert.deepEqual(openFiles(each), [])
  // State as an earlier release left it.
  writeFileSync(join(data, 'belfry.sqlite-wal'), '', {flag: 'a'})
  for (const name of ['belfry.sqlite', 'belfry.sqlite-wal', 'belfry.lock'])
    chmodSync(join(data, name), 0o644)
  chmodSync(data, 0o777)
  const next = await aServer(t, {data})
  assert.match(next.program.stderr(), /Other users of this machine can replace files/)
  assert.equal((await next.get('/backup')).status, 200)
  assert.deepEqual(openFiles(data), [])
})
