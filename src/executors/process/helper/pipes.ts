/**
 * Pipes for the output of commands. Standard output and error must share one descriptor to keep their order.
 * It must be a real pipe, because `> /dev/stderr` fails on a socket. Node has no pipe(2), and its child pipes
 * are socket pairs. So the helper calls pipe2 of the C library where it can. Elsewhere it has a pool of named
 * pipes, made with mkfifo(1), and opens both ends of one for each command. Runs in the helper only.
 */
import {execFile} from 'node:child_process'
import {
  closeSync,
  constants,
  existsSync,
  fchownSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'

/** Pipes created by one mkfifo(1). */
const BATCH = 32

/** If fewer pipes are free, the next batch is created, so a start rarely waits. */
const LOW_WATER = 16

export interface Pipe {
  /** Non-blocking, close-on-exec. */
  readonly reader: number
  /** Blocking, close-on-exec. The caller closes it once the command has it. */
  readonly writer: number
  /** Lets a command of another account open it as /dev/stdout and /dev/stderr. It is not used again then. */
  giveTo(account: {readonly uid: number; readonly gid: number}): void
  /**
   * Returns the name to the pool if the reader saw the end. Otherwise the name is removed, so a remaining
   * writer cannot write into the next command's pipe.
   */
  release(everyWriterIsGone: boolean): void
}

/** A new pipe, close-on-exec, of which one end blocks. Throws an error with the code of errno. */
export type OpenPipe = (blocking: 'reader' | 'writer') => {
  readonly reader: number
  readonly writer: number
}

export class OutputPipes {
  readonly #openPipe: OpenPipe | null
  #directory = ''
  #free: string[] = []
  #made = 0
  #making: Promise<void> | null = null

  /** `openPipe`: `null` = named pipes. */
  constructor(openPipe: OpenPipe | null) {
    this.#openPipe = openPipe
  }

  /**
   * Creates the first named pipes in `directory`, or in the temporary directory if the former supports none.
   */
  async open(directory: string): Promise<void> {
    if (this.#openPipe !== null) return
    const preferred = join(directory, `pipes-${process.pid}`)
    rmSync(preferred, {recursive: true, force: true})
    mkdirSync(preferred, {mode: 0o700})
    this.#directory = preferred
    try {
      await this.#make()
    } catch {
      // The file system has no named pipes. The temporary directory nearly always has them.
      rmSync(preferred, {recursive: true, force: true})
      this.#directory = mkdtempSync(join(tmpdir(), 'belfry-pipes-'))
      await this.#make()
    }
  }

  /** Both ends of a pipe. Rejects when none can be created or opened. */
  async take(): Promise<Pipe> {
    for (;;) {
      const pipe = this.takeNow()
      if (pipe !== null) return pipe
      await this.#make()
    }
  }

  /** Synchronous `take`; `null` when no pipe is free. Throws when it cannot be opened. */
  takeNow(): Pipe | null {
    if (this.#openPipe !== null) return anonymous(this.#openPipe('writer'))
    const path = this.#free.pop()
    if (this.#free.length < LOW_WATER) this.#makeAhead()
    if (path === undefined) return null
    if (existsSync(path)) return this.#openPair(path)
    // The directory was deleted: all names are invalid.
    this.#free = []
    return null
  }

  /**
   * A pipe for a command's input; its name is already removed. The reader is blocking, as commands expect.
   * The writer is not, so a command that never reads cannot block the helper.
   */
  async takeInput(): Promise<{reader: number; writer: number}> {
    if (this.#openPipe !== null) return this.#openPipe('reader')
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
    let isGiven = false
    const giveTo: Pipe['giveTo'] = ({uid, gid}) => {
      isGiven = true
      fchownSync(writer, uid, gid)
    }
    const release = (everyWriterIsGone: boolean): void => {
      if (everyWriterIsGone && !isGiven) this.#free.push(path)
      else rmSync(path, {force: true})
    }
    return {reader, writer, giveTo, release}
  }

  #makeAhead(): void {
    this.#make().catch(() => {
      // `take` tries again when the pool is empty, and reports the error.
    })
  }

  #make(): Promise<void> {
    this.#making ??= Promise.try(() => this.#makeBatch()).finally(() => {
      this.#making = null
    })
    return this.#making
  }

  #makeBatch(): Promise<void> {
    // The directory may have been deleted since the last batch.
    mkdirSync(this.#directory, {recursive: true, mode: 0o700})
    const paths = Array.from({length: BATCH}, () => join(this.#directory, String(this.#made++)))
    return new Promise((resolve, reject) => {
      execFile('mkfifo', ['-m', '600', ...paths], (error) => {
        if (error !== null) {
          reject(new Error('mkfifo cannot create pipes', {cause: error}))
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

function anonymous({reader, writer}: ReturnType<OpenPipe>): Pipe {
  const giveTo: Pipe['giveTo'] = ({uid, gid}) => fchownSync(writer, uid, gid)
  return {reader, writer, giveTo, release: () => undefined}
}
