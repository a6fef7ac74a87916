/** Stores that cannot be opened: one sentence with the cause and the fix, and no password. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {createServer, type AddressInfo} from 'node:net'
import {after, before, describe, it} from 'node:test'
import {openPostgresStore} from '../../../src/store/postgres/store.ts'
import {systemClock} from '../../../src/platform/clock.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {freePort, TestPostgres} from '../../support/postgres.ts'

/** Some roles need a password, by different methods of authentication. */
const ACCESS_RULES = `host all strict 127.0.0.1/32 scram-sha-256
host all old 127.0.0.1/32 md5
host all plain 127.0.0.1/32 password
host all stranger 127.0.0.1/32 reject
host all all 127.0.0.1/32 trust
`
const PASSWORD = 'never-to-be-told'

const ROLES = [
  `CREATE ROLE strict LOGIN PASSWORD '${PASSWORD}'; CREATE ROLE plain LOGIN PASSWORD '${PASSWORD}';
    CREATE ROLE stranger LOGIN; CREATE ROLE modest LOGIN; CREATE ROLE crowd LOGIN CONNECTION LIMIT 0;
    CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only TO on`,
  `SET password_encryption TO md5; CREATE ROLE old LOGIN PASSWORD '${PASSWORD}'`,
  `CREATE SCHEMA own AUTHORIZATION strict; CREATE SCHEMA closed; CREATE SCHEMA readable;
    CREATE SCHEMA shared; CREATE TABLE shared.schema_version (version bigint);
    GRANT USAGE ON SCHEMA readable TO modest; GRANT USAGE, CREATE ON SCHEMA shared TO modest`,
  'CREATE DATABASE private',
  'REVOKE CONNECT ON DATABASE private FROM PUBLIC',
]

let postgres: TestPostgres
before(async () => {
  postgres = await TestPostgres.start({}, {'pg_hba.conf': ACCESS_RULES})
  for (const statements of ROLES) await postgres.run(statements)
})
after(() => postgres.close())

/** The sentence about an address, after the part that names the store. */
async function refusal(rest: string, port = postgres.port): Promise<string> {
  const url = `postgres://${rest.replace('HOST', `127.0.0.1:${port}`)}`
  const opened = await openPostgresStore({url, clock: systemClock(), random: systemRandom()})
  if (opened.ok) await opened.store.close()
  assert(!opened.ok, 'it was opened')
  const {problem} = opened
  assert.doesNotMatch(problem, new RegExp(`${PASSWORD}|wrong-one|SASL`))
  assert.match(problem, /^The store postgres:\/\/\S+ .+\.$/)
  assert.equal(problem.split('postgres://').length, 2, `the store is named once: ${problem}`)
  return problem
}

const AT = '127\\.0\\.0\\.1:\\d+'
const NONE_GIVEN = new RegExp(
  `${AT} requires a password of role "\\w+" and none is given; put it into`,
)
const WRONG = new RegExp(`${AT} refuses the password of role "\\w+"; give the right one`)

const ROWS: readonly (readonly [what: string, address: string, says: RegExp])[] = [
  ['no password for SCRAM', 'strict@HOST/postgres', NONE_GIVEN],
  ['no password for MD5', 'old@HOST/postgres', NONE_GIVEN],
  ['no password for clear-text authentication', 'plain@HOST/postgres', NONE_GIVEN],
  ['a wrong password', 'strict:wrong-one@HOST/postgres', WRONG],
  [
    'no user',
    'HOST/postgres',
    /a login without a user \(.+\); put USER@ before the host, or set PGUSER/,
  ],
  ['a role that does not exist', 'nobody@HOST/postgres', /refuses role "nobody" \(.+\); create/],
  [
    'a role that pg_hba.conf refuses',
    'stranger@HOST/postgres',
    /refuses role \S+ \(.*pg_hba\.conf.*\); create the/,
  ],
  ['a missing database', 'belfry@HOST/nothing', /has no database "nothing"; create it/],
  [
    'a database that it may not connect to',
    'modest@HOST/private',
    /run GRANT CONNECT ON DATABASE "private"/,
  ],
  [
    'no schema and no privilege to create one',
    'modest@HOST/postgres',
    /run CREATE SCHEMA "belfry" AUTHORIZATION modest in database postgres/,
  ],
  [
    'a schema it may not use',
    'modest@HOST/postgres?schema=closed',
    /run GRANT USAGE, CREATE ON SCHEMA "closed" TO modest/,
  ],
  [
    'a schema it may only read',
    'modest@HOST/postgres?schema=readable',
    /run GRANT USAGE, CREATE ON SCHEMA "readable" TO modest/,
  ],
  [
    'tables of another role',
    'modest@HOST/postgres?schema=shared',
    /that another role owns \(permission denied for table schema_version\); use the role/,
  ],
  ['a role that only reads', 'reader@HOST/postgres', /takes no writes \(a standby, or .+\); name/],
  [
    'no free connection slot',
    'crowd@HOST/postgres',
    /has no connection left for role "crowd" \(too/,
  ],
  [
    'a host that does not exist',
    'belfry@no-such-host.invalid:5432/postgres',
    /the name of the host no-such-host\.invalid:5432 does not resolve/,
  ],
]

describe('a store is refused in one sentence', () => {
  for (const [what, address, says] of ROWS)
    it(what, async () => assert.match(await refusal(address), says))

  it('a port where nothing listens', async () => {
    const says = /nothing listens on 127\.0\.0\.1:\d+ \(ECONNREFUSED\); check the host and the port/
    assert.match(await refusal('belfry:wrong-one@HOST/postgres', await freePort()), says)
  })

  it('several hosts, with a reason for each', async () => {
    const closed = await freePort()
    const problem = await refusal(`reader@127.0.0.1:${closed},HOST/postgres`)
    assert.match(problem, /opened: nothing listens on .+; 127\.0\.0\.1:\d+ takes no writes/)
  })

  it('a server that is starting', async (t) => {
    // A real PostgreSQL is in this state too briefly for a test.
    const starting = createServer((socket) => {
      socket.on('error', () => undefined)
      socket.once('data', () =>
        socket.end(errorResponse('57P03', 'the database system is starting')),
      )
    })
    t.after(() => starting.close())
    await once(starting.listen(0, '127.0.0.1'), 'listening')
    const {port} = starting.address() as AddressInfo
    const says = /takes no connections yet \(the database system is starting\); start again when/
    assert.match(await refusal('belfry@HOST/postgres', port), says)
  })
})

/** An error response of PostgreSQL's protocol. */
function errorResponse(code: string, message: string): Buffer {
  const fields = Buffer.from(`SFATAL\0VFATAL\0C${code}\0M${message}\0\0`)
  const head = Buffer.from('E\0\0\0\0')
  head.writeInt32BE(fields.length + 4, 1)
  return Buffer.concat([head, fields])
}

it('a given password is used', async () => {
  const url = `postgres://strict:${PASSWORD}@127.0.0.1:${postgres.port}/postgres?schema=own`
  const opened = await openPostgresStore({url, clock: systemClock(), random: systemRandom()})
  assert(opened.ok, opened.ok ? '' : opened.problem)
  await opened.store.close()
})
