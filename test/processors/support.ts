/** Fixtures of the processor tests. */
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {systemClock} from '../../src/platform/clock.ts'
import type {OutputSink, Run} from '../../src/ports/executor.ts'

export const realClock = systemClock()

export function aRun(more: Partial<Run> = {}): Run {
  return {
    executionId: '12-web-1',
    jobName: 'backup',
    nodeName: 'web',
    attempt: 1,
    scheduledAt: 0,
    config: {},
    ...more,
  }
}

/** A sink that keeps its output and never signals backpressure. */
export class KeepingSink implements OutputSink {
  readonly #parts: Uint8Array[] = []

  write(bytes: Uint8Array): boolean {
    this.#parts.push(bytes)
    return true
  }

  drained(): void {
    throw new Error('never asked to wait')
  }

  get text(): string {
    return Buffer.concat(this.#parts).toString('utf8')
  }
}

/** Runs `work` with a directory that is deleted afterwards. */
export function inTemporary(work: (directory: string) => Promise<void>): () => Promise<void> {
  return async () => {
    const directory = mkdtempSync(join(tmpdir(), 'belfry-processors-'))
    try {
      await work(directory)
    } finally {
      rmSync(directory, {recursive: true, force: true})
    }
  }
}

/** Collects received text and waits for parts of it. Keeps the end of the text. */
export class Mailbox {
  #text = ''
  #watchers: {text: string; found: (all: string) => void}[] = []

  add(text: string): void {
    this.#text = `${this.#text}${text}`.slice(-8_192)
    for (const watcher of this.#watchers)
      if (this.#text.includes(watcher.text)) watcher.found(this.#text)
  }

  until(text: string): Promise<string> {
    if (this.#text.includes(text)) return Promise.resolve(this.#text)
    return new Promise((found) => this.#watchers.push({text, found}))
  }
}
