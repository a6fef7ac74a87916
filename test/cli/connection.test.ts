/** Client commands and servers that are silent, gone, or speak another protocol; errors as JSON. */
import assert from 'node:assert/strict'
import {createServer as createHttps} from 'node:https'
import {createServer, type AddressInfo, type Server, type Socket} from 'node:net'
import {test, type TestContext} from 'node:test'
import {CERTIFICATE, PRIVATE_KEY} from '../support/certificate.ts'
import {cannedServer, json} from './canned-server.ts'
import {runHere} from './run-cli.ts'

async function listen(t: TestContext, server: Server): Promise<string> {
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve)
  })
  const sockets: Socket[] = []
  server.on('connection', (socket: Socket) => void sockets.push(socket))
  t.after(() => {
    server.close()
    for (const socket of sockets) socket.destroy()
  })
  return `127.0.0.1:${(server.address() as AddressInfo).port}`
}

/** Accepts connections and never replies. */
async function silent(t: TestContext) {
  const state = {connections: 0}
  const server = createServer((socket) => {
    state.connections += 1
    socket.on('error', () => {})
  })
  return {address: await listen(t, server), state}
}

/** An address where nothing listens. */
async function gone(): Promise<string> {
  const server = await cannedServer(() => {})
  await server.close()
  return server.url
}

async function answering(t: TestContext) {
  const server = await cannedServer((_asked, response) =>
    json(response, 200, {name: 'backup'}, {'x-launch-id': '7'}),
  )
  t.after(() => server.close())
  return server
}

test('a silent server ends every command in time', async (t) => {
  const {address} = await silent(t)
  for (const argv of [
    ['busy'],
    ['jobs', 'run', 'x'],
    ['backup', '-'],
    ['restore', import.meta.filename],
    ['--server', `https://${address}`, 'busy'],
  ]) {
    const ran = await runHere(['--server', address, '--timeout', '100ms', ...argv])
    assert.equal(ran.code, 1)
    assert.match(ran.err, /did not reply within 100ms|it does not answer/)
  }
  const env = {BELFRY_TIMEOUT: '100ms', BELFRY_SERVER: address}
  assert.match((await runHere(['jobs', 'toggle', 'x'], {env})).err, /It may be done: check before/)
  for (const timeout of ['0', '5', '2d'])
    assert.equal((await runHere(['--timeout', timeout, 'busy'])).code, 2)
})

test('a stream that stops to send is given up, and one with keep-alives is not', async (t) => {
  const end = {id: '1-a-1', status: 'succeeded', head: '', foot: ''}
  let calls = 0
  const server = await cannedServer((_asked, response) => {
    calls += 1
    response.writeHead(200, {'content-type': 'text/event-stream'})
    response.write('event: output\nid: 1\ndata: {"text":"one"}\n\n')
    if (calls === 1) return
    // Five keep-alives last longer than the time-out.
    let sent = 0
    const timer = setInterval(() => {
      response.write(': \n\n')
      if (++sent < 5) return
      clearInterval(timer)
      response.end(`event: end\ndata: ${JSON.stringify(end)}\n\n`)
    }, 60)
  })
  t.after(() => server.close())
  const options = ['--server', server.url, '--timeout', '200ms']
  const ran = await runHere([...options, 'runs', 'output', 'x', '1-a-1', '-f'])
  assert.deepEqual([ran.code, ran.out, calls], [0, 'oneone', 2])
})

test('the next of several servers is tried, and nothing is done twice', async (t) => {
  const one = await answering(t)
  const dead = await gone()
  const {address, state} = await silent(t)
  const run = (servers: string, ...argv: string[]) =>
    runHere(['--timeout', '100ms', '--server', servers, ...argv])
  assert.equal((await run(`${dead}, ${one.url}`, 'jobs', 'toggle', 'x')).code, 0)
  assert.equal((await run(`${address},${one.url}`, 'jobs', 'show', 'x', '--json')).code, 0)
  // A run has a key: servers of one cluster do it once.
  const ran = await run(`${address},${one.url}`, 'jobs', 'run', 'x')
  assert.equal(ran.out, 'backup will run as launch 7\n')
  assert.equal(one.asked.at(-1)!.headers['idempotency-key'], 'a-key')
  const before = one.asked.length
  const doubtful = await run(`${address},${one.url}`, 'jobs', 'toggle', 'x')
  assert.match(doubtful.err, /did not reply within 100ms\. It may be done/)
  assert.equal(one.asked.length, before, 'a toggle that may be done is not repeated')
  assert.equal(state.connections, 3)
  const none = await run(`${dead},${address}`, 'busy')
  assert.match(
    none.err,
    /^belfry: No server replies: http:\S+ \(ECONNREFUSED\), http:\S+ \(it does/,
  )
})

test('the wrong protocol is named', async (t) => {
  const tls = createHttps({cert: CERTIFICATE, key: PRIVATE_KEY}, (_request, response) => {
    response.end('{}')
  })
  const address = await listen(t, tls)
  const plain = await runHere(['--server', address, 'busy'])
  assert.match(plain.err, /answers only with TLS\. Use https:\/\/127/)
  const untrusted = await runHere(['--server', `https://${address}`, 'busy'])
  assert.match(untrusted.err, /The certificate of https:\S+ is not trusted \(.*SELF_SIGNED/)
  const {url} = await answering(t)
  const wrong = await runHere(['--server', url.replace('http:', 'https:'), 'busy'])
  assert.match(wrong.err, /answers, but not with TLS\. Use http:\/\/127/)
})

test('with --json an error is one JSON document on standard error', async (t) => {
  const detail = 'Another launch is open. Wait for its end, cancel it, or add ?force=true.'
  const problems = [{name: 'a', problem: 'schedule: is wrong'}]
  const server = await cannedServer(({line}, response) => {
    if (line.endsWith('/run')) return json(response, 409, {code: 'launch_open', detail})
    json(response, 400, {code: 'restore_invalid', detail: 'No.', errors: problems})
  })
  t.after(() => server.close())
  const errorOf = async (code: number, ...argv: string[]) => {
    const ran = await runHere(['--server', server.url, '--json', ...argv])
    assert.deepEqual([ran.code, ran.out], [code, ''])
    return (JSON.parse(ran.err) as {error: unknown}).error
  }
  assert.deepEqual(await errorOf(1, 'jobs', 'run', 'x'), {
    code: 'launch_open',
    message: `${detail} To run it anyway, use --force.`,
    status: 409,
  })
  assert.deepEqual(await errorOf(1, 'restore', import.meta.filename), {
    code: 'restore_invalid',
    message: 'No.',
    status: 400,
    errors: problems,
  })
  const usage = (await errorOf(2, 'jobs', 'list', '--limit', '0')) as {code: string}
  assert.equal(usage.code, 'usage')
  const missing = (await errorOf(1, 'restore', '/absent')) as {code: string}
  assert.equal(missing.code, 'failed')
  const none = (await errorOf(1, '--server', await gone(), 'busy')) as {code: string}
  assert.equal(none.code, 'unreachable')
})
