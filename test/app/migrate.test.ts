/** Migration of a real server's store to PostgreSQL by the real command, with a running agent. */
import assert from 'node:assert/strict'
import {existsSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {after, before, describe, test} from 'node:test'
import {anAgent} from '../agents/agent-process.ts'
import {aLargeStore} from '../support/large-store.ts'
import {freshSchema, openAt} from '../support/postgres-cluster.ts'
import {TestPostgres} from '../support/postgres.ts'
import {
  aServer,
  isOver,
  refusedStart,
  runProgram,
  temporaryDirectory,
  type Answer,
  type Owner,
  type Program,
  type ServerProcess,
} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'
import {revisionIn} from '../support/etag.ts'

const SECOND_MS = 1_000
const MIGRATED_WITHIN_MS = 60_000
/** Takes about a second to migrate: long enough to be killed in the middle. */
const LARGE = 20_000

const shell = (command: string) => ({shell: 'true', command})
const byHand = {schedule: '@manually', executor: 'shell'}
const hold = (file: string) =>
  `echo started; while [ ! -e ${file} ]; do sleep 0.05; done; echo done`
const isRunning = ({status}: Answer['json']) => status === 'running'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

interface Ended {
  readonly code: number | null
  readonly out: string
  readonly err: string
}

function started(t: Owner, from: string, to: string, flags: readonly string[] = []): Program {
  return runProgram(t, ['migrate', '--from', from, '--to', to, ...flags])
}

async function migrated(
  t: Owner,
  ...how: readonly [from: string, to: string, flags?: readonly string[]]
): Promise<Ended> {
  const program = started(t, ...how)
  const {code} = await within(program.exit, 'the move ends', MIGRATED_WITHIN_MS)
  return {code, out: program.stdout(), err: program.stderr()}
}

/** Decision of every planned time; asserts no gap and no duplicate. */
function planned(rows: readonly Answer['json'][], name: string): Map<number, string> {
  const times = new Map<number, string>()
  let expected: number | null = null
  for (const row of rows.filter(({cause}) => cause === 'schedule')) {
    const to = Date.parse(row.scheduled_until)
    let at = Date.parse(row.scheduled_at)
    assert.equal(at, expected ?? at, `${name}: no gap and no double before ${row.scheduled_at}`)
    for (; at <= to; at += SECOND_MS) times.set(at, row.decision)
    expected = at
  }
  return times
}

/** Replies that must be equal before and after. */
async function replies(server: ServerProcess): Promise<Record<string, unknown>> {
  const paths = ['done', 'done/executions', 'done/launches', 'off', 'after'].map(
    (path) => `/jobs/${path}`,
  )
  const more = ['/acl/policies', '/pause', '/jobs/gone', '/jobs?metadata[team]=a']
  const found: Record<string, unknown> = {}
  for (const path of [...paths, ...more]) {
    const {status, headers, text} = await server.get(path)
    found[path] = [status, revisionIn(headers.get('etag')), path === '/jobs/after' ? status : text]
  }
  return {...found, cluster: (await server.get('/')).json.gossip.cluster}
}

async function store(server: ServerProcess, marks: string): Promise<void> {
  const marked = shell(`echo $BELFRY_EXECUTION >> ${marks}`)
  const ticking = {executor: 'shell', executor_config: marked}
  await server.store({name: 'all', schedule: '* * * * * *', catch_up: 'all', ...ticking})
  await server.store({name: 'latest', schedule: '@every 1s', catch_up: 'latest', ...ticking})
  await server.store({name: 'skip', schedule: '* * * * * *', catch_up: 'skip', ...ticking})
  await server.store({name: 'after', schedule: '', parent_job: 'all', ...ticking})
  const fails = shell('echo out; exit 3')
  await server.store({name: 'done', ...byHand, metadata: {team: 'a'}, executor_config: fails})
  await server.store({name: 'off', schedule: '@hourly', disabled: true, ...ticking})
  await server.store({name: 'gone', ...byHand, executor_config: fails})
  await server.run('gone')
  await server.execution('gone')
  await server.ask('DELETE', '/jobs/gone')
  await server.run('done')
  await server.execution('done')
  await server.post('/acl/policies/p', {Rules: '{"path":{}}'})
}

describe('a store of a killed server', () => {
  test('continues in PostgreSQL as after a plain restart', async (t) => {
    const directory = temporaryDirectory(t)
    const marks = join(directory, 'marks')
    const go = join(directory, 'go')
    writeFileSync(marks, '')
    const flags = [
      '--keep-executions',
      '10000',
      '--keep-launches',
      '10000',
      '--slots',
      '16',
      '--late-after',
      '1s',
    ]
    const server = await aServer(t, {flags})
    const agent = await anAgent(t, [server.url], {flags: ['--tag', 'place=far']})
    await store(server, marks)
    const far = {tags: {place: 'far'}, executor_config: shell(hold(go))}
    await server.store({name: 'far', ...byHand, ...far})
    const near = shell(`if [ $BELFRY_ATTEMPT = 1 ]; then ${hold(join(directory, 'never'))}; fi`)
    const onServer = {tags: {server: 'true'}, retries: 1, executor_config: near}
    await server.store({name: 'near', ...byHand, ...onServer})
    await server.run('far')
    await server.run('near')
    await server.execution('far', ({output}) => output.includes('started'))
    await server.execution('near', isRunning)
    await until(
      'the chain has gone round',
      async () => (await server.executions('after')).length > 2,
    )
    await server.post('/pause')
    const url = `${postgres.url()}?schema=moved`
    const held = await migrated(t, server.data, url)
    assert.equal(held.code, 1)
    assert.match(
      held.err,
      /^belfry: The store in \S+ cannot be migrated: a running Belfry server uses it\. Stop it first\.$/m,
    )
    const before = await replies(server)
    const histories = new Map<string, Answer['json'][]>()
    for (const name of ['all', 'latest', 'skip', 'after'])
      histories.set(name, await server.launches(name))
    await server.crash()
    const crashedAt = Date.now()

    const moved = await migrated(t, server.data, url)
    assert.equal(moved.code, 0, moved.err)
    assert.match(moved.out, /^moved +source +target\n/)
    const counts = [...moved.out.matchAll(/^(\S.*?) {2,}([\d,]+) {2,}([\d,]+)$/gm)]
    assert.ok(counts.length > 14)
    for (const [, what, from, to] of counts) assert.equal(from, to, what!)
    assert.match(moved.out, /\?schema=moved\. Start its servers with --store/)
    const old = await refusedStart(t, ['--http', '127.0.0.1:0', '--data', server.data])
    assert.equal(old.code, 1)
    const left = join(server.data, 'belfry.moved')
    const sentence = `belfry: The store in ${server.data} has moved to ${shown(url)}; start with --store`
    assert.ok(old.stderr.includes(sentence), old.stderr)
    assert.ok(old.stderr.includes(left), old.stderr)

    const passed = () => Date.now() > crashedAt + 3 * SECOND_MS
    await until('times were missed', passed)
    const down = {from: crashedAt, to: Date.now()}
    const {host} = new URL(server.url)
    const again = [...flags, '--http', host, '--store', url]
    const next = await aServer(t, {data: server.data, flags: again})
    assert.deepEqual(await replies(next), before)
    const near2 = await next.execution(
      'near',
      ({attempt, status}) => attempt === 2 && status === 'succeeded',
    )
    const [, near1] = await next.executions('near')
    assert.deepEqual([near1.status, near1.group], ['lost', near2.group])
    assert.match(near1.output, /the node went down while it ran, and has started again/)
    writeFileSync(go, '')
    const end = await next.execution('far', isOver)
    assert.deepEqual(
      [end.status, end.output, end.node_name],
      ['succeeded', 'started\ndone\n', 'agent-a'],
    )
    assert.equal(agent.program.isGone(), false)
    await assertGoesOn(next, histories, down)
    const lines = readFileSync(marks, 'utf8').trim().split('\n')
    assert.equal(new Set(lines).size, lines.length, 'no execution started twice')
  })
})

/** Asserts that the old launch records are unchanged, and the new ones follow without gap or duplicate. */
async function assertGoesOn(
  server: ServerProcess,
  histories: ReadonlyMap<string, readonly Answer['json'][]>,
  down: {readonly from: number; readonly to: number},
): Promise<void> {
  await until('they tick again', async () => {
    const rows = await server.launches('skip')
    return rows.filter(({scheduled_at: at}) => Date.parse(at) > down.to).length > 2
  })
  for (const [name, known] of histories) {
    const rows = await server.launches(name)
    const decided = known.filter(
      ({executions}) => executions.length > 0 && executions.every(isOver),
    )
    const now = new Map(rows.map((row) => [row.group, row]))
    for (const row of decided)
      assert.deepEqual(now.get(row.group), row, `${name} ${row.scheduled_at}`)
    if (name === 'after') continue
    const times = planned(rows, name)
    const meanwhile = [...times].filter(([at]) => at > down.from && at < down.to)
    const decisions = new Set(meanwhile.map(([, decision]) => decision))
    assert.ok(meanwhile.length > 1, name)
    if (name === 'all') assert.deepEqual([...decisions], ['launched'])
    else assert.ok(decisions.has('missed'), `${name}: ${[...decisions].join()}`)
  }
}

/** The address as printed: without the user. */
function shown(url: string): string {
  return url.replace(/\/\/.*@/, '//')
}

describe('a migration', () => {
  for (const signal of ['SIGKILL', 'SIGINT'] as const)
    test(`ended by ${signal} leaves the target empty and can be repeated`, async (t) => {
      const data = temporaryDirectory(t)
      await aLargeStore(data, LARGE)
      const schema = `ended_${signal.toLowerCase()}`
      const url = `${postgres.url()}?schema=${schema}`
      const program = started(t, data, url)
      const working = `SELECT pid FROM pg_stat_activity WHERE application_name = 'belfry move'`
      await until('rows are written', async () => {
        const sql = `${working} AND query LIKE 'INSERT INTO executions%'`
        return (await postgres.run(sql)).length > 0
      })
      program.signal(signal)
      assert.equal((await program.gone).signal, signal)
      await until('the database knows', async () => (await postgres.run(working)).length === 0)
      assert.deepEqual(await postgres.run(`SELECT 1 FROM ${schema}.jobs`), [])
      assert.deepEqual(await postgres.run(`SELECT 1 FROM ${schema}.executions`), [])
      assert.equal(existsSync(join(data, 'belfry.moved')), false)
      const server = await aServer(t, {data})
      assert.equal((await server.get('/jobs')).json.length, 100, 'the old store still works')
      await server.stop()

      const again = await migrated(t, data, url)
      assert.equal(again.code, 0, again.err)
      assert.match(again.err, /^checking the source\n0 of 100 \w+\n/)
      const third = await migrated(t, data, url)
      assert.equal(third.code, 1)
      assert.match(third.err, /The store \S+ holds this store already\.\n$/)
    })

  test('with a failed commit leaves the old store unchanged', async (t) => {
    const data = temporaryDirectory(t)
    await aLargeStore(data, 100)
    const url = freshSchema(postgres.url())
    const schema = url.split('schema=')[1]!
    await (await openAt(url)).store.close()
    await postgres.run(`CREATE FUNCTION ${schema}.refuse() RETURNS trigger LANGUAGE plpgsql
      AS $$BEGIN RAISE 'not at this hour'; END$$;
      CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON ${schema}.jobs DEFERRABLE INITIALLY DEFERRED
      FOR EACH ROW EXECUTE FUNCTION ${schema}.refuse()`)
    const {code, out, err} = await migrated(t, data, url)
    assert.deepEqual([code, out], [1, ''])
    assert.match(
      err,
      /^belfry: The store \S+ is unchanged, because the import failed: not at this hour\.$/m,
    )
    assert.deepEqual(await postgres.run(`SELECT 1 FROM ${schema}.jobs`), [])
    assert.equal(existsSync(join(data, 'belfry.moved')), false)
  })

  test('prints JSON with --json, and nothing with --quiet', async (t) => {
    const data = temporaryDirectory(t)
    await aLargeStore(data, 100)
    const url = `${postgres.url()}?schema=quiet`
    const quiet = await migrated(t, data, url, ['--quiet', '--json'])
    assert.deepEqual([quiet.code, quiet.err], [0, ''])
    const {store: where, sign, compared} = JSON.parse(quiet.out)
    assert.deepEqual([where, sign], [shown(url), join(data, 'belfry.moved')])
    const executions = {what: 'executions', source: 100, target: 100}
    assert.deepEqual(
      compared.find(({what}: {what: string}) => what === 'executions'),
      executions,
    )
    const other = `${postgres.url()}?schema=other`
    const twice = await migrated(t, data, other)
    assert.equal(twice.code, 1)
    assert.ok(twice.err.includes(`The store in ${data} has moved to ${shown(url)};`), twice.err)
    rmSync(sign)
    const silent = await migrated(t, `sqlite:${data}`, other, ['--quiet'])
    assert.deepEqual(silent, {code: 0, out: '', err: ''})
  })

  test('is refused with one sentence', async (t) => {
    const data = temporaryDirectory(t)
    const url = `${postgres.url()}?schema=refused`
    const cases: readonly (readonly [from: string, to: string, code: number, sentence: RegExp])[] =
      [
        [
          data,
          url,
          1,
          /^--from must be the data directory of a Belfry store: there is no store in \S+\.$/,
        ],
        [join(data, 'none'), url, 1, /^--from must be .*: there is no store in /],
        [url, 'sqlite', 2, /^--from must be .*: a store on PostgreSQL cannot be migrated\.$/],
        [data, 'sqlite', 2, /^--to must be a URL such as postgres:/],
        [
          data,
          'mysql://me:secret@db/jobs',
          2,
          /^--to must be a URL such as postgres:[^@]*@host\S+$/,
        ],
      ]
    for (const [from, to, expected, sentence] of cases) {
      const {code, out, err} = await migrated(t, from, to)
      assert.deepEqual([code, out], [expected, ''])
      assert.match(err.replace(/^belfry: |\n$/g, ''), sentence)
    }
    const without = runProgram(t, ['migrate', '--from', data])
    assert.equal((await without.exit).code, 2)
    assert.match(without.stderr(), /--to <url>/)
    assert.deepEqual(await postgres.run(`SELECT 1 FROM pg_namespace WHERE nspname = 'refused'`), [])
  })

  test('is advised where another store than before would be empty', async (t) => {
    const start = ['--http', '127.0.0.1:0']
    const server = await aServer(t)
    const {data} = server
    await server.store({name: 'a', ...byHand, executor_config: shell('true')})
    await server.stop()
    const url = `${postgres.url()}?schema=chosen`
    const lost = await refusedStart(t, [...start, '--data', data, '--store', url])
    assert.equal(lost.code, 2)
    assert.match(lost.stderr, /^belfry: .* SQLite with jobs, .*belfry migrate, or add --new-store/)
    assert.equal((await migrated(t, data, url)).code, 0)
    const moved = await aServer(t, {data, flags: ['--store', url]})
    assert.equal((await moved.get('/jobs/a')).status, 200)
    await moved.stop()
    rmSync(join(data, 'belfry.moved'))
    const back = await refusedStart(t, [...start, '--data', data])
    assert.equal(back.code, 2)
    assert.ok(back.stderr.includes(`${data} belongs to a server on postgres://`), back.stderr)
    assert.match(back.stderr, /start with --store and its URL\. .*add --new-store\.$/m)
    const chosen = await aServer(t, {data, flags: ['--new-store']})
    assert.equal((await chosen.get('/')).json.gossip.store, 'sqlite')
    await chosen.stop()
    const other = await aServer(t, {
      data,
      flags: ['--new-store', '--store', `${postgres.url()}?schema=other_choice`],
    })
    assert.equal((await other.get('/jobs/a')).status, 404)
  })
})
