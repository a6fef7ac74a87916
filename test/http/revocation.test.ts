/** A revoked token ends what it has in progress, within five seconds, also when another server revokes it. */
import assert from 'node:assert/strict'
import {once} from 'node:events'
import {writeFile} from 'node:fs/promises'
import {connect, type Socket} from 'node:net'
import {test, type TestContext} from 'node:test'
import type {Store} from '../../src/ports/store.ts'
import {definition, type LockedApi, startLockedApi, TEAM_A, upload} from './tokens.ts'

const ENDS_WITHIN = {timeout: 30_000}
/** Revocation, and a change of policies, reach every server within this time. */
const REACHES_MS = 5_000
/** Far more than the buffers of a connection hold. */
const ROWS = 10_000
const BACKUP_BYTES = 64 * 2 ** 20

/** Every job 60,000 times in a list, large output, a large backup. */
function large(store: Store): Store {
  return {
    ...store,
    jobs: async (query) => {
      const {rows, total} = await store.jobs(query)
      return {rows: Array.from({length: ROWS}, () => rows).flat(), total}
    },
    backup: (file) => writeFile(file, Buffer.alloc(BACKUP_BYTES)),
  }
}

async function started(t: TestContext): Promise<LockedApi> {
  const locked = await startLockedApi(t, {wrapStore: large})
  await locked.api.access.refresh()
  locked.api.access.start()
  await locked.job('team-a-x')
  return locked
}

/** A client that sends these bytes and reads nothing; resolves when the server has its request. */
async function request(t: TestContext, {api}: LockedApi, text: string): Promise<Socket> {
  const accepted = once(api.app.server, 'connection')
  const received = once(api.app.server, 'request')
  const own = connect({port: api.port, host: '127.0.0.1', allowHalfOpen: true})
  t.after(() => own.destroy())
  own.on('error', () => undefined).pause()
  own.write(text)
  const [[socket]] = (await Promise.all([accepted, received])) as [[Socket], unknown]
  return socket
}

function head(secret: string, line: string, headers = ''): string {
  return `${line} HTTP/1.1\r\nHost: localhost\r\nX-Service-Token: ${secret}\r\n${headers}\r\n`
}

const REPLIES: Readonly<Record<string, string>> = {
  'a long list': 'GET /v1/jobs',
  'a backup': 'GET /v1/backup',
}

for (const [reply, line] of Object.entries(REPLIES))
  test(`${reply} to a slow client ends with its token`, ENDS_WITHIN, async (t) => {
    const locked = await started(t)
    const {api} = locked
    const [reader, other] = [await locked.token('read'), await locked.token('read')]
    const open = await request(t, locked, head(reader.secret, line))
    const kept = await request(t, locked, head(other.secret, 'GET /v1/events'))
    await api.eventually(() => open.bytesWritten > 0)
    assert.equal(open.closed, false)
    await api.store.deleteToken(reader.accessor)
    await api.clock.advance(REACHES_MS)
    await api.eventually(() => open.closed)
    assert.equal(kept.closed, false)
  })

test('a long list ends when the policies change that chose its rows', ENDS_WITHIN, async (t) => {
  const locked = await started(t)
  const {api} = locked
  const [team, other] = [await locked.client('team-a', TEAM_A), await locked.client('b', TEAM_A)]
  const open = await request(t, locked, head(team.secret, 'GET /v1/jobs'))
  const kept = await request(t, locked, head(other.secret, 'GET /v1/jobs'))
  await api.eventually(() => open.bytesWritten > 0 && kept.bytesWritten > 0)
  const path = {'/v1/jobs': {capabilities: ['list']}, '/v1/jobs/x': {capabilities: ['read']}}
  await api.store.putPolicy({name: 'team-a', rules: JSON.stringify({path})})
  await api.clock.advance(REACHES_MS)
  await api.eventually(() => open.closed)
  assert.equal(kept.closed, false)
})

test(
  'a body that is still arriving changes nothing after the revocation',
  ENDS_WITHIN,
  async (t) => {
    const locked = await started(t)
    const {api} = locked
    const team = await locked.client('team-a', TEAM_A)
    const restored = upload([definition('team-a-restored')])
    const type = `Content-Type: ${restored.headers['content-type']}\r\n`
    const submitted = JSON.stringify(definition('team-a-submitted'))
    const length = (body: string) => `Content-Length: ${body.length}\r\n`
    const cut = 40
    const opened: Socket[] = []
    const clients: Socket[] = []
    for (const [line, headers, body] of [
      ['POST /v1/restore', type, restored.body],
      ['POST /v1/jobs', '', submitted],
      ['PUT /v1/jobs/team-a-submitted', '', submitted],
      ['DELETE /v1/jobs/team-a-x', '', submitted],
    ] as const) {
      const received = once(api.app.server, 'request')
      const own = connect(api.port, '127.0.0.1').on('error', () => undefined)
      t.after(() => own.destroy())
      own.write(head(team.secret, line, headers + length(body)) + body.slice(0, -cut))
      const [{socket}] = (await received) as [{socket: Socket}]
      opened.push(socket)
      clients.push(own)
    }
    await api.store.deleteToken(team.accessor)
    await api.clock.advance(REACHES_MS)
    for (const [at, own] of clients.entries()) if (own.writable) own.write(`${at}`.repeat(cut))
    await api.eventually(() => opened.every(({closed}) => closed))
    for (const name of ['team-a-restored', 'team-a-submitted'])
      assert.equal(await api.store.job(name), null, name)
    assert.notEqual(await api.store.job('team-a-x'), null)
  },
)
