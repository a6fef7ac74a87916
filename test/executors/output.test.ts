/** Memory use of helper and node stays bounded, whatever a command prints. */
import assert from 'node:assert/strict'
import {mkdtempSync, readFileSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, before, describe, test} from 'node:test'

import type {StartRequest} from '../../src/executors/process/protocol.ts'
import {ProcessHelper} from '../../src/executors/process/supervisor.ts'
import {inheritedFrom} from '../../src/executors/registry.ts'
import type {OutputSink} from '../../src/ports/executor.ts'
import {realClock} from './support.ts'

const MIB = 1024 * 1024
const GROWTH_MAX = 64 * MIB

function residentBytes(pid: number): number {
  return (
    Number(/^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))![1]) * 1024
  )
}

function aRequest(command: string, more: Partial<StartRequest> = {}): StartRequest {
  return {
    executionId: '1-web-1',
    argv: ['/bin/sh', '-c', command],
    environment: {},
    cwd: '',
    payload: '',
    user: '',
    timeoutMs: 0,
    memoryBytesMax: 0,
    ...more,
  }
}

/** Signals backpressure at every chunk, drains a turn later, and samples memory. */
class SlowSink implements OutputSink {
  bytes = 0
  peak = 0
  zeros = true
  readonly #pids: readonly number[]

  constructor(pids: readonly number[]) {
    this.#pids = pids
  }

  write(bytes: Uint8Array): boolean {
    this.bytes += bytes.length
    this.zeros &&= bytes[0] === 0 && bytes[bytes.length - 1] === 0
    return false
  }

  drained(callback: () => void): void {
    for (const pid of this.#pids) this.peak = Math.max(this.peak, residentBytes(pid))
    setImmediate(callback)
  }
}

for (const spawn of ['portable', 'auto'] as const) {
  describe(`output, ${spawn}`, {skip: process.platform === 'linux' ? false : 'reads /proc'}, () => {
    let helper: ProcessHelper
    let directory: string
    before(async () => {
      directory = mkdtempSync(join(tmpdir(), 'belfry-output-'))
      helper = new ProcessHelper({
        clock: realClock,
        report: () => undefined,
        directory,
        nodeId: `output-${process.pid}-${spawn}`,
        environment: inheritedFrom(process.env),
        spawn,
        killAfterMs: 300,
        drainMs: 200,
        memorySampleMs: 1_000,
      })
      await helper.start()
    })
    after(async () => {
      await helper.stop()
      rmSync(directory, {recursive: true, force: true})
    })

    test('200 MB without a newline reach a slow sink completely, and memory does not grow', async () => {
      const before = residentBytes(helper.pid!)
      const sink = new SlowSink([helper.pid!])
      const end = await helper.run(aRequest('head -c 200000000 /dev/zero'), sink).ended
      assert.deepEqual(
        [end.exitCode, end.cut, sink.bytes, sink.zeros],
        [0, false, 200_000_000, true],
      )
      assert.ok(
        sink.peak - before < GROWTH_MAX,
        `the helper grew by ${(sink.peak - before) / MIB} MiB`,
      )
    })

    test('the memory of the node does not grow either', async () => {
      const before = residentBytes(process.pid)
      const sink = new SlowSink([process.pid])
      await helper.run(aRequest('head -c 200000000 /dev/zero'), sink).ended
      assert.ok(
        sink.peak - before < GROWTH_MAX,
        `the node grew by ${(sink.peak - before) / MIB} MiB`,
      )
    })

    test('a blocked sink blocks its own command only', async () => {
      const stuck = {write: () => false, drained: () => undefined}
      const flood = helper.run(aRequest('cat /dev/zero', {executionId: '2-web-1'}), stuck)
      const sink = new SlowSink([])
      const other = await helper.run(
        aRequest('head -c 5000000 /dev/zero', {executionId: '3-web-1'}),
        sink,
      ).ended
      assert.deepEqual([other.exitCode, sink.bytes], [0, 5_000_000])
      flood.kill()
      assert.equal((await flood.ended).ending, 'kill')
    })

    test('a slow sink receives the last bytes of a command that ended long before', async () => {
      let waiting: (() => void)[] = []
      let bytes = 0
      const sink = {
        write: (chunk: Uint8Array) => {
          bytes += chunk.length
          return false
        },
        drained: (callback: () => void) => {
          waiting.push(callback)
        },
      }
      const command = helper.run(
        aRequest('head -c 300000 /dev/zero; echo $$ >&2', {executionId: '4-web-1'}),
        sink,
      )
      const stop = new AbortController()
      const ended = command.ended.finally(() => stop.abort())
      // Reads that exceed the drain deadline of 200 ms, spread over the life of the output.
      for (let turn = 0; !stop.signal.aborted && turn < 1_000; turn++) {
        const callbacks = waiting
        waiting = []
        await new Promise<void>((resolve) => {
          realClock.after(callbacks.length > 0 ? 60 : 1, resolve)
        })
        for (const callback of callbacks) callback()
      }
      const end = await ended
      assert.deepEqual([end.exitCode, end.cut, bytes > 300_000], [0, false, true])
    })

    test('hundreds of concurrent short commands each deliver their own output', async () => {
      const texts = await Promise.all(
        Array.from({length: 200}, async (_, index) => {
          const parts: Uint8Array[] = []
          const sink = {
            write: (bytes: Uint8Array) => parts.push(bytes) > 0,
            drained: () => undefined,
          }
          await helper.run(
            aRequest(`echo ${index}; echo ${index}`, {executionId: `${index + 10}-web-1`}),
            sink,
          ).ended
          return Buffer.concat(parts).toString()
        }),
      )
      assert.deepEqual(
        texts,
        Array.from({length: 200}, (_, index) => `${index}\n${index}\n`),
      )
    })
  })
}
