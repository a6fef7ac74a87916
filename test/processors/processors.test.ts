/** The processors with real files, a real syslog receiver and a recording log. */
import assert from 'node:assert/strict'
import {createSocket} from 'node:dgram'
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import {type AddressInfo, createServer, type Socket} from 'node:net'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {LineCutter} from '../../src/processors/lines.ts'
import type {LogRecord} from '../../src/processors/log.ts'
import {createProcessors, type ProcessorOptions} from '../../src/processors/registry.ts'
import {parseSyslogUrl} from '../../src/processors/syslog.ts'
import {exerciseProcessor, type Subject} from './exercise-processor.ts'
import {aRun, inTemporary, Mailbox, realClock} from './support.ts'

const ENDED = {outcome: 'succeeded', exitCode: 0}

function aRegistry(options: Partial<ProcessorOptions> = {}) {
  return createProcessors({
    dataDir: '/nowhere',
    nodeName: 'web',
    clock: realClock,
    logRoot: null,
    syslogUrl: null,
    warn: () => undefined,
    writeLog: () => undefined,
    runProgram: null,
    localSyslogSocket: '/dev/null',
    ...options,
  })
}

async function filesSubject(): Promise<Subject> {
  const dataDir = mkdtempSync(join(tmpdir(), 'belfry-files-'))
  const logs = join(dataDir, 'logs')
  return {
    processor: aRegistry({dataDir}).get('files')!,
    received: async () =>
      readdirSync(logs)
        .map((name) => readFileSync(join(logs, name), 'utf8'))
        .join(''),
    close: async () => rmSync(dataDir, {recursive: true, force: true}),
  }
}

async function logSubject(): Promise<Subject> {
  const mailbox = new Mailbox()
  return {
    processor: aRegistry({writeLog: (record) => mailbox.add(`${record.text}\n`)}).get('log')!,
    received: (text) => mailbox.until(text),
    close: async () => undefined,
  }
}

/** A syslog server over TCP that splits counted messages. */
async function tcpSubject(): Promise<Subject & {messages: string[]}> {
  const mailbox = new Mailbox()
  const messages: string[] = []
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    let held = Buffer.alloc(0)
    sockets.add(socket)
    socket.on('data', (chunk: Buffer) => {
      held = Buffer.concat([held, chunk])
      for (;;) {
        const space = held.indexOf(' ')
        const size = Number(held.toString('latin1', 0, Math.max(space, 0)))
        if (space < 0 || held.length < space + 1 + size) return
        messages.push(held.toString('utf8', space + 1, space + 1 + size))
        mailbox.add(`${messages.at(-1)}\n`)
        held = held.subarray(space + 1 + size)
      }
    })
  })
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', () => resolve())
  })
  const syslogUrl = `tcp://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    messages,
    processor: aRegistry({syslogUrl}).get('syslog')!,
    received: (text) => mailbox.until(text),
    close: async () => {
      for (const socket of sockets) socket.destroy()
      server.close()
    },
  }
}

/** The local syslog: a program with an input. */
async function localSubject(): Promise<Subject> {
  const mailbox = new Mailbox()
  const runProgram = async (argv: readonly string[], input: Uint8Array): Promise<string> => {
    assert.deepEqual(argv, ['logger', '-t', 'belfry', '-p', 'user.info'])
    assert.ok(input.length < 64 * 1024)
    mailbox.add(Buffer.from(input).toString('utf8'))
    return ''
  }
  return {
    processor: aRegistry({runProgram}).get('syslog')!,
    received: (text) => mailbox.until(text),
    close: async () => undefined,
  }
}

exerciseProcessor('files', filesSubject)
exerciseProcessor('log', logSubject)
exerciseProcessor('syslog over TCP', tcpSubject)
exerciseProcessor('syslog of this machine', localSubject)

test('the registry names exactly the known processors', () => {
  assert.deepEqual(aRegistry().names(), ['files', 'log', 'syslog'])
  assert.equal(aRegistry().get('constructor'), null)
})

describe('files', () => {
  test(
    'each execution has one file, named by its id and private; the stored line is its path',
    inTemporary(async (dataDir) => {
      const stream = await aRegistry({dataDir}).get('files')!.open({run: aRun(), config: {}})
      const bytes = Buffer.from([0, 255, 10, 13, 128])
      await stream.write(bytes)
      const path = await stream.end(ENDED)
      assert.equal(path, join(dataDir, 'logs', '12-web-1.log'))
      assert.deepEqual(readFileSync(path), bytes)
      assert.equal(statSync(path).mode & 0o777, 0o600)
      assert.equal(statSync(join(dataDir, 'logs')).mode & 0o777, 0o700)
    }),
  )

  test(
    'a missing log_dir is created',
    inTemporary(async (dataDir) => {
      const log_dir = join(dataDir, 'a', 'b')
      const stream = await aRegistry().get('files')!.open({run: aRun(), config: {log_dir}})
      assert.equal(await stream.end(ENDED), join(log_dir, '12-web-1.log'))
    }),
  )

  test('a directory that cannot be created fails the processor without endless retries', async () => {
    const files = aRegistry().get('files')!
    const config = {log_dir: '/proc/nope/deep'}
    await assert.rejects(files.open({run: aRun(), config}), /ENOENT|EROFS|EACCES|EPERM/)
  })

  test(
    'an existing file or link is never overwritten',
    inTemporary(async (dataDir) => {
      const files = aRegistry().get('files')!
      const request = {run: aRun(), config: {log_dir: dataDir}}
      const victim = join(dataDir, 'victim')
      writeFileSync(join(dataDir, '12-web-1.log'), 'precious')
      await assert.rejects(files.open(request), /EEXIST/)
      rmSync(join(dataDir, '12-web-1.log'))
      symlinkSync(victim, join(dataDir, '12-web-1.log'))
      await assert.rejects(files.open(request), /EEXIST|ELOOP/)
      assert.throws(() => lstatSync(victim), /ENOENT/)
    }),
  )

  test('each invalid log_dir is reported', () => {
    const files = aRegistry({logRoot: '/var/log/jobs'}).get('files')!
    const rows = [
      ['logs', /must be an absolute path/],
      ['/var/log/jobs/../../etc', /must not contain "\.\."/],
      ['/var\0/log', /NUL/],
      ['/etc', /must be below \/var\/log\/jobs/],
      ['/var/log/jobsX', /must be below/],
    ] as const
    for (const [log_dir, expected] of rows)
      assert.match(files.check({log_dir})[0] ?? '', expected, log_dir)
    for (const log_dir of ['/var/log/jobs', '/var/log/jobs/a', '/var/log/jobs/..a']) {
      assert.deepEqual(files.check({log_dir}), [], log_dir)
    }
  })

  test(
    'a link out of the log root is not followed, and no directory is created behind it',
    inTemporary(async (directory) => {
      const logRoot = join(directory, 'root')
      const outside = join(directory, 'outside')
      mkdirSync(logRoot)
      mkdirSync(outside)
      symlinkSync(outside, join(logRoot, 'way'))
      const files = aRegistry({logRoot}).get('files')!
      for (const log_dir of [join(logRoot, 'way'), join(logRoot, 'way', 'deep')]) {
        await assert.rejects(files.open({run: aRun(), config: {log_dir}}), /leads to .*outside/)
      }
      assert.deepEqual(readdirSync(outside), [])
      const stream = await files.open({run: aRun(), config: {log_dir: join(logRoot, 'fine')}})
      await stream.end(ENDED)
    }),
  )

  test(
    'a directory above log_dir that others may write to is a warning, once',
    inTemporary(async (directory) => {
      const warnings: string[] = []
      const files = aRegistry({warn: (sentence) => void warnings.push(sentence)}).get('files')!
      const write = async (...names: string[]) => {
        const config = {log_dir: join(directory, ...names)}
        await (await files.open({run: aRun(), config})).end(ENDED)
        rmSync(join(config.log_dir, '12-web-1.log'))
      }
      await write('own', 'logs')
      mkdirSync(join(directory, 'sticky'))
      chmodSync(join(directory, 'sticky'), 0o1777)
      await write('sticky', 'logs')
      assert.deepEqual(warnings, [])
      mkdirSync(join(directory, 'shared'))
      chmodSync(join(directory, 'shared'), 0o777)
      await write('shared', 'logs')
      await write('shared', 'logs')
      assert.equal(warnings.length, 1)
      assert.match(warnings[0]!, /^Other users of this machine can redirect .*\/shared\/logs: /)
      symlinkSync(join(directory, 'shared', 'logs'), join(directory, 'own', 'way'))
      await write('own', 'way', 'deep')
      assert.equal(warnings.length, 2, 'the way behind a link counts')
    }),
  )

  test(
    'the log root is created if it is missing',
    inTemporary(async (directory) => {
      const logRoot = join(directory, 'later')
      const files = aRegistry({logRoot}).get('files')!
      const stream = await files.open({run: aRun(), config: {log_dir: join(logRoot, 'jobs')}})
      assert.equal(await stream.end(ENDED), join(logRoot, 'jobs', '12-web-1.log'))
    }),
  )
})

test('log: begin and end records surround the lines, each with job and execution', async () => {
  const records: LogRecord[] = []
  const stream = await aRegistry({writeLog: (record) => void records.push(record)})
    .get('log')!
    .open({run: aRun(), config: {}})
  await stream.write(Buffer.from('one\r\n\ntwo'))
  const line = await stream.end({outcome: 'timed_out', exitCode: null})
  assert.equal(line, 'output written to the service log of web')
  const about = {job: 'backup', execution: '12-web-1'}
  assert.deepEqual(records, [
    {...about, kind: 'begin', text: 'output of backup 12-web-1 begins'},
    {...about, kind: 'line', text: 'one'},
    {...about, kind: 'line', text: ''},
    {...about, kind: 'line', text: 'two'},
    {...about, kind: 'end', text: 'output of backup 12-web-1 ends: timed_out'},
  ])
})

describe('syslog', () => {
  test('messages follow RFC 5424 and contain no control characters', async () => {
    const subject = await tcpSubject()
    try {
      const stream = await subject.processor.open({run: aRun(), config: {}})
      await stream.write(Buffer.from('a\u001b[31mred\tü\n'))
      await stream.end(ENDED)
      await subject.received('red')
      const instant = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`
      const expected = new RegExp(
        String.raw`^<14>1 ${instant} web belfry 12-web-1 - - backup: a\?\[31mred\tü$`,
      )
      assert.match(subject.messages[0]!, expected)
    } finally {
      await subject.close()
    }
  })

  test('each line is one datagram below 1,024 bytes', async () => {
    const socket = createSocket('udp4')
    const mailbox = new Mailbox()
    let longest = 0
    socket.on('message', (message) => {
      longest = Math.max(longest, message.length)
      mailbox.add(`${message.toString('utf8')}\n`)
    })
    await new Promise<void>((resolve) => {
      socket.bind(0, '127.0.0.1', resolve)
    })
    try {
      const syslogUrl = `udp://127.0.0.1:${socket.address().port}`
      const stream = await aRegistry({syslogUrl}).get('syslog')!.open({run: aRun(), config: {}})
      await stream.write(Buffer.from(`short\n${'ü'.repeat(2_000)}\nlast`))
      assert.equal(await stream.end(ENDED), `output sent to syslog at ${syslogUrl}`)
      const text = await mailbox.until(': last')
      assert.doesNotMatch(text, /\ufffd/)
      assert.equal(text.match(/ü/g)!.length, 2_000)
      assert.ok(longest < 1_024)
    } finally {
      socket.close()
    }
  })

  test('a missing local syslog, a failing logger and an unreachable server fail the processor', async () => {
    await assert.rejects(
      aRegistry().get('syslog')!.open({run: aRun(), config: {}}),
      /no local syslog; .*--syslog/,
    )
    const silent = aRegistry({runProgram: async () => '', localSyslogSocket: '/no/such/socket'})
    await assert.rejects(
      silent.get('syslog')!.open({run: aRun(), config: {}}),
      /no local syslog; .*--syslog/,
    )
    const stream = await aRegistry({runProgram: async () => 'no such file'})
      .get('syslog')!
      .open({run: aRun(), config: {}})
    await stream.write(Buffer.from('x\n'))
    await assert.rejects(stream.end(ENDED), /logger could not reach the local syslog: no such file/)
    const gone = createServer()
    await new Promise<void>((resolve) => {
      gone.listen(0, '127.0.0.1', () => resolve())
    })
    const {port} = gone.address() as AddressInfo
    await new Promise((resolve) => gone.close(resolve))
    const unreachable = aRegistry({syslogUrl: `tcp://127.0.0.1:${port}`}).get('syslog')!
    await assert.rejects(unreachable.open({run: aRun(), config: {}}), /ECONNREFUSED/)
  })

  test('addresses have default ports, and invalid addresses are rejected', () => {
    assert.deepEqual(parseSyslogUrl('udp://logs.example'), {
      protocol: 'udp',
      host: 'logs.example',
      port: 514,
    })
    assert.deepEqual(parseSyslogUrl('tcp://[::1]:7'), {protocol: 'tcp', host: '::1', port: 7})
    for (const text of ['logs', 'http://x', 'udp://', 'tcp://x/path'])
      assert.ok('problem' in parseSyslogUrl(text), text)
    assert.throws(() => aRegistry({syslogUrl: 'logs'}), /--syslog "logs" is not a syslog address/)
  })
})

test('lines: long lines are split without losing bytes or splitting characters', () => {
  const text = `${'ü'.repeat(50)}\nab\r\n\n${'€'.repeat(33)}`
  for (const size of [1, 2, 3, 7, 64, 1_000]) {
    const lines = new LineCutter(10)
    const found: string[] = []
    const bytes = Buffer.from(text)
    for (let at = 0; at < bytes.length; at += size)
      found.push(...lines.push(bytes.subarray(at, at + size)))
    const rest = lines.rest()
    if (rest !== null) found.push(rest)
    assert.equal(found.join(''), text.replace(/[\r\n]/g, ''), `in chunks of ${size}`)
    for (const line of found) assert.ok(Buffer.byteLength(line) <= 10)
  }
})
