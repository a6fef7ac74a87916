/** Refused starts, and servers whose settings differ from those of their cluster. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {createServer, type AddressInfo} from 'node:net'
import {after, before, describe, test, type TestContext} from 'node:test'
import {aServer, refusedStart, temporaryDirectory} from '../support/server-process.ts'
import {TestPostgres} from '../support/postgres.ts'
import {byHand} from './shared-cluster.ts'

const SECRET = 'never-to-be-told'
/** Far above the time of a start, far below a user's waiting time. */
const REFUSED_WITHIN_MS = 15_000

let postgres: TestPostgres
let store: string

before(async () => {
  postgres = await TestPostgres.start()
  store = await postgres.database()
  await wantPasswordsOf('guarded')
})
after(() => postgres.close())

/** Makes the database require a password for this role, and sets one that is not the secret. */
async function wantPasswordsOf(role: string): Promise<void> {
  await postgres.run(`CREATE ROLE ${role} LOGIN PASSWORD 'another'`)
  const [row] = await postgres.run(`SELECT current_setting('hba_file') AS file,
    pg_read_file(current_setting('hba_file')) AS rules`)
  const rules = `host all ${role} 127.0.0.1/32 scram-sha-256\n${String(row!['rules'])}`
  await postgres.run(`COPY (SELECT unnest(string_to_array($$${rules}$$, E'\\n')))
    TO '${String(row!['file'])}'`)
  await postgres.run('SELECT pg_reload_conf()')
}

async function refused(t: TestContext, flags: readonly string[], says: RegExp): Promise<void> {
  const data = temporaryDirectory(t)
  const beganAt = performance.now()
  const place = ['--http', '127.0.0.1:0', '--data', data, '--name', 'refused']
  const {code, stdout, stderr} = await refusedStart(t, [...place, ...flags])
  const tookMs = performance.now() - beganAt
  assert.ok(code === 1 || code === 2, `exit code ${code}`)
  assert.equal(stdout, '')
  const sentences = stderr.split('\n').filter((line) => line.startsWith('belfry: '))
  assert.equal(sentences.length, 1, stderr)
  assert.match(sentences[0]!, says)
  assert.doesNotMatch(stderr, /^\s+at /m, 'no stack')
  assert.ok(!stderr.includes(SECRET), stderr)
  assert.ok(tookMs < REFUSED_WITHIN_MS, `refused after ${tookMs} ms`)
}

describe('an unusable store is refused with one sentence:', {concurrency: 2}, () => {
  const at = (account: string, rest: string) => `postgres://${account}@${rest}`
  const here = (database: string) => `127.0.0.1:${postgres.port}/${database}`
  const cases: [string, () => string, RegExp][] = [
    [
      'a wrong password',
      () => at(`guarded:${SECRET}`, here('test_1')),
      /refuses the password of role "guarded"/,
    ],
    [
      'no such database',
      () => at(`belfry:${SECRET}`, here('nowhere')),
      /has no database "nowhere"/,
    ],
    ['no such role', () => at(`nobody:${SECRET}`, here('test_1')), /"nobody" does not exist/],
    ['no listener', () => at(`belfry:${SECRET}`, '127.0.0.1:1/x'), /ECONNREFUSED/],
    ['no such host', () => at(`belfry:${SECRET}`, 'nowhere.invalid/x'), /nowhere\.invalid/],
    ['no TLS there', () => `${at('belfry', here('test_1'))}?sslmode=require`, /has no TLS/],
    [
      'a slash in the password',
      () => at(`belfry:${SECRET}/x`, 'db/x'),
      /a URL such as postgres:\/\//,
    ],
  ]
  for (const [what, url, says] of cases) test(what, (t) => refused(t, ['--store', url()], says))

  test('a database without its synchronous standby, which acknowledges no write', async (t) => {
    const waiting = await TestPostgres.start()
    t.after(() => waiting.close())
    await (await aServer(t, {flags: ['--store', waiting.url()]})).stop()
    await waiting.run(`ALTER SYSTEM SET synchronous_standby_names = 'gone'`)
    await waiting.run('SELECT pg_reload_conf()')
    await refused(t, ['--store', waiting.url()], /stopped answering .*Start it again/)
  })

  test('a peer that accepts connections and never replies', async (t) => {
    const silent = createServer((socket) => socket.on('error', () => undefined))
    t.after(() => silent.close())
    await once(silent.listen(0, '127.0.0.1'), 'listening')
    const {port} = silent.address() as AddressInfo
    await refused(t, ['--store', at(`belfry:${SECRET}`, `127.0.0.1:${port}/x`)], /no answer within/)
  })
})

test('the first server sets the default time zone; each server has its own token', async (t) => {
  const tokens = {one: 'token-of-the-first-one', two: 'token-of-the-other-one'}
  const start = (name: 'one' | 'two', timezone: string) => {
    const flags = [
      '--store',
      store,
      '--name',
      name,
      '--timezone',
      timezone,
      '--token',
      tokens[name],
    ]
    return aServer(t, {flags})
  }
  const one = await start('one', 'Asia/Tokyo')
  const two = await start('two', 'America/Lima')
  assert.match(two.program.stderr(), /"own":"America\/Lima","agreed":"Asia\/Tokyo"/)
  const headers = (name: 'one' | 'two') => ({'x-service-token': tokens[name]})
  const noon = {...byHand('noon'), schedule: '0 0 12 * * *'}
  const stored = await two.ask('POST', '/jobs', noon, headers('two'))
  assert.equal(new Date(stored.json.next).getUTCHours(), 3, 'noon in Tokyo')
  const seen = await one.ask('GET', '/jobs/noon', undefined, headers('one'))
  assert.equal(seen.json.next, stored.json.next)
  for (const [server, name] of [
    [one, 'two'],
    [two, 'one'],
  ] as const)
    assert.equal((await server.ask('GET', '/jobs', undefined, headers(name))).status, 401)
})
