/** The http executor against real servers on this machine. */
import assert from 'node:assert/strict'
import {execFileSync} from 'node:child_process'
import {mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync} from 'node:fs'
import {createServer, type IncomingMessage, type RequestListener, type Server} from 'node:http'
import {createServer as createSecureServer} from 'node:https'
import {type AddressInfo, createServer as createTcpServer} from 'node:net'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, before, describe, test} from 'node:test'
import type {TLSSocket} from 'node:tls'
import {fileURLToPath} from 'node:url'
import {CERTIFICATE_BYTES_MAX, createHttpExecutor} from '../../src/executors/http.ts'
import {NetworkGuard} from '../../src/platform/network-guard.ts'
import type {Executor, RunEnd} from '../../src/ports/executor.ts'
import {exerciseExecutor} from './exercise-executor.ts'
import {aRun, KeepingSink, realClock} from './support.ts'

async function serve(
  listener: RequestListener,
): Promise<{server: Server; url: string; port: number}> {
  const server = createServer(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const {port} = server.address() as AddressInfo
  return {server, url: `http://127.0.0.1:${port}`, port}
}

function anExecutor(allow: string[] = [], deny: string[] = []): Executor {
  return createHttpExecutor({clock: realClock, guard: new NetworkGuard(allow, deny)})
}

async function run(
  config: Record<string, string>,
  executor = anExecutor(),
): Promise<RunEnd & {text: string}> {
  const sink = new KeepingSink()
  const end = await executor.start(aRun(config), sink).ended
  return {...end, text: sink.text}
}

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = ''
  for await (const chunk of request) body += String(chunk)
  return body
}

describe('http', () => {
  let main: Awaited<ReturnType<typeof serve>>
  let other: Awaited<ReturnType<typeof serve>>

  before(async () => {
    // Answers what it was asked, so that a test sees what really travelled.
    other = await serve((request, response) => {
      response.end(JSON.stringify({method: request.method, headers: request.headers}))
    })
    main = await serve((request, response) => {
      answer(request, response).catch(() => response.destroy())
    })
  })
  after(() => {
    for (const {server} of [main, other]) {
      server.closeAllConnections()
      server.close()
    }
  })

  const answer = async (
    request: IncomingMessage,
    response: Parameters<RequestListener>[1],
  ): Promise<void> => {
    const url = new URL(request.url!, 'http://x')
    const status = Number(url.searchParams.get('status') ?? 200)
    if (url.pathname === '/echo') {
      const body = await bodyOf(request)
      response.end(JSON.stringify({method: request.method, headers: request.headers, body}))
    } else if (url.pathname === '/hello') response.writeHead(status).end('hello')
    else if (url.pathname === '/hang') response.write('ready')
    else if (url.pathname === '/silent') return
    else if (url.pathname === '/drop') response.write('part', () => response.destroy())
    else if (url.pathname === '/flood') {
      const chunk = Buffer.alloc(64 * 1024)
      const more = (): void => {
        while (!response.destroyed && response.write(chunk));
      }
      response.on('drain', more)
      more()
    } else if (url.pathname === '/split') {
      response.write('the need')
      await new Promise((resolve) => setImmediate(resolve))
      response.end('le is here')
    } else if (url.pathname === '/redirect') {
      response.writeHead(status, {location: url.searchParams.get('to')!}).end('moved')
    } else if (url.pathname === '/loop') response.writeHead(302, {location: '/loop'}).end()
    else response.writeHead(404).end('nothing here')
  }

  exerciseExecutor(
    'http',
    async () => ({executor: anExecutor(), close: async () => undefined}),
    () => ({
      succeeding: {url: `${main.url}/hello`},
      failing: {url: `${main.url}/hello?status=500`},
      waiting: {url: `${main.url}/hang`},
      flooding: {url: `${main.url}/flood`},
      timingOut: {url: `${main.url}/silent`, timeout: '0.1'},
      wrong: {url: 'ftp://x/', timeout: 'soon'},
    }),
  )

  test('method, headers and body are sent as written, in each notation of headers', async () => {
    for (const headers of [
      '["X-A: one", "X-B: t: w o"]',
      '{"X-A": "one", "X-B": "t: w o"}',
      'X-A: one\r\nX-B: t: w o',
    ]) {
      const end = await run({url: `${main.url}/echo`, method: 'post', headers, body: 'grüße'})
      const seen = JSON.parse(end.text) as {
        method: string
        headers: Record<string, string>
        body: string
      }
      assert.deepEqual(
        [seen.method, seen.body, seen.headers['x-a'], seen.headers['x-b']],
        ['POST', 'grüße', 'one', 't: w o'],
      )
    }
  })

  test('secrets are put in place in url, headers and body, and never parsed', async () => {
    const secrets = {token: 'to"k,en', part: 'a/b?c', whole: `${main.url}/hello`, line: 'x\r\nB: y'}
    const runWith = async (config: Record<string, string>) => {
      const sink = new KeepingSink()
      const end = await anExecutor().start(aRun(config, {secrets}), sink).ended
      return {...end, text: sink.text}
    }
    for (const headers of ['{"X-A": "t ${secret:token}"}', 'X-A: t ${secret:token}']) {
      const body = '{"v": "${secret:part}"}'
      const {text} = await runWith({url: `${main.url}/echo`, method: 'POST', headers, body})
      const seen = JSON.parse(text) as {body: string; headers: Record<string, string>}
      assert.deepEqual([seen.body, seen.headers['x-a']], ['{"v": "a/b?c"}', 't to"k,en'])
    }
    assert.equal((await runWith({url: '${secret:whole}'})).text, 'hello')
    const inPath = await runWith({url: `${main.url}/x/\${secret:part}`, debug: 'true'})
    assert.match(inPath.text, /> GET \S+\/x\/a%2Fb%3Fc\n/)
    const split = await runWith({url: `${main.url}/echo`, headers: 'X-A: ${secret:line}'})
    assert.match(split.foot, /value of X-A contains a character/)
    assert.ok(!split.foot.includes('B: y'))
    const checked = anExecutor().check({url: '${secret:whole}', headers: 'X-A: ${secret:token}'})
    assert.deepEqual(checked, {problems: [], warnings: []})
  })

  test('user and password of the url become a header and never appear in the output', async () => {
    const end = await run({
      url: `${main.url}/echo`.replace('//', '//ann:s%20ecret@'),
      debug: 'true',
      expectCode: '201',
    })
    const seen = JSON.parse(end.text.slice(end.text.indexOf('{'))) as {
      headers: Record<string, string>
    }
    assert.equal(
      seen.headers['authorization'],
      `Basic ${Buffer.from('ann:s ecret').toString('base64')}`,
    )
    assert.doesNotMatch(`${end.text.slice(0, end.text.indexOf('{'))}${end.foot}`, /ecret/)
    assert.match(end.text, /^> GET http:\/\/127\.0\.0\.1:\d+\/echo\n< 200\n/)
  })

  test('the status determines the outcome', async () => {
    const rows = [
      ['', 200, true],
      ['', 204, true],
      ['', 404, false],
      ['200,201', 201, true],
      ['200, 201', 202, false],
      ['2xx,404', 404, true],
      ['400-404', 403, true],
      ['400-404', 405, false],
    ] as const
    for (const [expectCode, status, well] of rows) {
      const end = await run({url: `${main.url}/hello?status=${status}`, expectCode})
      assert.equal(end.outcome, well ? 'succeeded' : 'failed', `${expectCode} ${status}`)
      if (!well)
        assert.match(end.foot, new RegExp(`^the response has status ${status}, expected .+\n$`))
    }
  })

  test('expectBody is found across chunk boundaries; if it is missing, the execution fails', async () => {
    assert.equal((await run({url: `${main.url}/split`, expectBody: 'needle'})).outcome, 'succeeded')
    const end = await run({url: `${main.url}/split`, expectBody: 'haystack'})
    assert.deepEqual(
      [end.outcome, end.foot],
      ['failed', 'the response does not contain "haystack"\n'],
    )
  })

  test('connection errors are explained in the output', async () => {
    const closed = createTcpServer()
    await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve))
    const {port} = closed.address() as AddressInfo
    await new Promise((resolve) => closed.close(resolve))
    assert.match(
      (await run({url: `http://127.0.0.1:${port}/`})).foot,
      /refused the connection \(ECONNREFUSED\)\n$/,
    )
    const dropped = await run({url: `${main.url}/drop`})
    assert.match(dropped.foot, /^the request failed: .+\n$/)
    assert.equal(dropped.text, 'part')
    const missing = await run({url: main.url, tlsRootCAsFile: '/no/such.pem'})
    assert.match(missing.foot, /^the file \/no\/such\.pem could not be read/)
  })

  test('redirects are followed as in browsers', async () => {
    const to = encodeURIComponent('/echo')
    const rows = [
      [301, 'POST', 'GET', ''],
      [302, 'POST', 'GET', ''],
      [303, 'PUT', 'GET', ''],
      [307, 'POST', 'POST', 'data'],
      [308, 'PUT', 'PUT', 'data'],
    ] as const
    for (const [status, method, arrived, body] of rows) {
      const url = `${main.url}/redirect?status=${status}&to=${to}`
      const end = await run({
        url,
        method,
        body: 'data',
        headers: '{"Authorization": "Bearer t0ken"}',
      })
      const seen = JSON.parse(end.text) as {
        method: string
        headers: Record<string, string>
        body: string
      }
      assert.deepEqual([seen.method, seen.body], [arrived, body], String(status))
      assert.equal(seen.headers['authorization'], 'Bearer t0ken')
    }
  })

  test('a redirect to another origin drops credentials in all headers', async () => {
    const url = `${main.url}/redirect?status=302&to=${encodeURIComponent(other.url)}`
    const headers = '{"Authorization": "t", "Cookie": "t", "X-Api-Key": "t", "Accept": "text/x"}'
    const seen = JSON.parse((await run({url, headers})).text) as {headers: Record<string, string>}
    assert.deepEqual(
      ['authorization', 'cookie', 'x-api-key', 'accept'].map((name) => seen.headers[name]),
      [undefined, undefined, undefined, 'text/x'],
    )
    const withBody = await run({url: url.replace('302', '307'), method: 'POST', body: 'secret'})
    assert.match(withBody.foot, /^redirected with its body to another origin/)
  })

  test('redirect loops and redirects to other protocols fail', async () => {
    assert.match((await run({url: `${main.url}/loop`})).foot, /^more than 5 redirects/)
    const file = await run({
      url: `${main.url}/redirect?status=302&to=${encodeURIComponent('file:///etc/passwd')}`,
    })
    assert.match(file.foot, /^redirected to "file:\/\/\/etc\/passwd", which is not an http/)
    const expected = await run({url: `${main.url}/redirect?status=302&to=/loop`, expectCode: '302'})
    assert.deepEqual([expected.outcome, expected.text], ['succeeded', 'moved'])
  })

  test('link-local and metadata addresses are denied in every notation, and after redirects', async () => {
    const targets = [
      'http://169.254.169.254/latest/meta-data',
      'http://[::ffff:169.254.169.254]/',
      'http://[fe80::1]/',
      'http://[fd00:ec2::254]/',
      'http://[64:ff9b::a9fe:a9fe]/',
      'http://[64:ff9b:1::a9fe:a9fe]/',
      'http://[64:ff9b:1:a9fe:a9:fe00::]/',
      'http://[64:ff9b:1:aaa9:fe:a9fe::]/',
      'http://[64:ff9b:1:aa:00a9:fea9:fe00:0]/',
      'http://[::ffff:0:169.254.169.254]/',
      'http://[2002:a9fe:a9fe::1]/',
      'http://2852039166/',
      'http://0xa9fea9fe/',
      'http://100.100.100.200/',
    ]
    for (const url of targets) {
      const end = await run({url})
      assert.equal(end.outcome, 'failed', url)
      assert.match(end.foot, /is a link-local or cloud metadata address/, url)
    }
    const to = encodeURIComponent('http://169.254.169.254/latest')
    const redirected = await run({url: `${main.url}/redirect?status=302&to=${to}`})
    assert.match(redirected.foot, /^169\.254\.169\.254 is a link-local/)
    const allowed = await run({url: targets[0]!}, anExecutor(['169.254.0.0/16']))
    assert.match(allowed.foot, /link-local/)
  })

  test('net-deny also applies to host names, and net-allow overrides it', async () => {
    const denying = anExecutor([], ['127.0.0.0/8', '::1'])
    assert.match(
      (await run({url: `${main.url}/hello`}, denying)).foot,
      /^127\.0\.0\.1 is denied on this node/,
    )
    const byName = await run({url: `http://localhost:${main.port}/hello`}, denying)
    assert.match(byName.foot, /^localhost: .+ is denied on this node/)
    // The handshake is denied too: an open and a closed port must not differ.
    for (const host of ['0.0.0.0', '0', '[::]', '[::ffff:0:0]'])
      assert.match(
        (await run({url: `http://${host}:${main.port}/hello`}, denying)).foot,
        /^[0.:f]+ is denied on this node/,
        host,
      )
    const excepting = anExecutor(['127.0.0.1'], ['0.0.0.0/0', '::/0'])
    assert.equal((await run({url: `${main.url}/hello`}, excepting)).outcome, 'succeeded')
    assert.equal(
      (await run({url: `http://localhost:${main.port}/hello`}, excepting)).outcome,
      'succeeded',
    )
  })

  test('each invalid parameter is reported by name', () => {
    const rows = [
      [{url: 'example.com'}, /^url must be/],
      [{url: 'http://a%@b/'}, /^url must percent-encode its user/],
      [
        {url: 'http://a/', headers: '{"X-A": "$\\u007bsecret:db}"}'},
        /^headers must name a secret without escapes/,
      ],
      [{method: 'BREW'}, /^method must be one of GET/],
      [{headers: '["nonsense"]'}, /^headers must be/],
      [{headers: '[1]'}, /^headers must be/],
      [{headers: '{"A": 1}'}, /^headers must be/],
      [{headers: '[broken'}, /^headers must be/],
      [{headers: '{"A": "x\\r\\ny"}'}, /^headers: the value of A contains/],
      [{headers: '{"A B": "x"}'}, /^headers: "A B" is not a header name/],
      [
        {headers: 'Transfer-Encoding: chunked'},
        /^headers cannot set Transfer-Encoding: it belongs to the connection/,
      ],
      [{body: 'x'}, /^body cannot be sent with GET/],
      [{timeout: '0'}, /^timeout must be/],
      [{timeout: 'x'}, /^timeout must be/],
      [{expectCode: 'ok'}, /^expectCode must be/],
      [{debug: 'maybe'}, /^debug must be/],
      [{tlsNoVerifyPeer: 'maybe'}, /^tlsNoVerifyPeer must be/],
      [{tlsRootCAsFile: 'ca.pem'}, /^tlsRootCAsFile must be an absolute path/],
      [
        {tlsCertificateFile: '/c.pem'},
        /^tlsCertificateFile and tlsCertificateKeyFile must be set together/,
      ],
    ] as const
    for (const [config, expected] of rows) {
      const {problems} = anExecutor().check(config)
      assert.equal(problems.length, 1, JSON.stringify([config, problems]))
      assert.match(problems[0]!, expected)
    }
  })

  test('no connection stays open after the end', async () => {
    await run({url: `${main.url}/hello`})
    await run({url: `${main.url}/redirect?status=302&to=/hello`})
    const count = (): Promise<number> =>
      new Promise((resolve, reject) => {
        main.server.getConnections((error, open) =>
          error === null ? resolve(open) : reject(error),
        )
      })
    const deadline = performance.now() + 5_000
    while ((await count()) > 0) {
      assert.ok(performance.now() < deadline, 'connections stay open')
      await new Promise((resolve) => setImmediate(resolve))
    }
  })

  test('certificates are read from regular files only: a device or a pipe has no end', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'belfry-http-'))
    try {
      const pipe = join(directory, 'pipe')
      execFileSync('mkfifo', [pipe])
      const large = join(directory, 'large')
      writeFileSync(large, '')
      truncateSync(large, CERTIFICATE_BYTES_MAX + 1)
      for (const [path, says] of [
        ['/dev/zero', /is not a regular file/],
        [pipe, /is not a regular file/],
        [directory, /is not a regular file/],
        [large, /is larger than/],
      ] as const) {
        const end = await run({url: main.url, tlsRootCAsFile: path})
        assert.equal(end.outcome, 'failed', path)
        assert.match(end.foot, says)
      }
    } finally {
      rmSync(directory, {recursive: true})
    }
  })

  test('unknown certificates are rejected; a named CA and client certificates work', async () => {
    const file = (name: string): string =>
      fileURLToPath(new URL(`fixtures/${name}`, import.meta.url))
    const [cert, key] = [file('localhost.pem'), file('localhost-key.pem')]
    const options = {
      cert: readFileSync(cert),
      key: readFileSync(key),
      ca: readFileSync(cert),
      requestCert: true,
    }
    const server = createSecureServer(
      {...options, rejectUnauthorized: false},
      (request, response) => {
        response.end((request.socket as TLSSocket).authorized ? 'known client' : 'any client')
      },
    )
    await new Promise<void>((resolve) => {
      server.listen(0, '127.0.0.1', () => resolve())
    })
    const url = `https://localhost:${(server.address() as AddressInfo).port}/`
    try {
      const refused = await run({url})
      assert.equal(refused.outcome, 'failed')
      assert.match(refused.foot, /self.signed certificate/)
      assert.equal((await run({url, tlsNoVerifyPeer: 'true'})).text, 'any client')
      assert.equal((await run({url, tlsRootCAsFile: cert})).text, 'any client')
      const both = {tlsCertificateFile: cert, tlsCertificateKeyFile: key}
      assert.equal((await run({url, tlsRootCAsFile: cert, ...both})).text, 'known client')
    } finally {
      server.closeAllConnections()
      server.close()
    }
  })
})

test('an invalid network range fails the start', () => {
  assert.throws(
    () => new NetworkGuard(['10.0.0.0/99'], []),
    /--net-allow "10\.0\.0\.0\/99" is not a CIDR range/,
  )
})
