/** Output of jobs through a real server: floods, binary bytes, and following it live. */
import assert from 'node:assert/strict'
import {existsSync, readFileSync, readdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {childrenOf, peakResidentBytes} from '../support/living-processes.ts'
import {
  sharedServer,
  isOver,
  temporaryDirectory,
  type ServerProcess,
} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

const MIB = 2 ** 20
const KEPT_BYTES = 256 * 1024
const START_BYTES = 16 * 1024
const FLOOD_BYTES = 250_000_000
/** Memory that ten times the output may add to a process. */
const GROWTH_BYTES_MAX = 64 * MIB
const FLOOD_WITHIN_MS = 60_000

const byHand = {schedule: '@manually', executor: 'shell'}
const shell = (command: string) => ({shell: 'true', command})

async function printed(server: ServerProcess, name: string, command: string) {
  await server.store({name, ...byHand, executor_config: shell(command)})
  await server.run(name)
  const {id} = await server.execution(name)
  return (await server.get(`/jobs/${name}/executions/${id}`)).json
}

describe('output', () => {
  const shared = sharedServer()

  test('250 MB without a newline: memory is bounded, the tail exact, the truncation reported', async (t) => {
    const server = shared()
    // The first run warms up the runtime; only growth with the amount of output counts.
    await printed(server, 'warm', `yes | tr -d '\\n' | head -c ${FLOOD_BYTES / 10}`)
    const processes = [server.pid, ...childrenOf(server.pid)]
    const before = processes.map(peakResidentBytes)
    const command = `yes | tr -d '\\n' | head -c ${FLOOD_BYTES}; printf 'the very end'`
    await server.store({name: 'flood', ...byHand, executor_config: shell(command)})
    await server.run('flood')
    const {id} = await server.execution('flood', isOver, FLOOD_WITHIN_MS)
    const {json} = await server.get(`/jobs/flood/executions/${id}`)
    assert.equal(json.status, 'succeeded')
    assert.equal(json.output_truncated, true)
    const end = 'the very end'
    const omitted = FLOOD_BYTES + end.length - START_BYTES - KEPT_BYTES
    const kept = ['y'.repeat(START_BYTES), 'y'.repeat(KEPT_BYTES - end.length) + end]
    assert.equal(json.output, kept.join(`\n… ${omitted} bytes not kept …\n`))
    assert.deepEqual([json.output_size, json.output_omitted], [FLOOD_BYTES + end.length, omitted])
    for (const [index, pid] of processes.entries()) {
      const grown = peakResidentBytes(pid) - before[index]!
      t.diagnostic(`${index === 0 ? 'server' : 'helper'}: + ${Math.round(grown / MIB)} MiB`)
      assert.ok(grown <= GROWTH_BYTES_MAX, `grew by ${grown} bytes`)
    }
    assert.equal(
      (await server.get('/jobs/flood/executions?output_size_limit=3')).json[0].output,
      'end',
    )
    const [row] = await server.executions('flood')
    assert.equal(Buffer.byteLength(row.output), 16 * 1024, 'a list shows the last 16 KiB')
    assert.equal(row.output_truncated, true)
  })

  test('binary bytes, and the exit of commands', async () => {
    const server = shared()
    const binary = await printed(
      server,
      'binary',
      `printf 'a\\377\\376\\000b\\033[1mü\\303'; exit 0`,
    )
    assert.equal(binary.output, 'a\ufffd\ufffd\u0000b\u001b[1mü\ufffd')
    assert.deepEqual([binary.success, binary.output_truncated], [true, false])
    const both = await printed(server, 'both', 'echo out; echo err >&2; echo out again; exit 3')
    assert.equal(both.output, 'exit status 3\nout\nerr\nout again\n')
    assert.equal(both.status, 'failed')
    const silent = await printed(server, 'silent', 'true')
    assert.deepEqual([silent.output, silent.success], ['', true])
    const missing = await printed(server, 'missing', 'exec /no/such/program')
    assert.match(missing.output, /^exit status 127\n.*no\/such\/program/s)
    // Start and tail together are the limit: up to that, nothing is missing.
    for (const [name, bytes] of [
      ['full', START_BYTES + KEPT_BYTES],
      ['over', START_BYTES + KEPT_BYTES + 1],
    ] as const) {
      const {output, output_truncated} = await printed(
        server,
        name,
        `head -c ${bytes} /dev/zero | tr '\\0' x`,
      )
      const isOver = name === 'over'
      assert.deepEqual(
        [output.includes('\n… 1 bytes not kept …\n'), output_truncated],
        [isOver, isOver],
      )
      assert.equal(output.replaceAll(/[^x]/g, '').length, START_BYTES + KEPT_BYTES)
    }
    // A daemon that keeps the output open does not delay the end.
    const daemon = await printed(server, 'daemon', 'echo started; setsid sleep 30 & exit 0')
    assert.equal(daemon.status, 'succeeded')
    assert.match(daemon.output, /^started\n/)
  })

  test('is readable while it is written: in /busy, in the execution, and by followers', async (t) => {
    const server = shared()
    const go = join(temporaryDirectory(t), 'go')
    const command = `echo first; while [ ! -e ${go} ]; do sleep 0.05; done; echo second`
    await server.store({name: 'live', ...byHand, executor_config: shell(command)})
    await server.run('live')
    const busy = await until('the first line in /busy', async () => {
      const {json, headers} = await server.get('/busy')
      assert.equal(headers.get('x-total-count'), String(json.length))
      return json[0]?.output === 'first\n' ? json[0] : undefined
    })
    assert.deepEqual(
      [busy.status, busy.success, busy.finished_at],
      ['running', false, '0001-01-01T00:00:00Z'],
    )
    const one = (await server.get(`/jobs/live/executions/${busy.id}`)).json
    assert.equal(one.output, 'first\n')

    const url = `${server.url}/v1/jobs/live/executions/${busy.id}/output`
    const stream = await fetch(url, {
      headers: {accept: 'text/event-stream'},
      signal: AbortSignal.timeout(20_000),
    })
    assert.match(stream.headers.get('content-type') ?? '', /^text\/event-stream/)
    let text = ''
    for await (const part of stream.body!.pipeThrough(new TextDecoderStream())) {
      text += part
      if (text.includes('first') && !existsSync(go)) writeFileSync(go, '')
    }
    const events = text.split('\n\n').filter((event) => event.includes('event:'))
    const outputs = events
      .filter((event) => event.includes('event: output'))
      .map((event) => JSON.parse(/^data: (.*)$/m.exec(event)![1]!).text)
    assert.equal(outputs.join(''), 'first\nsecond\n')
    assert.match(events.at(-1)!, /event: end\n/)
    assert.match(events.at(-1)!, /"status":"succeeded"/)
    assert.equal(await (await fetch(url)).text(), 'first\nsecond\n', 'plain after the end')
    assert.deepEqual((await server.get('/busy')).json, [])
  })

  test('the files processor stores all of it on disk and keeps one line', async (t) => {
    const server = shared()
    const logs = join(temporaryDirectory(t), 'logs')
    await server.store({
      name: 'filed',
      ...byHand,
      executor_config: shell('head -c 1000000 /dev/zero | tr "\\0" z'),
      processors: {files: {log_dir: logs}},
    })
    await server.run('filed')
    const {output, id} = await server.execution('filed')
    const [file] = readdirSync(logs)
    assert.match(file!, new RegExp(id))
    assert.match(output, new RegExp(file!))
    assert.equal(readFileSync(join(logs, file!), 'utf8'), 'z'.repeat(1_000_000))
  })
})
