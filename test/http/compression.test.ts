/** Compression of replies. */
import assert from 'node:assert/strict'
import {request} from 'node:http'
import {test} from 'node:test'
import zlib from 'node:zlib'
import {chosenEncoding} from '../../src/http/api/compression.ts'
import {Stream, startApi, type Api} from './harness.ts'

interface RawReply {
  readonly headers: NodeJS.Dict<string | string[]>
  readonly bytes: Buffer
}

function get(api: Api, path: string, encoding: string, method = 'GET'): Promise<RawReply> {
  return new Promise((resolve, reject) => {
    const options = {port: api.port, path, method, headers: {'accept-encoding': encoding}}
    const sent = request({host: '127.0.0.1', agent: false, ...options}, (response) => {
      const chunks: Buffer[] = []
      response.on('data', (chunk: Buffer) => chunks.push(chunk))
      response.on('error', reject)
      response.on('end', () => resolve({headers: response.headers, bytes: Buffer.concat(chunks)}))
    })
    sent.on('error', reject)
    sent.end()
  })
}

const DECODERS: Readonly<Record<string, (bytes: Buffer) => Buffer>> = {
  gzip: zlib.gunzipSync,
  br: zlib.brotliDecompressSync,
  zstd: zlib.zstdDecompressSync,
}

async function withLargeJob(t: Parameters<typeof startApi>[0]): Promise<Api> {
  const api = await startApi(t)
  await api.job('large', {metadata: {text: 'x'.repeat(10_000)}})
  await api.job('small')
  return api
}

test('large replies are compressed as the client asks', async (t) => {
  const api = await withLargeJob(t)
  const plain = await api.get('/v1/jobs/large')
  assert.equal(plain.headers['content-encoding'], undefined)
  assert.equal(plain.headers.vary, 'Accept-Encoding')
  assert.match(String(plain.headers.etag), /^"/)
  for (const [encoding, decode] of Object.entries(DECODERS)) {
    const {headers, bytes} = await get(api, '/v1/jobs/large', encoding)
    assert.equal(headers['content-encoding'], encoding)
    assert.equal(headers['content-length'], String(bytes.length))
    assert.equal(headers.vary, 'Accept-Encoding')
    assert.equal(headers.etag, `W/${plain.headers.etag}`)
    assert.ok(bytes.length < 2_000)
    assert.equal(decode(bytes).toString('utf8'), plain.text)
  }
})

test('the weak tag of a compressed reply is a valid precondition', async (t) => {
  const api = await withLargeJob(t)
  const {headers} = await get(api, '/v1/jobs/large', 'gzip')
  const toggle = (tag: string) => api.post('/v1/jobs/large/toggle', undefined, {'if-match': tag})
  assert.equal((await toggle(String(headers.etag))).status, 200)
  assert.equal((await toggle(String(headers.etag))).status, 412)
})

test('HEAD has the headers of the compressed reply', async (t) => {
  const api = await withLargeJob(t)
  const whole = await get(api, '/v1/jobs/large', 'gzip')
  const head = await get(api, '/v1/jobs/large', 'gzip', 'HEAD')
  assert.equal(head.bytes.length, 0)
  for (const name of ['content-encoding', 'content-length', 'content-type', 'etag', 'vary'])
    assert.equal(head.headers[name], whole.headers[name], name)
})

test('small replies, backups and event streams are not compressed', async (t) => {
  const api = await withLargeJob(t)
  for (const path of ['/v1/jobs/small', '/v1/backup', '/v1/jobs/nobody'])
    assert.equal((await get(api, path, 'gzip')).headers['content-encoding'], undefined, path)
  const stream = await Stream.open(api, '/v1/events', {'accept-encoding': 'gzip, br, zstd'})
  assert.equal(stream.headers['content-encoding'], undefined)
  await api.job('seen')
  await stream.until((text) => text.includes('job_stored'))
  stream.close()
})

test('long lists, pages and scripts are compressed as streams or as a whole', async (t) => {
  const api = await startApi(t)
  const entries = Array.from({length: 700}, (_, index) => ({
    name: `job-${index}`,
    schedule: '@manually',
  }))
  const file = new FormData()
  file.set('file', new Blob([JSON.stringify(entries)]), 'jobs.json')
  await fetch(`${api.url}/v1/restore`, {method: 'POST', body: file})
  for (const [encoding, decode] of Object.entries(DECODERS)) {
    const {headers, bytes} = await api.settled(get(api, '/v1/jobs', encoding))
    assert.equal(headers['x-total-count'], '700')
    assert.equal(headers['content-encoding'], encoding)
    assert.equal(headers['transfer-encoding'], 'chunked')
    assert.equal(JSON.parse(decode(bytes).toString('utf8')).length, 700)
  }
  for (const path of ['/v1/openapi.json', '/docs/js/scalar.js', '/ui/page.js'])
    assert.equal((await get(api, path, 'gzip')).headers['content-encoding'], 'gzip', path)
})

test('a client that disconnects in the middle of a compressed list leaves nothing behind', async (t) => {
  const api = await startApi(t, {limits: {longListsMax: 1}})
  const metadata = {text: 'x'.repeat(60_000)}
  for (let index = 0; index < 3; index += 1) await api.job(`job-${index}`, {metadata})
  for (let round = 0; round < 3; round += 1) {
    const sent = request({port: api.port, path: '/v1/jobs', headers: {'accept-encoding': 'br'}})
    sent.on('error', () => undefined)
    sent.end(() => sent.destroy())
  }
  assert.equal((await get(api, '/v1/jobs', 'br')).headers['content-encoding'], 'br')
  assert.deepEqual(api.faults, [])
})

/** Value of `Accept-Encoding`, and the encoding that is used. */
const ACCEPTED: readonly (readonly [string | undefined, string | null])[] = [
  [undefined, null],
  ['', null],
  ['identity', null],
  ['gzip', 'gzip'],
  ['GZIP', 'gzip'],
  ['gzip, deflate', 'gzip'],
  ['gzip, deflate, br', 'br'],
  ['gzip, deflate, br, zstd', 'zstd'],
  ['gzip;q=1.0, br;q=0.5', 'gzip'],
  ['gzip; q=0.2, identity; q=0.8', null],
  ['zstd;q=0, *', 'br'],
  ['*', 'zstd'],
  ['*;q=0', null],
  ['gzip;q=0', null],
  ['gzip;q=x', null],
  ['deflate, compress', null],
  [',;,', null],
]

for (const [accepted, expected] of ACCEPTED)
  test(`Accept-Encoding ${JSON.stringify(accepted)} gives ${expected}`, () =>
    assert.equal(chosenEncoding(accepted), expected))
