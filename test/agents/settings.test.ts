/** Settings of an agent: values, defaults and refusals. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {AGENT_SLOTS_MAX, loadAgentConfig} from '../../src/config/agent.ts'
import type {Host} from '../../src/config/read.ts'
import {FINISHING_PER_SLOT_MAX} from '../../src/node/runner.ts'
import {agentUrl} from '../../src/agents/client/socket.ts'
import {CLAIMS_MAX} from '../../src/agents/protocol.ts'

const HOST: Host = {
  name: 'press room',
  cores: 2,
  timezone: 'UTC',
  directory: '/srv',
  readFile: (path) => {
    if (path === '/srv/scraper') return 'a-token-of-the-tests\n'
    if (path === '/srv/agent.yaml') return 'server: [http://a:1, http://b:2]\ntag: {place: far}\n'
    throw Object.assign(new Error(path), {code: 'ENOENT'})
  },
}

function loaded(argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const result = loadAgentConfig(argv, env, HOST)
  assert.ok(result.ok, result.ok ? '' : result.problem)
  return result.config
}

test('the URL of a server may lack its scheme', () => {
  assert.deepEqual(loaded(['--server', '127.0.0.1:8080']).servers, ['http://127.0.0.1:8080'])
})

test('the claims of an agent with the most slots fit into a heartbeat', () => {
  // Running executions, claims ahead, and undelivered results.
  assert.ok(AGENT_SLOTS_MAX * (2 + FINISHING_PER_SLOT_MAX) <= CLAIMS_MAX)
  assert.equal(loaded(['--slots', `${AGENT_SLOTS_MAX}`]).slots, AGENT_SLOTS_MAX)
  const more = loadAgentConfig(['--slots', `${AGENT_SLOTS_MAX + 1}`], {}, HOST)
  assert.ok(!more.ok && more.problem.includes(`${AGENT_SLOTS_MAX}`))
})

test('an agent without settings joins the server of this machine', () => {
  const config = loaded([])
  assert.deepEqual(config.servers, ['http://127.0.0.1:8080'])
  assert.deepEqual([config.nodeName, config.slots], ['press-room', 256])
  assert.deepEqual([config.token, config.dataDirectory], [null, '/srv/belfry-agent-data'])
  assert.deepEqual(config.warnings, [])
  assert.equal(config.metrics, null)
})

test('flags beat the environment, which beats the file', () => {
  const file = ['--config', 'agent.yaml']
  assert.deepEqual(loaded(file).servers, ['http://a:1', 'http://b:2'])
  assert.deepEqual(loaded(file).tags, {place: 'far'})
  const env = {BELFRY_SERVER: 'http://c:3, https://d:4/v1/', BELFRY_HTTP: '0.0.0.0:1'}
  assert.deepEqual(loaded(file, env).servers, ['http://c:3', 'https://d:4'])
  assert.deepEqual(loaded([...file, '--server', 'http://e:5'], env).servers, ['http://e:5'])
})

test('metrics of an agent are for this machine, or for those with a token', () => {
  const local = loaded(['--metrics', '127.0.0.1:9464'])
  assert.deepEqual([local.metrics?.port, local.metricsToken], [9464, null])
  const token = ['--metrics-token-file', 'scraper', '--metrics-insecure']
  assert.equal(loaded(['--metrics', '0.0.0.0:9464', ...token]).metricsToken, 'a-token-of-the-tests')
})

const REFUSED: readonly (readonly [readonly string[], RegExp])[] = [
  [
    ['--server', 'host:port'],
    /^--server must be the URL of a server such as \S+, not "host:port"\.$/,
  ],
  [['--server', 'http://user:secret@host'], /^--server must be the URL of a server such as \S+\.$/],
  [['--tag', 'server=true'], /^--tag cannot set the tag "server"/],
  [['--token', 'short'], /^--token must have at least/],
  [['--slots', '5000'], /^--slots of an agent must be at most 4000/],
  [['--tls-ca', 'gone.pem'], /^--tls-ca cannot be read: gone\.pem does not exist/],
  [['--http', '1:2'], /See belfry agent --help\.$/],
  [
    ['--metrics', '0.0.0.0:9464'],
    /^--metrics 0\.0\.0\.0:9464 requires a token: .* set --metrics-token-file and either --metrics-tls-cert/,
  ],
  [
    ['--metrics', '0.0.0.0:9464', '--metrics-token-file', 'scraper'],
    /^--metrics 0\.0\.0\.0:9464 requires TLS: .* or --metrics-insecure if a proxy terminates TLS\.$/,
  ],
  [['--metrics-tls-cert', 'a.pem'], /^--metrics-tls-cert requires --metrics-tls-key\.$/],
]
for (const [argv, sentence] of REFUSED)
  test(`${argv.join(' ')} is refused`, () => {
    const result = loadAgentConfig(argv, {}, HOST)
    assert.match(result.ok ? '' : result.problem, sentence)
  })

test('a token sent unencrypted to another machine causes a warning', () => {
  const token = ['--token', 'a-token-of-the-tests']
  const warned = (url: string) => loaded(['--server', url, ...token]).warnings.length
  assert.deepEqual(
    ['http://10.0.0.1:1', 'http://host', 'https://host', 'http://[::1]:1', 'http://localhost'].map(
      warned,
    ),
    [1, 1, 0, 0, 0],
  )
})

test('the WebSocket address is derived from the server URL', () => {
  assert.equal(agentUrl('http://host:8080'), 'ws://host:8080/v1/agent')
  assert.equal(agentUrl('https://host'), 'wss://host/v1/agent')
})
