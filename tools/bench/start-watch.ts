/**
 * When commands really started. Each command appends its number to one file with the shell's own `echo`,
 * which costs no more than `true`. The file is watched from outside. So an instant is an upper bound: it
 * includes the start of the shell and the delay of the watcher.
 */
import {closeSync, type FSWatcher, openSync, readSync, watch} from 'node:fs'
import {join} from 'node:path'
import type {Scratch} from './scratch.ts'

export interface Start {
  /** Number of the job, as in `command(number)`. */
  readonly number: number
  /** Arrival of its line, ms since 1970. */
  readonly atMs: number
}

const READ_BYTES = 65_536
/** Reads even without a notification: the kernel drops notifications when too many are waiting. */
const READ_EVERY_MS = 100

export class StartWatch {
  readonly file: string
  readonly #descriptor: number
  readonly #watcher: FSWatcher
  readonly #bytes = Buffer.alloc(READ_BYTES)
  readonly #starts: Start[] = []
  #rest = ''

  private constructor(file: string) {
    this.file = file
    this.#descriptor = openSync(file, 'a+')
    this.#watcher = watch(file, () => this.#read())
  }

  static async open(scratch: Scratch): Promise<StartWatch> {
    const started = new StartWatch(join(await scratch.folder(), 'started'))
    scratch.after(() => started.#close())
    return started
  }

  /** Parameters of the shell executor. */
  command(number: number): {readonly command: string; readonly shell: string} {
    return {command: `echo ${number} >> '${this.file}'`, shell: 'true'}
  }

  /** All starts until now, in the order of arrival. */
  get starts(): readonly Start[] {
    this.#read()
    return this.#starts
  }

  /** Resolves with the number of starts: at least `count`, or fewer after `limitMs`. */
  async until(count: number, limitMs: number): Promise<number> {
    const beganAt = performance.now()
    while (this.starts.length < count && performance.now() - beganAt < limitMs)
      await new Promise((resolve) => setTimeout(resolve, READ_EVERY_MS))
    return this.#starts.length
  }

  /** Resolves when `count` commands started. Throws if fewer did after `limitMs`, or more. */
  async all(count: number, limitMs: number): Promise<void> {
    const started = await this.until(count, limitMs)
    if (started !== count) throw new Error(`${started} commands started, expected ${count}`)
  }

  #read(): void {
    for (;;) {
      const count = readSync(this.#descriptor, this.#bytes)
      if (count === 0) return
      const atMs = Date.now()
      const lines = (this.#rest + this.#bytes.toString('latin1', 0, count)).split('\n')
      this.#rest = lines.pop()!
      for (const line of lines) this.#starts.push({number: Number(line), atMs})
    }
  }

  #close(): void {
    this.#watcher.close()
    closeSync(this.#descriptor)
  }
}
