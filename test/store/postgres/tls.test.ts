/** TLS to the database, with the modes of its own clients: trusted and refused certificates. */
import assert from 'node:assert/strict'
import {mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, before, describe, it} from 'node:test'
import {StoreUnavailable} from '../../../src/ports/store-errors.ts'
import {openPostgresStore, type OpenedPostgresStore} from '../../../src/store/postgres/store.ts'
import {localWakeup} from '../../../src/platform/wakeup.ts'
import {systemClock} from '../../../src/platform/clock.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {CERTIFICATE} from '../../support/certificate.ts'
import {CutProxy} from '../../support/cut-proxy.ts'
import {
  AUTHORITY,
  CLIENT_CERTIFICATE,
  CLIENT_KEY,
  SERVER_CERTIFICATE,
  SERVER_KEY,
} from '../../support/database-certificates.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {beatAs} from '../../support/single-calls.ts'

/** The rules of pg_hba.conf. A certificate must name the role that connects. */
const ACCESS_RULES = `host all belfry 127.0.0.1/32 trust
hostssl all all 127.0.0.1/32 cert
`

let postgres: TestPostgres
let plain: TestPostgres
let files: string

before(async () => {
  files = mkdtempSync(join(tmpdir(), 'belfry-tls-'))
  const contents = {
    ca: AUTHORITY,
    other: CERTIFICATE,
    cert: CLIENT_CERTIFICATE,
    key: CLIENT_KEY,
  }
  for (const [name, text] of Object.entries(contents)) writeFileSync(join(files, name), text)
  const settings = {
    ssl: 'on',
    ssl_cert_file: 'server.crt',
    ssl_key_file: 'server.key',
    ssl_ca_file: 'authority.crt',
  }
  postgres = await TestPostgres.start(settings, {
    'server.crt': SERVER_CERTIFICATE,
    'server.key': SERVER_KEY,
    'authority.crt': AUTHORITY,
    'pg_hba.conf': ACCESS_RULES,
  })
  plain = await TestPostgres.start()
})
after(async () => {
  await postgres.close()
  await plain.close()
  rmSync(files, {recursive: true})
})

type Opened = Extract<OpenedPostgresStore, {ok: true}>

function tryOpen(
  host: string,
  parameters: string,
  {role = 'belfry', port = postgres.port, schema = 'belfry'} = {},
): Promise<OpenedPostgresStore> {
  const named = parameters.replaceAll(/=(ca|other|cert|key)\b/g, `=${files}/$1`)
  const url = `postgres://${role}@${host}:${port}/postgres?${named}&schema=${schema}`
  return openPostgresStore({url, clock: systemClock(), random: systemRandom()})
}

async function opened(...where: Parameters<typeof tryOpen>): Promise<Opened> {
  const result = await tryOpen(...where)
  assert(result.ok, result.ok ? '' : result.problem)
  return result
}

async function refusal(...where: Parameters<typeof tryOpen>): Promise<string> {
  const result = await tryOpen(...where)
  if (result.ok) await result.store.close()
  return result.ok ? 'it was let in' : result.problem
}

/** The chain ends at another authority than the given one. */
const UNTRUSTED = /self-signed certificate in certificate chain/

describe('sslmode', () => {
  const rows: readonly (readonly [host: string, parameters: string, refused: RegExp | null])[] = [
    ['127.0.0.1', 'sslmode=require', null],
    ['127.0.0.1', 'sslmode=require&sslrootcert=ca', null],
    ['127.0.0.1', 'sslmode=require&sslrootcert=other', UNTRUSTED],
    ['127.0.0.1', 'sslmode=verify-ca&sslrootcert=ca', null],
    ['127.0.0.1', 'sslmode=verify-ca&sslrootcert=other', UNTRUSTED],
    ['127.0.0.1', 'sslmode=verify-ca', UNTRUSTED],
    ['localhost', 'sslmode=verify-full&sslrootcert=ca', null],
    ['localhost', 'sslmode=verify-full&sslrootcert=other', UNTRUSTED],
    // The certificate names `localhost` only, not its address.
    ['127.0.0.1', 'sslmode=verify-full&sslrootcert=ca', /IP: 127\.0\.0\.1 is not in the cert/],
  ]
  for (const [host, parameters, refused] of rows)
    it(`${parameters} to ${host} ${refused === null ? 'works' : 'is refused'}`, async () => {
      if (refused === null) {
        const {store} = await opened(host, parameters)
        await store.probe()
        await store.close()
      } else {
        const problem = await refusal(host, parameters)
        assert.match(problem, refused)
        assert.match(problem, /^The store postgres:\/\/\S+ cannot be opened: .+\.$/)
      }
    })

  it('require with a server without TLS is refused', async () => {
    const problem = await refusal('127.0.0.1', 'sslmode=require', {port: plain.port})
    assert.match(problem, /has no TLS, and the sslmode of the connection string requires it/)
  })
})

const PURPOSES = ['heartbeats', 'lease', 'notifications', 'reads', 'writes']

/** The stores' connections as the server sees them: purpose, encryption, certificate. */
async function connections(): Promise<unknown[][]> {
  const rows = await postgres.run(`SELECT a.application_name AS name, s.ssl, s.client_dn AS dn
    FROM pg_stat_activity a JOIN pg_stat_ssl s USING (pid)
    WHERE a.application_name LIKE 'belfry %' ORDER BY name`)
  return rows.map(({name, ssl, dn}) => [String(name).replace('belfry ', ''), ssl, dn])
}

/** Makes the store use all its connections. */
async function useAll({store}: Opened): Promise<void> {
  await store.submissionsPaused()
  await store.probe()
  await beatAs(store, {nodeId: 'n', incarnation: 'i', status: 'alive'})
  await store.renewLease({term: 1, holder: 'nobody', ttlMs: 1})
}

describe('a client’s certificate', () => {
  const who = {role: 'certified', schema: 'certified'}
  const parameters = 'sslmode=verify-full&sslrootcert=ca&sslcert=cert&sslkey=key'

  before(() =>
    postgres.run('CREATE ROLE certified LOGIN; CREATE SCHEMA certified AUTHORIZATION certified'),
  )

  it('is sent on every connection, also after all were broken', async () => {
    const result = await opened('localhost', parameters, who)
    const local = localWakeup()
    const notified = () => new Promise<void>((resolve) => local.subscribe('run', resolve))
    // A new connection for notifications notifies.
    const first = notified()
    const wakeup = result.wakeupOver(local)
    await Promise.all([useAll(result), first])
    const expected = PURPOSES.map((purpose) => [purpose, true, '/CN=certified'])
    assert.deepEqual(await connections(), expected)

    const again = notified()
    await postgres.run(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE application_name LIKE 'belfry %'`)
    await Promise.all([useAll(result), again])
    assert.deepEqual(await connections(), expected)
    await wakeup.close()
    await result.store.close()
  })

  it('is missing and the server requires one', async () => {
    const problem = await refusal('localhost', 'sslmode=verify-full&sslrootcert=ca', who)
    assert.match(problem, /requires a valid client certificate/)
    assert.match(await refusal('localhost', 'sslmode=disable', who), /no encryption/)
  })

  it('of another role is refused', async () => {
    const problem = await refusal('localhost', parameters, {...who, role: 'belfry_certified'})
    assert.match(problem, /certificate authentication failed|no pg_hba.conf entry/)
  })
})

describe('an encrypted connection that stops responding', () => {
  it('is closed in time and replaced', async () => {
    const proxy = await CutProxy.open(postgres.port)
    const {store} = await opened('127.0.0.1', 'sslmode=verify-ca&sslrootcert=ca', {
      port: proxy.port,
    })
    proxy.isSilent = true
    await assert.rejects(store.job('a'), StoreUnavailable)
    proxy.isSilent = false
    while ((await store.submissionsPaused().catch(() => null)) === null);
    await store.probe()
    await store.close()
    await proxy.close()
  })
})
