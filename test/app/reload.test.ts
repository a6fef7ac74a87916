/** SIGHUP: certificates, tokens and the log level change while a server and an agent run. */
import assert from 'node:assert/strict'
import {X509Certificate} from 'node:crypto'
import {renameSync, writeFileSync} from 'node:fs'
import {request} from 'node:https'
import {join} from 'node:path'
import {text} from 'node:stream/consumers'
import {describe, test, type TestContext} from 'node:test'
import {connect} from 'node:tls'
import {createReload, type Reloaded} from '../../src/app/reload.ts'
import {loadConfig} from '../../src/config/server.ts'
import {openLog} from '../../src/telemetry/log.ts'
import {anAgent} from '../agents/agent-process.ts'
import {CERTIFICATE, OTHER_CERTIFICATE, OTHER_KEY, PRIVATE_KEY} from '../support/certificate.ts'
import {RecordedEvents} from '../support/recorded-events.ts'
import {
  aServer,
  type Program,
  type ServerProcess,
  temporaryDirectory,
} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

const FIRST = 'the-first-token-of-this-server'
const SECOND = 'the-second-token-of-this-server'
/** Both: which of them a server shows is compared by its fingerprint. */
const TRUSTED = [CERTIFICATE, OTHER_CERTIFICATE]

/** Writes settings files that are replaced as a renewal does: by a rename. */
function settingsFiles(t: TestContext) {
  const directory = temporaryDirectory(t)
  const pathOf = (name: string) => join(directory, name)
  return {
    pathOf,
    write: (files: Readonly<Record<string, string>>) => {
      for (const [name, text] of Object.entries(files)) {
        writeFileSync(`${pathOf(name)}.new`, text, {mode: 0o600})
        renameSync(`${pathOf(name)}.new`, pathOf(name))
      }
    },
  }
}

/** The certificate of a new handshake. */
function shown({url}: ServerProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(
      {host: '127.0.0.1', port: Number(new URL(url).port), ca: TRUSTED},
      () => {
        const certificate = socket.getPeerX509Certificate()!.toString()
        socket.destroy()
        resolve(certificate)
      },
    )
    socket.on('error', reject)
  })
}

/** An open event stream, or the reply to the request for it. */
function stream({url}: ServerProcess, token: string, path = '/v1/events') {
  return new Promise<{status: number; isEnded: () => boolean}>((resolve, reject) => {
    const headers = {'x-service-token': token, accept: 'text/event-stream'}
    const sent = request(`${url}${path}`, {headers, ca: TRUSTED, agent: false}, (response) => {
      let isEnded = false
      response
        .resume()
        .on('close', () => (isEnded = true))
        .on('error', () => (isEnded = true))
      const {statusCode = 0} = response
      resolve({status: statusCode, isEnded: () => isEnded})
    })
    sent.on('error', reject).end()
  })
}

/** The end of the certificate in the metrics, in seconds since the epoch. */
function shownEnd({url}: ServerProcess, token: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const options = {headers: {'x-service-token': token}, ca: TRUSTED, agent: false}
    const sent = request(`${url}/metrics`, options, (response) => {
      const sample = /^belfry_certificate_expires_timestamp_seconds (\d+)$/m
      text(response).then((page) => resolve(Number(sample.exec(page)?.[1])), reject)
    })
    sent.on('error', reject).end()
  })
}

function endOf(certificate: string): number {
  return new X509Certificate(certificate).validToDate.getTime() / 1_000
}

/** Sends SIGHUP; resolves when the log has that many lines about it. */
async function reload(program: Program, line: string, count = 1): Promise<void> {
  program.signal('SIGHUP')
  await until(line, () => program.stderr().split(line).length > count)
}

describe('SIGHUP', {concurrency: 2}, () => {
  test('a server applies a new certificate, token and log level together, or keeps all', async (t) => {
    const files = settingsFiles(t)
    files.write({cert: CERTIFICATE, key: PRIVATE_KEY, token: FIRST, yaml: 'log-level: info\n'})
    const server = await aServer(t, {
      flags: [
        '--tls-cert',
        files.pathOf('cert'),
        '--tls-key',
        files.pathOf('key'),
        '--token-file',
        files.pathOf('token'),
        '--config',
        files.pathOf('yaml'),
      ],
    })
    const {program} = server
    assert.equal(await shown(server), CERTIFICATE)
    assert.equal(await shownEnd(server, FIRST), endOf(CERTIFICATE))
    const open = await stream(server, FIRST)
    assert.equal(open.status, 200)

    // Half of a renewal: the certificate does not belong to the key.
    files.write({cert: OTHER_CERTIFICATE, token: SECOND})
    await reload(program, '"msg":"reload failed"')
    assert.match(program.stderr(), /"level":"error"[^\n]*cannot be used[^\n]*reload failed/)
    assert.equal(await shown(server), CERTIFICATE)
    assert.equal((await stream(server, SECOND, '/v1/members')).status, 401)
    for (const pem of ['', '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n']) {
      files.write({cert: pem})
      await reload(program, '"msg":"reload failed"', pem === '' ? 2 : 3)
      assert.equal(await shown(server), CERTIFICATE)
    }
    assert.equal(open.isEnded(), false)

    files.write({cert: OTHER_CERTIFICATE, key: OTHER_KEY, yaml: 'log-level: debug\nslots: 7\n'})
    await reload(program, '"msg":"settings reloaded"')
    assert.match(program.stderr(), /"changed":"log level, tls, token"/)
    assert.match(program.stderr(), /"level":"warn"[^\n]*other settings have changed/)
    assert.equal(await shown(server), OTHER_CERTIFICATE)
    assert.equal(await shownEnd(server, SECOND), endOf(OTHER_CERTIFICATE))
    assert.equal((await stream(server, FIRST, '/v1/members')).status, 401)
    assert.equal((await stream(server, SECOND, '/v1/members')).status, 200)
    await until('the stream of the old token ends', open.isEnded)
    for (const token of [FIRST, SECOND]) assert.ok(!program.stderr().includes(token))
    assert.equal((await server.stop()).code, 0)
  })

  test('an agent joins again with a new token, and ignores a file without one', async (t) => {
    const server = await aServer(t)
    const admin = {'x-service-token': (await server.post('/acl/bootstrap')).json.secret}
    const create = async (name: string) =>
      (await server.ask('POST', '/acl/tokens', {name, type: 'agent'}, admin)).json
    const [first, second] = [await create('first'), await create('second')]
    const files = settingsFiles(t)
    files.write({token: first.secret})
    const {program} = await anAgent(t, [server.url], {
      flags: ['--token-file', files.pathOf('token')],
    })
    files.write({token: ''})
    await reload(program, '"msg":"reload failed"')
    files.write({token: second.secret})
    await reload(program, '"msg":"settings reloaded"')
    await server.ask('DELETE', `/acl/tokens/${first.accessor}`, undefined, admin)
    await until('the agent is back', () => program.stderr().includes('"msg":"joined again"'))
    program.signal('SIGTERM')
    assert.equal((await program.exit).code, 0)
  })
})

test('a reload applies the settings it can change, and names those that need a restart', () => {
  const lines: string[] = []
  const log = openLog({
    level: 'info',
    pretty: false,
    colours: false,
    node: 'node-a',
    destination: {write: (line) => void lines.push(line)},
  })
  const events = new RecordedEvents()
  const load = (...argv: string[]) => {
    const host = {name: 'a', cores: 1, timezone: 'UTC', directory: '/', readFile: () => ''}
    const loaded = loadConfig(argv, {}, host, () => ({ok: true, address: {password: null}}))
    assert.ok(loaded.ok)
    return loaded
  }
  const tokens: (string | null)[] = []
  let isRefused = false
  const apply = ({token}: {token: string | null}) => {
    if (isRefused) throw new Error('no')
    tokens.push(token)
  }
  const {config} = load()
  const reloadWith = createReload({config, log, events, fields: ['tls', 'token'], apply})
  const changes = (loaded: Reloaded<typeof config>) => {
    const before = events.all.length
    reloadWith(loaded)
    return events.all.slice(before).map(({name, data}) => [name, data])
  }
  assert.deepEqual(changes(load()), [['settings_reloaded', {changed: ''}]])
  assert.deepEqual(changes(load('--token', FIRST)), [['settings_reloaded', {changed: 'token'}]])
  assert.deepEqual(lines, [])
  assert.deepEqual(changes(load('--token', FIRST, '--slots', '3', '--log-level', 'error')), [
    ['settings_reloaded', {changed: 'log level'}],
  ])
  assert.match(lines[0] ?? '', /other settings have changed/)
  assert.equal(log.logger.level, 'error')
  assert.deepEqual(changes({ok: false, problem: 'wrong'}), [['reload_failed', {message: 'wrong'}]])
  isRefused = true
  assert.deepEqual(changes(load()), [['reload_failed', {message: 'Error: no'}]])
  assert.equal(log.logger.level, 'error')
  assert.deepEqual(tokens, [null, FIRST, FIRST])
})
