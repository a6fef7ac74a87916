/** Settings of a server, and the error message for each invalid setting. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {assertLimits, checkedLimits, LIMITS} from '../../src/config/limits.ts'
import {environmentName, OPTIONS} from '../../src/config/options.ts'
import type {Host} from '../../src/config/read.ts'
import {nearest} from '../../src/lib/nearest.ts'
import {type Config, loadConfig} from '../../src/config/server.ts'
import {parseAddress} from '../../src/store/postgres/url.ts'
import {CERTIFICATE, OTHER_KEY, PRIVATE_KEY} from '../support/certificate.ts'

const TOKEN = 'sixteen-characters-or-more'

const PROVIDER =
  '--oidc-issuer https://login.example.org/realm --oidc-client-id belfry ' +
  '--public-url https://belfry.example.org'

function host(files: Readonly<Record<string, string>> = {}, more: Partial<Host> = {}): Host {
  return {
    name: 'tower',
    cores: 4,
    timezone: 'Europe/Berlin',
    directory: '/home/keeper',
    readFile: (path) => {
      const text = files[path]
      if (text === undefined) throw Object.assign(new Error('no'), {code: 'ENOENT'})
      return text
    },
    ...more,
  }
}

type Env = Readonly<Record<string, string | undefined>>

function accepted(argv: readonly string[], env: Env = {}, machine = host()): Config {
  const loaded = loadConfig(argv, env, machine, parseAddress)
  assert.ok(loaded.ok, loaded.ok ? '' : loaded.problem)
  return loaded.config
}

function refused(argv: readonly string[], env: Env = {}, machine = host()): string {
  const loaded = loadConfig(argv, env, machine, parseAddress)
  assert.ok(!loaded.ok, `${argv.join(' ')} is refused`)
  assert.match(loaded.problem, /^[^\n]+\.$/, 'one sentence')
  return loaded.problem
}

test('without settings, a server serves this machine only', () => {
  const {limits, ...config} = accepted([])
  assert.deepEqual(config, {
    http: {host: '127.0.0.1', port: 8080, loopback: true},
    dataDirectory: '/home/keeper/belfry-data',
    store: {engine: 'sqlite'},
    nodeName: 'tower',
    tags: {},
    token: null,
    tls: null,
    insecure: false,
    secretKeyFile: null,
    discardSecrets: false,
    newStore: false,
    allowHosts: [],
    corsOrigins: [],
    oidc: null,
    sessionIdleMs: 1_800_000,
    sessionMaxMs: 43_200_000,
    timezone: 'Europe/Berlin',
    isTimezoneSet: false,
    slots: 256,
    run: true,
    ui: true,
    publicUrl: '',
    graceMs: 30_000,
    lateAfterMs: 30_000,
    targetWaitMs: 600_000,
    defaultTarget: 'one',
    runsPerMinute: 6_000,
    metricsJobs: [],
    keepLaunches: 1_000,
    keepExecutions: 100,
    keepMs: 400 * 86_400_000,
    keepOutputBytes: 2 * 2 ** 30,
    keepLeftMs: 86_400_000,
    keepFailedMs: 259_200_000,
    keepAuditMs: 34_560_000_000,
    keepAuditEntries: 250_000,
    keepAuditBytes: 2 ** 30,
    backup: {directory: null, schedule: '@daily', keep: 7},
    syslogUrl: null,
    logRoot: null,
    netAllow: [],
    netDeny: [],
    suAllow: [],
    executorAllow: [],
    logLevel: 'info',
    logFormat: 'auto',
    warnings: [],
  })
  assert.equal(limits.bodyBytesMax, LIMITS.bodyBytesMax.value)
})

test('the configuration is deeply frozen', () => {
  const config = accepted(['--tag', 'a=b'])
  for (const part of [config, config.http, config.tags, config.allowHosts, config.limits])
    assert.ok(Object.isFrozen(part))
})

test('a machine has 64 slots per core, and at least 256', () => {
  assert.equal(accepted([], {}, host({}, {cores: 1})).slots, 256)
  assert.equal(accepted([], {}, host({}, {cores: 8})).slots, 512)
})

for (const [name, expected] of [
  ['db-1.example.org', 'db-1.example.org'],
  ['müller laptop', 'm-ller-laptop'],
  ['x'.repeat(80), 'x'.repeat(63)],
  ['', 'belfry'],
] as const)
  test(`host name ${JSON.stringify(name.slice(0, 20))} becomes a node name`, () => {
    assert.equal(accepted([], {}, host({}, {name})).nodeName, expected)
  })

test('a host with an unknown time zone uses UTC', () => {
  assert.equal(accepted([], {}, host({}, {timezone: 'Etc/Unknown'})).timezone, 'UTC')
})

/** Text of each setting, and its value. */
const WRITTEN: readonly (readonly [
  option: string,
  text: string,
  read: (c: Config) => unknown,
  expected: unknown,
])[] = [
  ['http', 'localhost:0', (c) => c.http, {host: 'localhost', port: 0, loopback: true}],
  ['data', 'd', (c) => c.dataDirectory, '/home/keeper/d'],
  [
    'store',
    'postgres://u:p@a:1,b:2/x',
    (c) => c.store,
    {engine: 'postgres', url: 'postgres://u:p@a:1,b:2/x'},
  ],
  ['public-url', 'https://belfry.example.org/', (c) => c.allowHosts, ['belfry.example.org']],
  ['session-idle', '5m', (c) => c.sessionIdleMs, 300_000],
  ['session-max', '1h', (c) => c.sessionMaxMs, 3_600_000],
  ['name', 'n.1_a-B', (c) => c.nodeName, 'n.1_a-B'],
  ['tag', 'disk=fast=yes', (c) => c.tags, {disk: 'fast=yes'}],
  ['token', TOKEN, (c) => c.token, TOKEN],
  ['token-file', 'token', (c) => c.token, TOKEN],
  ['insecure', 'true', (c) => c.insecure, true],
  ['secret-key-file', 'keys/secret', (c) => c.secretKeyFile, '/home/keeper/keys/secret'],
  ['new-store', 'true', (c) => c.newStore, true],
  ['discard-secrets', 'true', (c) => c.discardSecrets, true],
  ['allow-host', 'Jobs.Example.org', (c) => c.allowHosts, ['jobs.example.org']],
  ['cors-origin', 'HTTPS://Ops.Example.org:443', (c) => c.corsOrigins, ['https://ops.example.org']],
  ['timezone', 'america/new_york', (c) => c.timezone, 'America/New_York'],
  ['timezone', 'UTC', (c) => c.isTimezoneSet, true],
  ['slots', '3', (c) => c.slots, 3],
  ['no-run', 'true', (c) => c.run, false],
  ['no-ui', 'true', (c) => c.ui, false],
  ['grace', 'infinite', (c) => c.graceMs, Infinity],
  ['late-after', '1m30s', (c) => c.lateAfterMs, 90_000],
  ['target-wait', '0', (c) => c.targetWaitMs, 0],
  ['default-target', 'all', (c) => c.defaultTarget, 'all'],
  ['run-rate', '30', (c) => c.runsPerMinute, 30],
  ['metrics-jobs', 'backup-*', (c) => c.metricsJobs, ['backup-*']],
  ['keep-launches', '7', (c) => c.keepLaunches, 7],
  ['keep-executions', '7', (c) => c.keepExecutions, 7],
  ['keep-days', '2', (c) => c.keepMs, 172_800_000],
  ['keep-output-bytes', '1.5MiB', (c) => c.keepOutputBytes, 1_572_864],
  ['keep-left', '1m', (c) => c.keepLeftMs, 60_000],
  ['keep-failed', '7d', (c) => c.keepFailedMs, 604_800_000],
  ['keep-audit-days', '2', (c) => c.keepAuditMs, 172_800_000],
  ['keep-audit-entries', '7', (c) => c.keepAuditEntries, 7],
  ['backup-dir', '/backups', (c) => c.backup.directory, '/backups'],
  ['backup-schedule', '@hourly', (c) => c.backup.schedule, '@hourly'],
  ['backup-keep', '3', (c) => c.backup.keep, 3],
  ['keep-audit-bytes', '2MiB', (c) => c.keepAuditBytes, 2 ** 21],
  ['syslog', 'udp://[::1]:514', (c) => c.syslogUrl, 'udp://[::1]:514'],
  ['log-root', '/var/log/jobs', (c) => c.logRoot, '/var/log/jobs'],
  ['net-allow', '10.1.0.0/16', (c) => c.netAllow, ['10.1.0.0/16']],
  ['net-deny', 'fd00::/8', (c) => c.netDeny, ['fd00::/8']],
  ['su-allow', 'www-data:www-data', (c) => c.suAllow, ['www-data:www-data']],
  ['executor-allow', 'http', (c) => c.executorAllow, ['http']],
  ['log-level', 'debug', (c) => c.logLevel, 'debug'],
  ['log-format', 'json', (c) => c.logFormat, 'json'],
]

test('every setting except the certificate has a row in this table', () => {
  const rows = WRITTEN.map(([option]) => option)
  const missing = OPTIONS.map((option) => option.name).filter((name) => !rows.includes(name))
  // Settings that need each other have tests of their own.
  const together = ['tls-cert', 'tls-key', ...missing.filter((name) => name.startsWith('oidc-'))]
  assert.deepEqual(missing, together)
})

test('the configuration of an OpenID provider has the grants of its groups', () => {
  const files = {'/home/keeper/secret': 'the-secret\n'}
  const argv = `${PROVIDER} --oidc-map ops=management --oidc-map cn=a,ou=b=policy:team-a`.split(' ')
  const config = accepted([...argv, '--oidc-client-secret-file', 'secret'], {}, host(files))
  assert.deepEqual(config.oidc, {
    issuer: 'https://login.example.org/realm',
    clientId: 'belfry',
    clientSecret: 'the-secret',
    scope: 'openid profile email',
    groupsClaim: 'groups',
    grants: [
      {group: 'ops', grant: 'management'},
      {group: 'cn=a,ou=b', grant: {policy: 'team-a'}},
    ],
    publicUrl: 'https://belfry.example.org',
  })
  const env = {
    BELFRY_OIDC_ISSUER: 'http://127.0.0.1:8081',
    BELFRY_OIDC_CLIENT_ID: 'c',
    BELFRY_OIDC_MAP: 'all=read',
    BELFRY_OIDC_SCOPE: 'openid groups',
    BELFRY_OIDC_GROUPS_CLAIM: 'realm_access.roles',
    BELFRY_PUBLIC_URL: 'http://localhost:8080',
  }
  const {oidc} = accepted([], env)
  assert.deepEqual(
    [oidc?.issuer, oidc?.clientSecret, oidc?.scope, oidc?.groupsClaim],
    ['http://127.0.0.1:8081', null, 'openid groups', 'realm_access.roles'],
  )
  const empty = [...argv, '--oidc-client-secret-file', 'secret']
  assert.match(refused(empty, {}, host({'/home/keeper/secret': ' '})), /^The secret in secret must/)
})

for (const [option, text, read, expected] of WRITTEN)
  test(`${option} can be set by flag, environment and file`, () => {
    const files = {
      '/home/keeper/token': `${TOKEN}\n`,
      '/home/keeper/c.yaml': `${option}: '${text}'\n`,
    }
    const flag = text === 'true' ? [`--${option}`] : [`--${option}`, text]
    assert.deepEqual(read(accepted(flag, {}, host(files))), expected, 'flag')
    const env = {[environmentName(option)]: text}
    assert.deepEqual(read(accepted([], env, host(files))), expected, 'environment')
    assert.deepEqual(read(accepted(['--config', 'c.yaml'], {}, host(files))), expected, 'file')
    assert.deepEqual(
      read(accepted([], {BELFRY_CONFIG: 'c.yaml'}, host(files))),
      expected,
      'file by environment',
    )
  })

test('a flag overrides the environment, which overrides the file', () => {
  const files = {'/home/keeper/c.yaml': 'slots: 1\nkeep-days: 1\ntag: [a=file]\nname: file\n'}
  const config = accepted(
    ['--config=c.yaml', '--slots', '3', '--tag', 'a=flag', '--tag', 'b=flag'],
    {BELFRY_SLOTS: '2', BELFRY_KEEP_DAYS: '2', BELFRY_TAG: 'a=env', BELFRY_NAME: ''},
    host(files),
  )
  assert.equal(config.slots, 3)
  assert.equal(config.keepMs, 2 * 86_400_000)
  assert.equal(config.nodeName, 'file', 'an empty variable is not set')
  assert.deepEqual(config.tags, {a: 'flag', b: 'flag'}, 'lists are taken whole')
})

test('repeatable settings are comma-separated in the environment, sequences or a map in the file', () => {
  assert.deepEqual(accepted([], {BELFRY_TAG: 'a=1, b=2'}).tags, {a: '1', b: '2'})
  const file = (text: string) => accepted(['--config', 'c'], {}, host({'/home/keeper/c': text}))
  assert.deepEqual(file('tag: {a: 1, b: 010}').tags, {a: '1', b: '010'})
  assert.deepEqual(file('net-deny:\n- 10.0.0.0/8\n- 127.0.0.1\n').netDeny, [
    '10.0.0.0/8',
    '127.0.0.1',
  ])
  assert.deepEqual(file('# nothing but a comment\n').tags, {})
})

test('the environment can switch off a switch that the file sets', () => {
  const files = {'/home/keeper/c': 'no-run: true\n'}
  assert.equal(accepted(['--config', 'c'], {BELFRY_NO_RUN: 'false'}, host(files)).run, true)
})

test('unknown BELFRY_ variables cause warnings; variables of clients and jobs do not', () => {
  const env = {
    BELFRY_TOKKEN: 'x',
    BELFRY_SERVER: 'http://a',
    BELFRY_JOB: 'a',
    BELFRY_NODE: 'n',
    OTHER: '1',
  }
  assert.deepEqual(accepted([], env).warnings, [
    'BELFRY_TOKKEN is set, but Belfry has no such setting. Did you mean BELFRY_TOKEN?',
  ])
})

for (const address of [
  '127.0.0.1:0',
  '[::1]:0',
  'localhost:8080',
  '127.9.9.9:1',
  '[::ffff:127.0.0.1]:80',
])
  test(`--http ${address} requires no token`, () => {
    assert.equal(accepted(['--http', address]).http.loopback, true)
  })

for (const address of [
  '0.0.0.0:8080',
  '[::]:0',
  '10.1.2.3:80',
  'tower.example.org:80',
  '[fe80::1]:80',
  'localhost.example.org:80',
])
  test(`--http ${address} requires a token, and TLS or --insecure`, () => {
    assert.match(refused(['--http', address]), /requires a token: .* set --token and either/)
    assert.match(refused(['--http', address, '--insecure']), /requires a token: /)
    assert.match(
      refused(['--http', address, '--token', TOKEN]),
      /requires TLS: .* either --tls-cert and --tls-key, or --insecure/,
    )
    assert.equal(accepted(['--http', address, '--token', TOKEN, '--insecure']).http.loopback, false)
    const files = {'/home/keeper/c': CERTIFICATE, '/home/keeper/k': PRIVATE_KEY}
    const tls = ['--tls-cert', 'c', '--tls-key', 'k']
    const config = accepted(['--http', address, '--token', TOKEN, ...tls], {}, host(files))
    const expiresAt = Date.parse('2126-10-28T06:00:00Z')
    assert.deepEqual(config.tls, {cert: CERTIFICATE, key: PRIVATE_KEY, expiresAt})
  })

/** A command line and its error message. */
const REFUSED: readonly (readonly [argv: string, says: RegExp])[] = [
  ['--htp 1', /^Unknown option '--htp' .*Did you mean --http\?.* See belfry server --help\.$/],
  ['--prt 1', /^Unknown option '--prt' \(Did you mean --http host:port\?\)\. See belfry/],
  ['--port=1', /^Unknown option '--port=1' \(Did you mean --http host:port\?\)\. See/],
  ['--dsn x', /^Unknown option '--dsn' \(Did you mean --store /],
  ['--zzz', /^Unknown option '--zzz'\. See belfry server --help\.$/],
  ['--http', /^Option '--http <host:port>' argument missing/],
  ['extra', /^Too many arguments.* 1: extra\. See belfry server --help\.$/],
  ['--http 8080', /^--http must be host:port such as/],
  ['--http :8080', /^--http must be host:port/],
  ['--http 127.0.0.1:65536', /^--http must be host:port/],
  ['--http 127.0.0.1:x', /^--http must be host:port/],
  ['--http 300.0.0.1:80', /^--http must be host:port/],
  ['--http ::1:80', /^--http must be host:port/],
  ['--http [localhost]:80', /^--http must be host:port/],
  ['--store mysql://a', /^--store must be "sqlite" or a URL/],
  ['--store postgres://me:secret@db', /^--store names no database\.$/],
  ['--store postgres://db:abc/jobs', /^--store must name each host as name:port\.$/],
  [
    '--store postgres://db/jobs?sslmode=foo',
    /^--store has an sslmode that is not known; there are/,
  ],
  ['--store postgres://db/jobs?wat=1', /^--store has a parameter that is not known; there are/],
  ['--store postgres://me:secret%ZZ@db/jobs', /^--store has a "%" that is not followed by/],
  ['--store postgres://me:sec/ret@db/jobs', /^--store must be a URL such as postgres:/],
  ['--name a/b', /^--name must be 1 to 63/],
  ['--tag novalue', /^--tag must be key=value/],
  ['--tag =v', /^--tag must be key=value/],
  ['--tag a=', /^--tag must be key=value/],
  ...['role', 'server', 'node', 'region', 'dc', 'version', 'rpc_addr'].map((tag) => {
    const problem = new RegExp(`^--tag cannot set the tag "${tag}": Belfry sets it\\.`)
    return [`--tag ${tag}=x`, problem] as const
  }),
  ['--tag a=1 --tag a=2', /^--tag sets "a" twice/],
  ['--token short', /^--token must have at least 16 characters\.$/],
  [
    `--token ${'a'.repeat(40)}`,
    /^--token must have at least 8 different characters, .* openssl rand/,
  ],
  ['--token changemechangeme', /^--token must have at least 8 different characters/],
  ['--token-file absent', /^--token-file cannot be read: absent does not exist\.$/],
  [`--token ${TOKEN} --token-file f`, /^--token and --token-file cannot both be set\. Remove/],
  ['--tls-cert c', /^--tls-cert requires --tls-key\.$/],
  ['--tls-key k', /^--tls-key requires --tls-cert\.$/],
  ['--tls-cert absent --tls-key k', /^--tls-cert cannot be read: absent does not exist\.$/],
  [
    '--tls-cert cert --tls-key other',
    /^The certificate in cert and the key in other cannot be used: .+\. Set --tls-cert and --tls-key to/,
  ],
  [
    '--tls-cert text --tls-key other',
    /^The certificate in text and the key in other cannot be used: .+\. Set --tls-cert and --tls-key to/,
  ],
  ['--allow-host a:80', /^--allow-host must be a host name without a port/],
  ['--cors-origin *', /^--cors-origin must be scheme:\/\/host or scheme:\/\/host:port such as/],
  ['--cors-origin https://a.example/path', /^--cors-origin must be/],
  ['--cors-origin https://*.example.org', /^--cors-origin must be/],
  ['--cors-origin null', /^--cors-origin must be/],
  ['--timezone Nowhere/City', /^--timezone must be an IANA time zone/],
  ['--timezone +02:00', /^--timezone must be an IANA time zone/],
  ['--slots 0', /^--slots must be a whole number from 1 to/],
  ['--slots 2.5', /^--slots must be a whole number/],
  [
    '--grace forever',
    /^--grace must be a duration such as 30s or 1h30m, or "infinite", not "forever"\.$/,
  ],
  ['--oidc-map ops=read', /^--oidc-map requires --oidc-issuer/],
  ['--oidc-issuer https://a.b', /requires --oidc-client-id/],
  ['--oidc-issuer https://a.b --oidc-client-id c', /requires --public-url/],
  [PROVIDER, /requires --oidc-map/],
  [`${PROVIDER} --oidc-map ops=all`, /must be group=management, group=read or group=policy:name/],
  [`${PROVIDER} --oidc-map =read`, /must be group=management/],
  [`${PROVIDER} --oidc-map ops=read --oidc-scope email`, /must contain openid/],
  ['--oidc-issuer http://login.example.org', /must be an https URL/],
  [
    '--oidc-issuer https://user:secret@a.b',
    /must be an https URL such as \S+, or http on this machine\.$/,
  ],
  ['--public-url https://a.b/belfry', /^--public-url must be scheme/],
  ['--session-idle 4m', /^--session-idle must be 5m or more/],
  ['--session-idle 13h', /^--session-idle must not exceed --session-max \(12h\)/],
  ['--public-url http://belfry.example.org', /^--public-url must be an https URL/],
  ['--late-after 10ms', /^--late-after must be at least 1s/],
  ['--target-wait soon', /^--target-wait must be a duration/],
  ['--default-target some', /^--default-target must be "one" or "all"/],
  ['--keep-launches 0', /^--keep-launches must be a whole number/],
  ['--keep-days -1', /^--keep-days must be a whole number/],
  ['--keep-output-bytes 2XB', /^--keep-output-bytes must be a size/],
  ['--keep-output-bytes 99999999TiB', /^--keep-output-bytes must be a size below/],
  ['--syslog http://a', /^--syslog must be udp:\/\/host:port/],
  ['--syslog udp://', /^--syslog must be udp:\/\/host:port/],
  ['--net-deny 10.0.0.0/33', /^--net-deny must be an address or a range/],
  ['--net-allow everywhere', /^--net-allow must be an address or a range/],
  ['--su-allow a:b:c', /^--su-allow must be "user"/],
  ['--log-level loud', /^--log-level must be one of trace, debug/],
  ['--config absent.yaml', /^--config cannot be read: absent\.yaml does not exist\.$/],
]

for (const [argv, says] of REFUSED)
  test(`belfry server ${argv} is rejected`, () => {
    const files = {
      '/home/keeper/cert': CERTIFICATE,
      '/home/keeper/other': OTHER_KEY,
      '/home/keeper/text': 'no certificate',
      '/home/keeper/k': PRIVATE_KEY,
      '/home/keeper/c': CERTIFICATE,
    }
    assert.match(refused(argv.split(' '), {}, host(files)), says)
  })

test('an empty token is rejected in every source and never means "no token"', () => {
  assert.match(refused(['--token', '']), /^--token must not be empty/)
  assert.match(refused([], {BELFRY_TOKEN: ''}), /^BELFRY_TOKEN must not be empty/)
  assert.match(refused([], {BELFRY_TOKEN_FILE: ''}), /^BELFRY_TOKEN_FILE must not be empty/)
  const files = {'/home/keeper/t': '\n', '/home/keeper/c': "token: ''\n"}
  assert.match(refused(['--token-file', 't'], {}, host(files)), /^The token in t must not be empty/)
  assert.match(refused(['--config', 'c'], {}, host(files)), /^token in c must not be empty/)
})

test('the error for a store URL names the variable it came from', () => {
  const env = {BELFRY_STORE: 'postgres://me:secret@db'}
  assert.match(refused([], env), /^BELFRY_STORE names no database\.$/)
})

test('a password on the command line is a warning; elsewhere it is none', () => {
  const url = 'postgres://belfry:hunter2@db/belfry'
  const [warning = '', ...others] = accepted(['--store', url]).warnings
  assert.match(warning, /^The password in --store .* every user of this machine.* PGPASSWORD/)
  assert.deepEqual([others, warning.includes('hunter2')], [[], false])
  const files = {'/home/keeper/c': `store: ${url}\n`}
  assert.deepEqual(accepted(['--config', 'c'], {}, host(files)).warnings, [])
  assert.deepEqual(accepted([], {BELFRY_STORE: url}).warnings, [])
  assert.deepEqual(accepted(['--store', 'postgres://belfry@db/belfry']).warnings, [])
})

test('an error message never repeats a token or a password', () => {
  for (const secret of ['too-short', 'with spaces in between', 'x'.repeat(2000)])
    assert.ok(!refused(['--token', secret]).includes(secret))
  assert.ok(!refused(['--store', 'postgress://u:hunter2@h/d']).includes('hunter2'))
})

/** A file and its error message. */
const BAD_FILES: readonly (readonly [text: string, says: RegExp])[] = [
  ['htpp: a\n', /^c has an unknown setting "htpp"\. The nearest name is "http"\.$/],
  ['keep_days: 1\n', /unknown setting "keep_days"\. The nearest name is "keep-days"\.$/],
  ['config: d\n', /^c cannot set "config": /],
  ['- a\n', /^c must contain settings as "key: value" lines\.$/],
  ['just text', /^c must contain settings as/],
  ['http: [a]\n', /^http in c must be one value\.$/],
  ['net-deny: {a: b}\n', /^net-deny in c must be a list of texts\.$/],
  ['tag: [[a]]\n', /^tag in c must be a list of key=value, or a map\.$/],
  ['http: a: b\n', /^c must be YAML: /],
  ['slots: 1\nslots: 2\n', /^c must be YAML: Map keys must be unique/],
  ['slots: many\n', /^slots in c must be a whole number/],
  ['slots:\n', /^slots in c must be /],
  [`# ${'x'.repeat(300_000)}\n`, /^c must have at most 262144 characters\.$/],
]

for (const [text, says] of BAD_FILES)
  test(`a file with ${JSON.stringify(text.slice(0, 30))} is rejected`, () => {
    assert.match(refused(['--config', 'c'], {}, host({'/home/keeper/c': text})), says)
  })

test('the nearest word has the smallest edit distance', () => {
  assert.equal(nearest('keepdays', ['keep-launches', 'keep-days', 'http']), 'keep-days')
  assert.equal(nearest('x', []), '')
})

test('the start fails if limits contradict each other', () => {
  const limits = checkedLimits()
  assertLimits(limits)
  for (const [name, value] of [
    ['leaseRenewMs', 3_000],
    ['leaseMarginMs', 6_000],
    ['heartbeatMs', 3_000],
    ['failedAfterMs', 25_000],
    ['killAfterMs', 25_000],
    ['lostAfterMs', 60_000],
    ['memberRetentionIntervalMs', 60_000],
    ['pollMs', 3_000],
    ['commitWaitMs', 0],
    ['commitWaitMs', 1_000],
    ['outputTailBytes', 1.5],
    ['restoreBytesMax', 1],
  ] as const)
    assert.throws(
      () => assertLimits({...limits, [name]: value}),
      /^AssertionFailed: limits: /,
      name,
    )
})
