/**
 * The pipes commands write to. Standard output and error must be one descriptor, or their order is lost,
 * and a true pipe, or `> /dev/stderr` fails in the command; Node has no pipe(2), and its own child pipes
 * are socket pairs. So the helper keeps a few named pipes made by mkfifo(1) and opens both ends of one for
 * each command. Runs in the helper only.
 */
import {execFile} from 'node:child_process'
import {closeSync, constants, existsSync, mkdirSync, mkdtempSync, openSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'

/** How many are made at a time; one mkfifo(1) serves them all. */
const BATCH = 32

/** When fewer are free the next batch is begun, so that a start seldom waits for one. */
const LOW_WATER = 16

export interface Pipe {
  /** Non-blocking, close-on-exec. */
  readonly reader: number
  /** Blocking, close-on-exec. Closed by whoever asked, once the command has it. */
  readonly writer: number
  /**
   * Give the name back: only when the reader saw its end, so that nobody can still write into the next
   * command's pipe.
   */
  release(everyWriterIsGone: boolean): void
}

export class OutputPipes {
  #directory = ''
  #free: string[] = []
  #made = 0
  #making: Promise<void> | null = null

  /**
   * Makes the first batch under `directory`, or under the system's temporary directory where that has no
   * pipes.
   */
  async open(directory: string): Promise<void> {
    const preferred = join(directory, `pipes-${process.pid}`)
    rmSync(preferred, {recursive: true, force: true})
    mkdirSync(preferred, {mode: 0o700})
    this.#directory = preferred
    try {
      await this.#make()
    } catch {
      // A file system without named pipes: the temporary directory nearly always has them.
      rmSync(preferred, {recursive: true, force: true})
      this.#directory = mkdtempSync(join(tmpdir(), 'belfry-pipes-'))
      await this.#make()
    }
  }

  /** Both ends of a pipe. Rejects when none can be made or opened. */
  async take(): Promise<Pipe> {
    for (;;) {
      const pipe = this.takeNow()
      if (pipe !== null) return pipe
      await this.#make()
    }
  }

  /** The same without waiting; `null` when none is free. Throws when it cannot be opened. */
  takeNow(): Pipe | null {
    const path = this.#free.pop()
    if (this.#free.length < LOW_WATER) this.#makeAhead()
    if (path === undefined) return null
    if (existsSync(path)) return this.#openPair(path)
    // Someone swept the directory away: none of the names stands for a pipe any more.
    this.#free = []
    return null
  }

  /**
   * A pipe a command reads from, with its name gone already. The reader is blocking, as commands expect;
   * the writer is not, so that a command that never reads cannot hold the helper.
   */
  async takeInput(): Promise<{reader: number; writer: number}> {
    while (this.#free.length === 0) await this.#make()
    const path = this.#free.pop()!
    const opener = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    try {
      const writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK)
      return {reader: openSync(path, constants.O_RDONLY), writer}
    } finally {
      closeSync(opener)
      rmSync(path, {force: true})
    }
  }

  #openPair(path: string): Pipe {
    const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
    let writer: number
    try {
      writer = openSync(path, constants.O_WRONLY)
    } catch (error) {
      closeSync(reader)
      this.#free.push(path)
      throw error
    }
    const release = (everyWriterIsGone: boolean): void => {
      if (everyWriterIsGone) this.#free.push(path)
      else rmSync(path, {force: true})
    }
    return {reader, writer, release}
  }

  #makeAhead(): void {
    this.#make().catch(() => {
      // Whoever finds the pool empty asks again and is told why.
    })
  }

  #make(): Promise<void> {
    this.#making ??= Promise.try(() => this.#makeBatch()).finally(() => {
      this.#making = null
    })
    return this.#making
  }

  #makeBatch(): Promise<void> {
    // Someone may have swept the directory away: the next batch makes it again.
    mkdirSync(this.#directory, {recursive: true, mode: 0o700})
    const paths = Array.from({length: BATCH}, () => join(this.#directory, String(this.#made++)))
    return new Promise((resolve, reject) => {
      execFile('mkfifo', ['-m', '600', ...paths], (error) => {
        if (error !== null) {
          reject(new Error('mkfifo could not make pipes', {cause: error}))
          return
        }
        this.#free.push(...paths)
        resolve()
      })
    })
  }

  close(): void {
    if (this.#directory !== '') rmSync(this.#directory, {recursive: true, force: true})
    this.#free = []
  }
}
