/** The client commands against a server with canned replies: their requests, their output, their failures. */
import assert from 'node:assert/strict'
import {mkdtemp, readdir, readFile, rm, stat, writeFile} from 'node:fs/promises'
import type {ServerResponse} from 'node:http'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {Readable} from 'node:stream'
import {afterEach, beforeEach, test} from 'node:test'
import {Command} from 'commander'
import {cannedServer, json, type Asked, type CannedServer} from './canned-server.ts'
import {runHere, type Ran} from './run-cli.ts'

const JOB = {
  id: 'backup',
  name: 'backup',
  displayname: 'Nightly \u001b[31mbackup',
  timezone: 'Europe/Berlin',
  schedule: '0 0 3 * * *',
  owner: 'ops',
  owner_email: '',
  success_count: 7,
  error_count: 1,
  last_success: '2026-03-01T02:00:04.000Z',
  last_error: null,
  disabled: false,
  tags: {},
  metadata: {team: 'db'},
  retries: 2,
  dependent_jobs: ['report'],
  parent_job: '',
  processors: {},
  concurrency: 'forbid',
  executor: 'shell',
  executor_config: {command: 'pg_dump'},
  status: 'success',
  next: '2026-03-02T02:00:00.000Z',
  ephemeral: false,
  starts_at: null,
  expires_at: null,
  catch_up: 'latest',
  max_lateness: '24h',
  on_disconnect: '',
}
const DRY_RUN = {errors: [], warnings: [], timezone: null, next: [], nodes: [], nodes_total: 0}
const EXECUTION = {
  id: '12-tower-1',
  job_name: 'backup',
  started_at: '2026-03-01T11:59:00.000Z',
  finished_at: '0001-01-01T00:00:00Z',
  success: false,
  output: 'so far\u001b[2J',
  node_name: 'tower',
  group: 12,
  attempt: 1,
  status: 'running',
  output_truncated: false,
  output_size: 10,
  output_omitted: 0,
  late_result: '',
}

type Answer = (asked: Asked, response: ServerResponse) => void

let server: CannedServer
let answer: Answer
let directory: string
beforeEach(async () => {
  answer = (_asked, response) => json(response, 404, {})
  server = await cannedServer((asked, response) => answer(asked, response))
  directory = await mkdtemp(join(tmpdir(), 'belfry-cli-'))
})
afterEach(async () => {
  await server.close()
  await rm(directory, {recursive: true, force: true})
})

function run(
  argv: readonly string[],
  more: {env?: Record<string, string>; input?: string; colours?: boolean} = {},
): Promise<Ran> {
  return runHere(argv, {
    terminal: {input: () => Readable.from([more.input ?? '']), colours: more.colours ?? false},
    env: {BELFRY_SERVER: server.url, ...more.env},
    serverCommand: new Command('server').description('Start a server.'),
    restoreBackup: async (backup, dataDirectory) =>
      backup === 'good'
        ? {ok: true}
        : {ok: false, problem: `There is no backup ${backup} for ${dataDirectory}.`},
    migrateStore: async ({from, to}) => {
      return {ok: false, problem: `${from} is not ${to}.`, isUsage: to === 'usage'}
    },
  })
}

function answers(value: unknown, headers: Record<string, string> = {}): void {
  answer = (_asked, response) => json(response, 200, value, headers)
}

const lines = () => server.asked.map((asked) => asked.line)

test('jobs list prints a table, or the JSON of the API with --json', async () => {
  answers([JOB, {...JOB, name: 'child', parent_job: 'backup', schedule: '', disabled: true}], {
    'x-total-count': '9',
  })
  const ran = await run(['jobs', 'list', '-q', 'a b', '--status', 'failed', '--limit', '2'])
  assert.deepEqual(ran, {
    code: 0,
    out:
      'NAME    SCHEDULE      NEXT      STATUS   OK  ERRORS  LAST OK    LAST ERROR\n' +
      'backup  0 0 3 * * *   in 14h    success  7   1       9h59m ago  -\n' +
      'child   after backup  disabled  success  7   1       9h59m ago  -\n',
    err: '2 of 9 jobs\n',
  })
  assert.deepEqual(lines(), ['GET /v1/jobs?q=a+b&status=failed&_end=2'])
  const forMachines = await run(['--json', 'jobs', 'list'])
  assert.equal((JSON.parse(forMachines.out) as unknown[]).length, 2)
  assert.deepEqual(
    await run(['jobs', 'list', '--json']),
    forMachines,
    '--json works in any position',
  )
})

test('jobs show omits unset fields', async () => {
  answers(JOB)
  const {out} = await run(['jobs', 'show', 'backup'])
  assert.match(out, /^display name {2}Nightly backup$/m)
  assert.match(out, /^next {10}2026-03-02 03:00:00 \+01:00 Europe\/Berlin \(in 14h\)$/m)
  assert.match(out, /^succeeded {5}7, last 2026-03-01 02:00:04Z \(9h59m ago\)$/m)
  assert.match((await run(['--utc', 'jobs', 'show', 'backup'])).out, /02:00:00Z \(in 14h\)$/m)
  assert.match(out, /^metadata {6}team=db$/m)
  assert.match(out, /^executor {6}shell\n {2}command {5}pg_dump$/m)
  assert.doesNotMatch(out, /^tags/m)
})

test('jobs apply stores parents first and prints warnings of the server', async () => {
  const file = join(directory, 'jobs.json')
  await writeFile(file, JSON.stringify([{name: 'b', parent_job: 'a'}, {name: 'a'}]))
  answer = ({line, body}, response) =>
    line.includes('dry_run')
      ? json(response, 200, DRY_RUN)
      : json(
          response,
          201,
          {...JOB, ...(JSON.parse(body) as object)},
          {'x-warnings': 'no command: the run f%C3%A4llt', 'x-ignored-fields': 'c%20d'},
        )
  const ran = await run(['jobs', 'apply', '-f', file, '--run', '--lenient'])
  assert.equal(ran.out, 'applied a\napplied b\n')
  assert.equal(
    ran.err,
    ['a', 'b']
      .map(
        (job) =>
          `warning: ${job}: no command: the run fällt\nwarning: ${job}: ignored fields: c d\n`,
      )
      .join(''),
  )
  assert.deepEqual(lines().slice(0, 3), Array(3).fill('POST /v1/jobs?dry_run=true'))
  assert.deepEqual(lines().slice(3), Array(2).fill('POST /v1/jobs?runoncreate=true'))
  assert.equal(server.asked[0]!.headers['content-type'], 'application/json')
})

test('jobs apply that fails halfway says what is stored', async () => {
  const file = join(directory, 'jobs.json')
  await writeFile(file, JSON.stringify([{name: 'a'}, {name: 'b'}, {name: 'c'}]))
  answer = ({line, body}, response) => {
    const job = JSON.parse(body) as {name: string}
    if (line.includes('dry_run')) return json(response, 200, DRY_RUN)
    if (job.name !== 'b') return json(response, 201, {...JOB, ...job}, {'x-action': 'create'})
    json(response, 503, {code: 'submissions_paused', detail: 'Submissions are paused.'})
  }
  const ran = await run(['jobs', 'apply', file])
  assert.deepEqual([ran.code, ran.out], [1, 'created a\n'])
  const advice = '1 of 3 jobs were stored; repeat the command for the rest.'
  const hint = 'To end the pause, run "belfry unpause".'
  assert.equal(ran.err, `belfry: b: Submissions are paused. ${hint} ${advice}\n`)
})

test('jobs check never sends a job to a server that would store it', async () => {
  answer = ({body}, response) => {
    const job = JSON.parse(body) as {schedule?: string}
    if (job.schedule !== undefined) return json(response, 201, JOB)
    response.writeHead(400, {'content-type': 'text/plain'})
    response.end('schedule: is required\n')
  }
  const ran = await run(['jobs', 'check', '-'], {input: '{"name":"x","schedule":"@daily"}'})
  assert.match(ran.err, /^belfry: This server is of an earlier release, and cannot check jobs/)
  assert.equal(lines().length, 1)
})

test('jobs run, toggle and delete send the right request and print the result', async () => {
  answer = ({line}, response) =>
    json(response, 200, {...JOB, disabled: line.endsWith('/toggle')}, {'x-launch-id': '12'})
  assert.equal(
    (await run(['jobs', 'run', 'backup', '--force'])).out,
    'backup will run as launch 12\n',
  )
  assert.equal((await run(['jobs', 'toggle', 'backup'])).out, 'backup is disabled\n')
  assert.equal((await run(['jobs', 'delete', 'größe'])).out, 'deleted backup\n')
  assert.deepEqual(lines(), [
    'POST /v1/jobs/backup/run?force=true',
    'POST /v1/jobs/backup/toggle',
    'DELETE /v1/jobs/gr%C3%B6%C3%9Fe',
  ])
})

test('planned times are printed one per line', async () => {
  answers({schedule: '@hourly', timezone: 'UTC', next: ['2026-03-01T13:00:00.000Z']})
  assert.equal(
    (await run(['jobs', 'next', 'backup', '--count', '1'])).out,
    'Sun 2026-03-01 13:00:00Z  in 1h\n',
  )
  await run(['schedule', 'preview', '0 ~ * * * *', '--name', 'a', '--to', '2026-04-01 12:00'])
  answers({schedule: '@manually', timezone: 'UTC', next: []})
  assert.equal((await run(['jobs', 'next', 'backup'])).out, 'Nothing is planned.\n')
  assert.deepEqual(lines().slice(0, 2), [
    'GET /v1/jobs/backup/next?count=1',
    'GET /v1/schedules/preview?schedule=0+%7E+*+*+*+*&name=a&to=2026-04-01T12%3A00',
  ])
})

test('jobs launches shows why a planned time did not run', async () => {
  const row = {
    group: 3,
    job_name: 'backup',
    scheduled_at: 'S',
    scheduled_until: 'S',
    count: 4,
    decided_at: null,
    cause: 'schedule',
    decision: 'missed',
    reason: 'max_lateness',
    term: 1,
    executions: [],
  }
  answers([row, {...row, decision: 'launched', reason: '', executions: [EXECUTION]}])
  const {out} = await run(['jobs', 'launches', 'backup'])
  assert.match(out, /^3 +S +schedule +missed +4 +That was later than the job allows\.$/m)
  assert.match(out, /^3 +S +schedule +launched +4 +12-tower-1 running$/m)
})

test('runs list and busy are tables and do not request output', async () => {
  answers([EXECUTION])
  assert.match(
    (await run(['runs', 'list', 'backup'])).out,
    /^12-tower-1 {2}running {2}1m ago {3}- {5}tower {2}1$/m,
  )
  assert.match(
    (await run(['busy'])).out,
    /^backup {2}12-tower-1 {2}running {2}1m ago {3}tower {2}1$/m,
  )
  assert.deepEqual(lines(), [
    'GET /v1/jobs/backup/executions?output_size_limit=0&_end=20',
    'GET /v1/busy?output_size_limit=0',
  ])
})

test('a late result is shown only if there is one', async () => {
  const LOST = {...EXECUTION, status: 'lost', late_result: 'succeeded, exit status 0'}
  answers([LOST, EXECUTION])
  assert.match(
    (await run(['runs', 'list', 'backup'])).out,
    /ATTEMPT {2}LATE RESULT *\n12-tower-1 .* 1 {8}succeeded, exit status 0\n12-tower-1 .* 1 *\n$/,
  )
  answers([EXECUTION])
  assert.doesNotMatch((await run(['runs', 'list', 'backup'])).out, /LATE/)
  answers(LOST)
  assert.match(
    (await run(['runs', 'show', 'backup', '12-tower-1'])).out,
    /^late result {2}succeeded, exit status 0$/m,
  )
  answers(EXECUTION)
  assert.doesNotMatch((await run(['runs', 'show', 'backup', '12-tower-1'])).out, /late/)
})

test('output is printed without control sequences, except with --raw', async () => {
  answers(EXECUTION)
  assert.match((await run(['runs', 'show', 'backup', '12-tower-1'])).out, /\n\nso far\n$/)
  answer = (_asked, response) => void response.end('a\u001b[31mb\n')
  assert.equal((await run(['runs', 'output', 'backup', '1'])).out, 'ab\n')
  assert.equal((await run(['runs', 'output', 'backup', '1', '--raw'])).out, 'a\u001b[31mb\n')
  assert.equal(server.asked.at(-1)!.headers['accept'], 'text/plain')
})

const event = (name: string, data: unknown, id = '') =>
  `${id === '' ? '' : `id: ${id}\n`}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`

test('--follow resumes a lost connection at its position and prints the final status', async () => {
  let calls = 0
  answer = ({headers}, response) => {
    calls += 1
    response.writeHead(200, {'content-type': 'text/event-stream'})
    if (calls === 1) {
      response.write(`: \n\n${event('output', {offset: 0, text: 'one\u001b['}, '4')}`, () =>
        response.destroy(),
      )
      return
    }
    if (calls === 2) return void response.destroy()
    assert.equal(headers['last-event-id'], '4')
    const end = {id: '12-tower-1', status: 'failed', head: 'exit status 3\n', foot: 'timed out\n'}
    response.end(`${event('output', {offset: 4, text: '2Jtwo\n'}, '9')}: \n\n${event('end', end)}`)
  }
  const ran = await run(['runs', 'output', 'backup', '12-tower-1', '--follow'])
  assert.deepEqual(ran, {
    code: 1,
    out: 'onetwo\ntimed out\n',
    err: 'exit status 3\n12-tower-1 failed\n',
  })
})

test('--follow reports an unknown or deleted execution without retries', async () => {
  const unknown = {detail: 'There is no such execution.'}
  answer = (_asked, response) => json(response, 404, unknown)
  const ran = await run(['runs', 'output', 'backup', 'x', '-f'])
  assert.deepEqual(ran, {code: 1, out: '', err: 'belfry: There is no such execution.\n'})
  answer = ({headers}, response) =>
    headers['last-event-id'] === undefined
      ? void response.end(event('output', {offset: 0, text: 'a'}, '1'))
      : json(response, 404, unknown)
  assert.equal(
    (await run(['runs', 'output', 'backup', 'x', '-f'])).err,
    'belfry: There is no such execution.\n',
  )
  assert.equal(server.asked.length, 3)
})

test('--follow gives up after too many lost connections', async () => {
  answer = ({headers}, response) =>
    headers['last-event-id'] === undefined
      ? void response.end(event('output', {offset: 0, text: 'a'}, '1'))
      : void response.destroy()
  const ran = await run(['runs', 'output', 'backup', 'x', '-f'])
  assert.deepEqual([ran.code, ran.out], [1, 'a'])
  assert.match(ran.err, /lost too often/)
})

test('cancel prints whether the execution is cancelled or being cancelled', async () => {
  answers({...EXECUTION, status: 'cancelled'})
  assert.equal(
    (await run(['runs', 'cancel', 'backup', '12-tower-1'])).out,
    '12-tower-1 is cancelled\n',
  )
  answers(EXECUTION)
  assert.equal(
    (await run(['runs', 'cancel', 'backup', '12-tower-1'])).out,
    '12-tower-1 is being cancelled\n',
  )
  assert.equal(lines()[0], 'POST /v1/jobs/backup/executions/12-tower-1/cancel')
})

test('status, members and pause print the reply', async () => {
  answers({agent: {name: 'tower'}, gossip: {alive: '1'}, serf: {}, tags: {a: 'b'}})
  assert.equal(
    (await run(['status'])).out,
    'agent\n  name  tower\ngossip\n  alive  1\ntags\n  a  b\n',
  )
  answers({paused: true})
  assert.match((await run(['pause'])).out, /^submissions are paused: .*\nJobs still run as planned/)
  answers({paused: false})
  assert.equal((await run(['unpause'])).out, 'submissions are not paused\n')
  answers({resumed: true})
  assert.match((await run(['resume'])).out, /^firing is resumed/)
  answers([
    {
      Name: 'tower',
      Addr: '::1',
      Port: 1,
      Tags: {rpc_addr: '[::1]:1', version: '9'},
      statusText: 'alive',
    },
  ])
  const {out} = await run(['members'])
  assert.match(out, /^tower {2}alive {3}agent {2}- {8}- {8}9 {8}\[::1\]:1$/m)
  assert.deepEqual(lines(), [
    'GET /v1/',
    'POST /v1/pause',
    'POST /v1/unpause',
    'POST /v1/resume',
    'GET /v1/members',
  ])
})

test('a member with any name can be removed', async () => {
  answers({Name: 'a b', Status: 4, statusText: 'failed', Tags: {}})
  const {out} = await run(['members', 'remove', 'a b'])
  assert.equal(out, 'removed a b (status was failed)\n')
  assert.equal(lines()[0], 'DELETE /v1/members/a%20b')
  assert.equal((await run(['members', 'remove'])).code, 2)
})

test('restore uploads the file and prints one line per job', async () => {
  const file = join(directory, 'all.json')
  await writeFile(file, '[{"name":"a"}]')
  answer = (_asked, response) =>
    json(response, 200, ['success create a'], {'x-warnings': 'a: executor: "kafka" is on no node'})
  const restored = await run(['restore', file, '--disabled'])
  assert.equal(restored.out, 'created a\n')
  assert.equal(restored.err, 'warning: a: executor: "kafka" is on no node\n')
  const warned = (await run(['--json', 'restore', file])).err
  assert.deepEqual(JSON.parse(warned), {warning: 'a: executor: "kafka" is on no node'})
  const [asked] = server.asked
  assert.equal(asked!.line, 'POST /v1/restore?disabled=true&strict=true')
  assert.match(asked!.body, /name="file"; filename="jobs\.json"[^]*\[\{"name":"a"\}\]/)
  assert.match(
    (await run(['restore', join(directory, 'absent')])).err,
    /absent cannot be read: it does not exist\./,
  )
})

test('restore names all jobs that are wrong', async () => {
  const file = join(directory, 'all.json')
  await writeFile(file, '[]')
  const errors = ['a', 'b\u001b[2J'].map((name) => ({name, problem: 'schedule: is wrong'}))
  answer = (_asked, response) => json(response, 400, {detail: '2 jobs cannot be restored.', errors})
  assert.deepEqual(await run(['restore', file]), {
    code: 1,
    out: '',
    err: 'belfry: 2 jobs cannot be restored.\n  a: schedule: is wrong\n  b: schedule: is wrong\n',
  })
})

test('a backup is complete and private, and never overwrites a file', async () => {
  answer = (_asked, response) => void response.end('image')
  const file = join(directory, 'b.sqlite')
  assert.match((await run(['backup', file])).out, /^saved .*b\.sqlite \(5 B\)\n$/)
  assert.equal(await readFile(file, 'utf8'), 'image')
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  const again = await run(['backup', file])
  assert.equal(again.code, 1)
  assert.match(again.err, /b\.sqlite already exists\.\n$/)
  assert.equal((await run(['backup', '-'])).out, 'image')
  assert.deepEqual(await readdir(directory), ['b.sqlite'])
})

test('an interrupted backup leaves no file', async () => {
  answer = (_asked, response) => {
    response.writeHead(200, {'content-length': '100'})
    response.write('half an image', () => response.destroy())
  }
  const ran = await run(['backup', join(directory, 'b.sqlite')])
  assert.equal(ran.code, 1)
  assert.match(ran.err, /^belfry: The backup cannot be saved/)
  assert.deepEqual(await readdir(directory), [])
})

test('restore-store needs no server', async () => {
  const ran = await run(['restore-store', 'good', '--data', 'd'], {
    env: {BELFRY_SERVER: 'nonsense'},
  })
  assert.match(`${ran.code} ${ran.out}`, /^0 restored to d; [^]* paused [^]* --secret-key-file/)
  const refused = await run(['restore-store', 'bad', '--data', 'd'])
  assert.deepEqual(refused, {code: 1, out: '', err: 'belfry: There is no backup bad for d.\n'})
})

test('the token comes from flag, file or environment, and is sent as a header', async () => {
  answers([])
  const file = join(directory, 'token')
  await writeFile(file, 'from-file\n')
  const shown = async (argv: readonly string[], env: Record<string, string> = {}) => {
    await run([...argv, 'busy'], {env})
    return server.asked.at(-1)!.headers['x-service-token']
  }
  const env = {BELFRY_TOKEN: 'from-env', BELFRY_TOKEN_FILE: file}
  assert.equal(await shown(['--token', 'from-flag'], env), 'from-flag')
  assert.equal(await shown(['--token-file', file], env), 'from-file')
  assert.equal(await shown([], env), 'from-env')
  assert.equal(await shown([], {BELFRY_TOKEN_FILE: file, BELFRY_TOKEN: ''}), 'from-file')
  assert.equal(await shown([]), undefined)
})

test('the server URL may have a path, a trailing slash or the version prefix', async () => {
  answers([])
  for (const suffix of ['', '/', '/v1', '/v1/', '/under/proxy/']) {
    const ran = await run(['--server', `${server.url}${suffix}`, 'busy'])
    assert.equal(ran.code, 0)
  }
  assert.deepEqual(new Set(lines().slice(0, 4)), new Set(['GET /v1/busy?output_size_limit=0']))
  assert.equal(lines().at(-1), 'GET /under/proxy/v1/busy?output_size_limit=0')
})

/** Error responses of the server and the printed message. */
const REFUSALS: readonly (readonly [status: number, body: string, sentence: string])[] = [
  [404, '{"detail":"There is no job named \\"x\\"."}', 'There is no job named "x".'],
  [400, 'Job validation failed: name: is required\n', 'Job validation failed: name: is required'],
  [
    401,
    '{"detail":"A token is required."}',
    'A token is needed. Set one with --token-file, --token or BELFRY_TOKEN.',
  ],
  [500, '', 'The server responded with 500.'],
  [502, '{"other":1}', 'The server responded with 502.'],
  [503, 'a\u001b[31m\nb', 'a b'],
]

for (const [code, body, sentence] of REFUSALS)
  test(`a response ${code} ${JSON.stringify(body)} is printed as one message`, async () => {
    answer = (_asked, response) => {
      response.writeHead(code)
      response.end(body)
    }
    assert.deepEqual(await run(['busy']), {code: 1, out: '', err: `belfry: ${sentence}\n`})
  })

test('an unreachable server, a foreign server and an invalid URL are explained', async () => {
  answer = (_asked, response) => void response.end('<html>')
  assert.match(
    (await run(['busy'])).err,
    /^belfry: The response of http:\/\/\S+ is not JSON\. Check that it is a Belfry server\.\n$/,
  )
  for (const server of ['ftp://x', 'a b', 'http://u:p@x']) {
    const wrong = await run(['--server', server, 'status'])
    assert.deepEqual([wrong.code, wrong.out], [2, ''])
    assert.match(wrong.err, /^belfry: --server must be a URL such as/)
  }
  const gone = await cannedServer(() => {})
  await gone.close()
  const ran = await run(['--server', gone.url, 'busy'])
  assert.equal(ran.code, 1)
  assert.match(
    ran.err,
    /^belfry: Cannot connect to a server at http:\S+ \(ECONNREFUSED\)\. Start one with "belfry server"/,
  )
})

test('a redirect is not followed, so it cannot receive the token', async () => {
  answer = (_asked, response) => {
    response.writeHead(302, {location: 'http://elsewhere.invalid/'})
    response.end()
  }
  assert.equal((await run(['busy', '--token', 'secret'])).code, 1)
  assert.equal(server.asked.length, 1)
})

test('help and version go to standard output, usage errors to standard error with code 2', async () => {
  assert.deepEqual(await run(['version']), {code: 0, out: '1.2.3\n', err: ''})
  assert.deepEqual(await run(['--version']), {code: 0, out: '1.2.3\n', err: ''})
  const help = await run(['--help'])
  assert.equal(help.code, 0)
  assert.match(help.out, /^ {2}server .*Start a server\.$/m)
  const bare = await run([])
  assert.deepEqual([bare.code, bare.out], [2, ''])
  for (const [argv, says] of [
    [['bogus'], /^belfry: Unknown command 'bogus'\. See belfry --help\.\n$/],
    [['agent'], /^belfry: Unknown command 'agent'/],
    [
      ['--token', 'x', 'server'],
      /^belfry: Options of server must follow its name, as in belfry server --data DIR\. See/,
    ],
    [['jobs', 'bogus'], /^belfry: Unknown command 'bogus'\. See belfry jobs --help\.\n$/],
    [['busy', '--bogus'], /^belfry: Unknown option '--bogus'/],
    [['jobs', 'show'], /^belfry: Missing required argument 'name'/],
    [
      ['jobs', 'show', 'a', 'b'],
      /^belfry: Too many arguments for 'show'.* a, b\. See belfry jobs show --help\.\n$/,
    ],
    [['members', 'remove'], /\. See belfry members remove --help\.\n$/],
    [['members', 'remove', 'a', '--now'], /\. See belfry members remove --help\.\n$/],
    [['migrate', '--from', 'a'], /\. See belfry migrate --help\.\n$/],
    [['migrate', '--from', 'a', '--to', 'usage'], /^belfry: a is not usage\.\n$/],
    [['jobs', 'apply'], /^belfry: Name a JSON file, as in belfry jobs apply jobs\.json/],
  ] as const) {
    const ran = await run(argv)
    assert.deepEqual([ran.code, ran.out], [2, ''], argv.join(' '))
    assert.match(ran.err, says)
  }
})
