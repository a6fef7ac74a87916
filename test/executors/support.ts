/**
 * Fixtures of the executor tests: a real clock, a sink that keeps its output, and a node in a temporary
 * directory.
 */
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {systemClock} from '../../src/platform/clock.ts'
import {
  createExecutors,
  type ExecutorOptions,
  type ExecutorRegistry,
} from '../../src/executors/registry.ts'
import type {OutputSink, Run, RunEnd} from '../../src/ports/executor.ts'

export const realClock = systemClock()

/** A sink that keeps its output and never signals backpressure. */
export class KeepingSink implements OutputSink {
  readonly #parts: Uint8Array[] = []
  #watchers: {text: string; found: () => void}[] = []

  write(bytes: Uint8Array): boolean {
    this.#parts.push(bytes)
    const text = this.text
    for (const watcher of this.#watchers) if (text.includes(watcher.text)) watcher.found()
    this.#watchers = this.#watchers.filter((watcher) => !text.includes(watcher.text))
    return true
  }

  drained(): void {
    throw new Error('never asked to wait')
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#parts)
  }

  get text(): string {
    return this.bytes.toString('utf8')
  }

  /** Resolves when the output contains `text`. */
  until(text: string): Promise<void> {
    if (this.text.includes(text)) return Promise.resolve()
    return new Promise((found) => this.#watchers.push({text, found}))
  }
}

/** Unique on the machine: files run side by side, and tests search the process table for an execution id. */
let nextGroup = process.pid * 1000 + 1

export function aRun(config: Record<string, string>, more: Partial<Run> = {}): Run {
  return {
    executionId: `${nextGroup++}-web-1`,
    jobName: 'backup',
    nodeName: 'web',
    attempt: 1,
    scheduledAt: Date.UTC(2026, 2, 29, 1, 30),
    config,
    ...more,
  }
}

export interface TestNode {
  readonly executors: ExecutorRegistry
  readonly dataDir: string
  readonly nodeId: string
  /** Runs one execution to its end. */
  run(config: Record<string, string>, more?: Partial<Run>): Promise<RunEnd & {text: string}>
  close(): Promise<void>
}

let nextNode = 1

/** A started node with a short grace. */
export async function aNode(
  options: Partial<ExecutorOptions> = {},
  executor = 'shell',
): Promise<TestNode> {
  const dataDir = mkdtempSync(join(tmpdir(), 'belfry-executors-'))
  const nodeId = `test-${process.pid}-${nextNode++}`
  const executors = createExecutors({
    dataDir,
    nodeId,
    clock: realClock,
    environment: process.env,
    suAllowed: [],
    allowed: [],
    netAllow: [],
    netDeny: [],
    killAfterMs: 300,
    drainMs: 200,
    spawn: 'portable',
    report: () => undefined,
    ...options,
  })
  await executors.start()
  return {
    executors,
    dataDir,
    nodeId,
    run: async (config, more) => {
      const sink = new KeepingSink()
      const end = await executors.get(executor)!.start(aRun(config, more), sink).ended
      return {...end, text: sink.text}
    },
    close: async () => {
      await executors.stop()
      rmSync(dataDir, {recursive: true, force: true})
    },
  }
}
