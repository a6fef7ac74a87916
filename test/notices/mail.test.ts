/** Delivery of mails against a real mail server on this machine. */
import assert from 'node:assert/strict'
import type {Socket} from 'node:net'
import {test} from 'node:test'
import {type LookUp, NetworkGuard} from '../../src/platform/network-guard.ts'
import {OTHER_CERTIFICATE, OTHER_KEY} from '../support/certificate.ts'
import {VirtualClock} from '../support/virtual-clock.ts'
import {
  aChannel,
  aMessage,
  anIncident,
  closedPort,
  MailGuard,
  send,
  startSmtp,
  startTcp,
} from './receivers.ts'

const PLAIN = {smtp: 'smtp://127.0.0.1:2525', from: 'belfry@example.org', to: ['ops@example.org']}
const plain = aChannel('mail', PLAIN)
const LOGIN = {...PLAIN, smtp: 'smtps://belfry@127.0.0.1', password: '${secret:notice-mail}'}
const login = aChannel('mail', LOGIN, {'notice-mail': 'correct horse battery'})

/** Headers of a mail by lower-case name, unfolded; a repeated header is an error. */
function headersOf(source: string): Record<string, string> {
  const [head] = source.split('\r\n\r\n')
  const headers: Record<string, string> = {}
  for (const line of head!.replaceAll(/\r\n[ \t]+/g, ' ').split('\r\n')) {
    const colon = line.indexOf(':')
    const name = line.slice(0, colon).toLowerCase()
    assert.ok(!Object.hasOwn(headers, name), `twice: ${name}`)
    headers[name] = line.slice(colon + 1).trim()
  }
  return headers
}

/** Text of a mail without the encoding of its transfer. */
function decoded(source: string): string {
  const bytes = source
    .replaceAll('=\r\n', '')
    .replaceAll(/=([0-9A-F]{2})/g, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    )
  return Buffer.from(bytes, 'latin1').toString('utf8')
}

test('a mail to this machine needs no TLS and no login', async (context) => {
  const server = await startSmtp(context, {hideSTARTTLS: true})
  const delivery = await send(plain, aMessage(), {addresses: new MailGuard(server.port)})
  assert.deepEqual(delivery, {outcome: 'sent', cause: '250: accepted'})
  const [mail] = server.mails
  assert.deepEqual(
    [mail?.from, mail?.to, mail?.isSecure],
    ['belfry@example.org', ['ops@example.org'], false],
  )
  const headers = headersOf(mail!.source)
  assert.equal(headers['auto-submitted'], 'auto-generated')
  assert.equal(headers['from'], 'Belfry <belfry@example.org>')
  assert.equal(headers['to'], 'ops@example.org')
  assert.equal(headers['subject'], aMessage().summary)
  assert.equal(headers['message-id'], '<ntc_8f2k@example.org>')
  assert.match(headers['content-type']!, /^multipart\/alternative/)
  const text = decoded(mail!.source)
  assert.match(text, /load: Launch 48240 ended failed: exit status 3\./)
  assert.match(text, /<pre>connecting\r?\nrelation &quot;orders&quot;/)
})

test('a mail to another machine without TLS is refused before anything is sent', async (context) => {
  const server = await startSmtp(context, {disabledCommands: ['STARTTLS']})
  const addresses = new MailGuard(server.port, {elsewhere: true})
  assert.deepEqual(await send(plain, aMessage(), {addresses}), {
    outcome: 'permanent',
    cause: 'the mail server offers no TLS, which is needed for every host but this one',
  })
  assert.deepEqual(server.mails, [])
})

test('STARTTLS is used when it is offered, and TLS from the start with smtps', async (context) => {
  for (const [channel, secure] of [
    [plain, false],
    [aChannel('mail', {...PLAIN, smtp: 'smtps://127.0.0.1'}), true],
  ] as const)
    for (const elsewhere of [false, true]) {
      const server = await startSmtp(context, {secure})
      const addresses = new MailGuard(server.port, {elsewhere})
      assert.equal((await send(channel, aMessage(), {addresses})).outcome, 'sent')
      assert.deepEqual(
        server.mails.map(({isSecure}) => isSecure),
        [true],
      )
    }
})

test('a certificate that is not trusted gets neither password nor mail', async (context) => {
  const passwords: unknown[] = []
  for (const [channel, secure] of [
    [aChannel('mail', {...LOGIN, smtp: 'smtp://belfry@127.0.0.1'}, login.secrets), false],
    [login, true],
  ] as const) {
    const server = await startSmtp(context, {
      secure,
      key: OTHER_KEY,
      cert: OTHER_CERTIFICATE,
      onAuth: (auth) => void passwords.push(auth.password),
    })
    const addresses = new MailGuard(server.port, {elsewhere: true})
    const delivery = await send(channel, aMessage(), {addresses})
    assert.equal(delivery.outcome, 'retry')
    assert.match(delivery.cause, /^the certificate of the receiver/)
    assert.deepEqual([server.mails, passwords], [[], []])
  }
})

test('a user logs in with the password', async (context) => {
  let attempts = 0
  const server = await startSmtp(context, {
    secure: true,
    authOptional: false,
    onAuth: ({username, password}, _session, callback) => {
      attempts += 1
      callback(null, password === 'correct horse battery' ? {user: username} : {})
    },
  })
  const addresses = new MailGuard(server.port)
  assert.equal((await send(login, aMessage(), {addresses})).outcome, 'sent')
  assert.deepEqual(
    server.mails.map(({user}) => user),
    ['belfry'],
  )
  const owners = {...LOGIN, to: [...PLAIN.to, 'owner'], allow_recipients: ['*']}
  const wrong = aChannel('mail', owners, {'notice-mail': 'wrong horse battery'})
  const incidents = [anIncident({ownerEmail: 'ann@example.org'})]
  const delivery = await send(wrong, aMessage({incidents}), {addresses})
  assert.equal(attempts, 2, 'a wrong password is tried once')
  assert.deepEqual(delivery, {
    outcome: 'permanent',
    cause: '535: the mail server refused the user or the password',
  })
})

/** An error that the mail server answers with. */
function answer(responseCode: number): Error {
  return Object.assign(new Error('leak of the answer'), {responseCode})
}

test('answers of the mail server are tried again or refused, without their words', async (context) => {
  const rows = [
    [421, 'retry'],
    [451, 'retry'],
    [550, 'permanent'],
    [552, 'permanent'],
    [554, 'permanent'],
  ] as const
  for (const [code, outcome] of rows) {
    const server = await startSmtp(context, {
      onRcptTo: (_address, _session, callback) => callback(answer(code)),
    })
    const delivery = await send(plain, aMessage(), {addresses: new MailGuard(server.port)})
    assert.equal(delivery.outcome, outcome, String(code))
    assert.match(delivery.cause, new RegExp(`^${code}: `))
    assert.doesNotMatch(delivery.cause, /leak|ops@/)
  }
  const full = await startSmtp(context, {
    onData: (stream, _session, callback) => {
      stream.on('end', () => callback(answer(452))).resume()
    },
  })
  const delivery = await send(plain, aMessage(), {addresses: new MailGuard(full.port)})
  assert.equal(delivery.cause, '452: the mail server asks to try again later')
})

test('one refused recipient among others is counted, and the mail is sent', async (context) => {
  const server = await startSmtp(context, {
    onRcptTo: ({address}, _session, callback) =>
      callback(address.startsWith('gone') ? answer(550) : null),
  })
  const channel = aChannel('mail', {...PLAIN, to: ['ops@example.org', 'gone@example.org']})
  const delivery = await send(channel, aMessage(), {addresses: new MailGuard(server.port)})
  assert.deepEqual(delivery, {
    outcome: 'sent',
    cause: '250: accepted, but not for 1 of 2 recipients',
  })
  assert.deepEqual(server.mails[0]?.to, ['ops@example.org'])
})

test('a mail server that ends, or speaks another protocol, is tried again', async (context) => {
  const handlers: ((socket: Socket) => void)[] = [
    (socket) => socket.destroy(),
    (socket) => socket.resetAndDestroy(),
    (socket) => socket.end('220 ready\r\n'),
    (socket) => {
      socket.write('220 ready\r\n')
      socket.once('data', () => socket.end('250-hello\r\n'))
    },
    (socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'),
  ]
  const ports = [await closedPort()]
  for (const handler of handlers) ports.push((await startTcp(context, handler)).port)
  for (const port of ports) {
    const delivery = await send(plain, aMessage(), {addresses: new MailGuard(port)})
    assert.equal(delivery.outcome, 'retry', delivery.cause)
    assert.doesNotMatch(delivery.cause, /127\.0|HTTP|ready/)
  }
})

test('a mail server that never greets ends the attempt after 10 s', async (context) => {
  const clock = new VirtualClock()
  const silent = await startTcp(context, () => undefined)
  const connected = silent.next()
  const addresses = new MailGuard(silent.port)
  const sending = send(plain, aMessage(), {addresses, clock})
  await connected
  const begun = clock.now()
  const delivery = await clock.finish(sending)
  assert.deepEqual(delivery, {outcome: 'retry', cause: 'the receiver did not answer within 10s'})
  assert.deepEqual([clock.now() - begun, clock.waiting], [10_000, 0])
})

test('a metadata address is no mail server, by number or by name', async () => {
  const lookUp: LookUp = (_host, _options, found) =>
    found(null, [{address: '169.254.169.254', family: 4}])
  for (const host of ['169.254.169.254', '[::ffff:a9fe:a9fe]', '2852039166', 'smtp.example.org']) {
    const channel = aChannel('mail', {...PLAIN, smtp: `smtp://${host}:25`})
    const addresses = new NetworkGuard([], [], lookUp)
    const delivery = await send(channel, aMessage(), {addresses})
    assert.equal(delivery.outcome, 'permanent')
    assert.match(delivery.cause, /^the address of the receiver is not allowed/)
  }
})

const INJECTION = 'x\r\nBcc: evil@example.org\r\n\r\n<script>alert(1)</script>\n.\r\nMAIL FROM:<y>'

test('line ends and markup in texts of jobs change neither headers nor HTML', async (context) => {
  const server = await startSmtp(context)
  const message = aMessage({
    id: 'n\r\nBcc: evil@example.org',
    rule: INJECTION,
    cluster: INJECTION,
    summary: `${INJECTION} ü`,
    incidents: [
      anIncident({
        key: INJECTION,
        job: INJECTION,
        sentences: [INJECTION],
        outputTail: `.\r\n${INJECTION} https://evil.example "'`,
        url: 'https://x.example/"><script>',
      }),
    ],
  })
  assert.equal(
    (await send(plain, message, {addresses: new MailGuard(server.port)})).outcome,
    'sent',
  )
  assert.equal(server.mails.length, 1)
  const mail = server.mails[0]!
  assert.deepEqual(mail.to, ['ops@example.org'])
  const headers = headersOf(mail.source)
  assert.equal(headers['bcc'], undefined)
  assert.equal(headers['message-id'], '<n--Bcc--evil-example-org@example.org>')
  const html = decoded(mail.source).split('text/html')[1]!
  assert.doesNotMatch(html, /<script|https:\/\/evil/)
  assert.deepEqual([...new Set(html.match(/<[a-z]+/g))].toSorted(), [
    '<a',
    '<br',
    '<p',
    '<pre',
    '<small',
    '<strong',
  ])
})

test('mails of an incident are one thread, and an attempt keeps the id', async (context) => {
  const server = await startSmtp(context)
  const addresses = new MailGuard(server.port)
  const opened = aMessage()
  const closed = aMessage({
    id: 'ntc_9a',
    kind: 'closed',
    incidents: [anIncident({closedAt: Date.parse('2026-11-22T03:00:00Z')})],
  })
  const another = aMessage({id: 'ntc_9b', incidents: [anIncident({openedAt: 0})]})
  for (const message of [opened, {...opened, attempt: 2, repeat: true}, closed, another])
    assert.equal((await send(plain, message, {addresses})).outcome, 'sent')
  const seen = server.mails.map(({source}) => headersOf(source))
  const [first, again, over, other] = seen.map((headers) => headers['references'])
  assert.match(first!, /^<[0-9a-f]{32}@example\.org>$/)
  assert.deepEqual([again, over], [first, first])
  assert.notEqual(other, first)
  assert.deepEqual(
    seen.map((headers) => headers['message-id']),
    [
      '<ntc_8f2k@example.org>',
      '<ntc_8f2k@example.org>',
      '<ntc_9a@example.org>',
      '<ntc_9b@example.org>',
    ],
  )
  assert.equal(seen[2]?.['in-reply-to'], first)
})

test('an owner gets only what is about the own jobs, and only at an allowed address', async (context) => {
  const server = await startSmtp(context)
  const config = {...PLAIN, to: ['ops@example.org', 'owner'], allow_recipients: ['*@example.org']}
  const incident = (job: string, ownerEmail: string) =>
    anIncident({key: job, job, ownerEmail, sentences: [`${job} failed.`]})
  const message = aMessage({
    incidents: [
      incident('one', 'Ann@Example.org'),
      incident('two', 'bob@example.org, ann@evil.example'),
      incident('three', 'ops@example.org'),
      incident('four', 'x@example.org\r\nRCPT TO:<y@example.org'),
      incident('five', ''),
      incident('six', '"y@evil.example"@example.org, z@evil.example <z@example.org'),
      incident('seven', 'y@evil.example@example.org, @example.org, y%\u0000@example.org'),
    ],
    more: 2,
  })
  const addresses = new MailGuard(server.port)
  assert.equal((await send(aChannel('mail', config), message, {addresses})).outcome, 'sent')
  assert.deepEqual(
    server.mails.map(({to}) => to),
    [['ops@example.org'], ['Ann@example.org'], ['bob@example.org']],
  )
  const [all, ann, bob] = server.mails.map(({source}) => decoded(source))
  assert.match(all!, /five failed/)
  assert.match(ann!, /one failed/)
  assert.doesNotMatch(ann!, /two failed|load failed|more/)
  assert.doesNotMatch(bob!, /one failed|evil/)
  const ids = server.mails.map(({source}) => headersOf(source)['message-id'])
  assert.equal(new Set(ids).size, 3)
  const further = aMessage({part: 1, incidents: [incident('eight', 'ann@example.org')]})
  assert.equal((await send(aChannel('mail', config), further, {addresses})).outcome, 'sent')
  assert.deepEqual(
    server.mails.slice(3).map(({to}) => to),
    [['ann@example.org']],
    'a further part is for owners only',
  )
})

test('an owner whose address is refused keeps no mail from others', async (context) => {
  let answered = 550
  const server = await startSmtp(context, {
    onRcptTo: ({address}, _session, callback) =>
      callback(address.startsWith('gone') ? answer(answered) : null),
  })
  const addresses = new MailGuard(server.port)
  const config = {...PLAIN, to: ['ops@example.org', 'owner'], allow_recipients: ['*']}
  const owners = ['gone@example.org', 'ann@example.org']
  const incidents = owners.map((ownerEmail) => anIncident({key: ownerEmail, ownerEmail}))
  const channel = aChannel('mail', config)
  assert.deepEqual(await send(channel, aMessage({incidents}), {addresses}), {
    outcome: 'sent',
    cause: '250: accepted, but not for 1 of 3 recipients',
  })
  assert.equal(server.mails.length, 2)
  answered = 451
  assert.equal((await send(channel, aMessage({incidents}), {addresses})).outcome, 'retry')
})

test('without a recipient nothing is sent, and the cause says so', async () => {
  const config = {...PLAIN, to: ['owner'], allow_recipients: ['*@example.org']}
  const delivery = await send(aChannel('mail', config), aMessage())
  assert.equal(delivery.outcome, 'permanent')
  assert.match(delivery.cause, /^no recipient/)
})
