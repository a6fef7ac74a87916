/**
 * One command inside the helper, from its start to its last byte. Its end is keyed on the command's own
 * exit: whatever else still holds the output open gets a short while and is then cut off. Runs in the
 * helper only, where timers and real processes live.
 */
import {randomUUID} from 'node:crypto'
import {closeSync, constants, fchownSync, openSync, unlinkSync, writeSync} from 'node:fs'
import {Socket} from 'node:net'
import type {Journal} from '../journal.ts'
import {
  EXECUTION_VARIABLE,
  NODE_ID_VARIABLE,
  type ProcessRow,
  readLinuxProcess,
} from '../process-table.ts'
import type {CommandEnd, Ending, HelperSetup, StartRequest} from '../protocol.ts'
import {CommandOutput} from './output.ts'
import type {OutputPipes, Pipe} from './pipes.ts'
import {ProcessTree} from './process-tree.ts'
import {explainRefusal, type Spawn, type SpawnRequest} from './spawn.ts'
import type {Account, UserLookup} from './user-lookup.ts'

/** Longest delay one timer takes. */
const TIMER_MS_MAX = 2 ** 31 - 1

/** How soon an ending process tree is looked at, first and at most: a look reads the whole process table. */
const SWEEP_MS = 50
const SWEEP_MS_MAX = 400

/** After KILL the tree is swept this often before what will not die is left alone: about two seconds. */
const KILL_SWEEPS_MAX = 40

/** What a command needs of the helper around it. */
export interface CommandWorld {
  readonly setup: HelperSetup
  readonly pipes: OutputPipes
  readonly journal: Journal
  readonly spawn: Spawn
  readonly users: UserLookup
  output(execution: number, bytes: Buffer): void
  /** The last word; the command is forgotten with it. */
  ended(execution: number, end: CommandEnd): void
}

export class RunningCommand {
  readonly #world: CommandWorld
  readonly #number: number
  readonly #request: StartRequest
  #tree: ProcessTree | null = null
  #pipe: Pipe | null = null
  #output: CommandOutput | null = null
  #exit: {exitCode: number | null; signal: string} | null = null
  #ending: Ending = null
  #memoryBytes = 0
  #killed = false
  #leftBehind = false
  #treeIsGone = false
  #sweeps = 0
  #goneLooks = 0
  #sweepMs = SWEEP_MS
  #settled = false
  readonly #timers = new Map<string, NodeJS.Timeout>()

  constructor(world: CommandWorld, number: number, request: StartRequest) {
    this.#world = world
    this.#number = number
    this.#request = request
  }

  get memoryBytesMax(): number {
    return this.#request.memoryBytesMax
  }

  begin(): void {
    const {user, payload} = this.#request
    if (user === '' && payload === '') {
      try {
        const pipe = this.#world.pipes.takeNow()
        if (pipe !== null) return this.#launch(pipe, null, null)
      } catch (error) {
        return this.#fail(error)
      }
    }
    this.#prepare().catch((error: unknown) => this.#fail(error))
  }

  async #prepare(): Promise<void> {
    const {user, payload} = this.#request
    const account = user === '' ? null : await this.#world.users.find(user)
    const bytes = Buffer.from(payload, 'base64')
    const input = payload === '' ? null : await openPayload(bytes, account, this.#world.pipes)
    try {
      this.#launch(await this.#world.pipes.take(), account, input?.reader ?? null)
    } finally {
      input?.release()
    }
  }

  #launch(pipe: Pipe, account: Account | null, input: number | null): void {
    if (this.#ending !== null) {
      giveBack(pipe)
      return this.#report('')
    }
    // A crash after this and before the next record leaves a process that only its environment betrays.
    try {
      this.#world.journal.beginning(this.#request.executionId)
    } catch (error) {
      giveBack(pipe)
      throw error
    }
    const request = this.#spawnRequest(pipe, account, input)
    this.#pipe = pipe
    const pid = this.#world.spawn(request, {
      exited: (exitCode, signal) => this.#onExit(exitCode, signal),
      refused: (code) => this.#onRefused(explainRefusal(code, request)),
    })
    closeSync(pipe.writer)
    if (pid === null) return
    this.#record(pid)
    this.#tree = new ProcessTree(pid, this.#request.executionId, this.#world.setup.nodeId)
    this.#output = new CommandOutput(
      pipe,
      (bytes) => this.#world.output(this.#number, bytes),
      () => this.#settle(),
    )
    if (this.#request.timeoutMs > 0) this.#armTimeout(this.#request.timeoutMs)
  }

  #spawnRequest(pipe: Pipe, account: Account | null, input: number | null): SpawnRequest {
    const {setup} = this.#world
    const {argv, cwd, executionId, environment} = this.#request
    return {
      argv,
      cwd,
      input,
      output: pipe.writer,
      user: account,
      environment: {
        ...setup.environment,
        ...account?.environment,
        ...environment,
        [EXECUTION_VARIABLE]: executionId,
        [NODE_ID_VARIABLE]: setup.nodeId,
      },
    }
  }

  #record(pid: number): void {
    const onLinux = process.platform === 'linux'
    const started = onLinux ? (readLinuxProcess(pid)?.started ?? 0) : Date.now()
    this.#world.journal.started({executionId: this.#request.executionId, pid, started})
  }

  /** The sink took `bytes`; `Infinity` = there is no sink any more. */
  credit(bytes: number): void {
    this.#output?.credit(bytes)
  }

  #onExit(exitCode: number | null, signal: string): void {
    this.#exit = {exitCode, signal}
    // Asked now, at the reaping: an empty group's number may be given to others later.
    this.#leftBehind = this.#tree?.groupIsAlive() ?? false
    this.#disarm('timeout')
    this.#output?.exited(this.#world.setup.drainMs)
    this.#settle()
  }

  /**
   * Ends the command: TERM to its tree, KILL when the grace is over. Once; a later reason does not replace
   * the first.
   */
  end(ending: Ending): void {
    if (this.#ending !== null || this.#settled) return
    if (this.#exit === null) this.#ending = ending
    this.#arm('kill', this.#world.setup.killAfterMs, () => this.kill(ending))
    if (this.#tree === null || this.#exit !== null) return
    this.#tree.signal('SIGTERM')
    this.#arm('sweep', SWEEP_MS, () => this.#sweep())
  }

  /** Ends the command and all it started at once. */
  kill(ending: Ending): void {
    if (this.#settled || this.#killed) return
    this.#killed = true
    if (this.#exit === null) this.#ending ??= ending
    this.#disarm('kill')
    if (this.#tree === null) return
    this.#tree.signal('SIGKILL')
    this.#output!.forceStop()
    if (this.#exit !== null) this.#output!.cut()
    this.#sweep()
  }

  /** Looks whether an ending tree is gone; after KILL strikes again at whatever was started meanwhile. */
  #sweep(): void {
    if (this.#settled) return
    const tree = this.#tree!
    // Twice: a process in the middle of an exec shows no environment for an instant, and would be overlooked.
    this.#goneLooks = this.#exit !== null && !tree.isAlive() ? this.#goneLooks + 1 : 0
    const gone = this.#goneLooks >= 2
    if (!gone && this.#killed) {
      this.#sweeps += 1
      tree.signal('SIGKILL')
    }
    if (gone || (this.#exit !== null && this.#sweeps > KILL_SWEEPS_MAX)) {
      this.#treeIsGone = true
      return this.#settle()
    }
    const delayMs = this.#killed || this.#goneLooks > 0 ? SWEEP_MS : this.#sweepMs
    this.#sweepMs = Math.min(2 * this.#sweepMs, SWEEP_MS_MAX)
    this.#arm('sweep', delayMs, () => this.#sweep())
  }

  /** One sample of the process table. */
  checkMemory(rows: readonly ProcessRow[]): void {
    if (this.#tree === null || this.#ending !== null || this.#exit !== null) return
    const bytes = this.#tree.residentBytes(rows)
    if (bytes <= this.#request.memoryBytesMax) return
    this.#memoryBytes = bytes
    this.kill('memory')
  }

  /** Reports the end as soon as all of it is there. */
  #settle(): void {
    if (this.#settled || this.#exit === null) return
    if (this.#output?.isOver === false) return
    if (this.#ending !== null && this.#tree !== null && !this.#treeIsGone) return
    if (this.#leftBehind) this.#tree!.killGroup()
    this.#report('')
  }

  #onRefused(failure: string): void {
    closeSync(this.#pipe!.reader)
    this.#pipe!.release(true)
    this.#report(failure)
  }

  #fail(error: unknown): void {
    this.#report(error instanceof Error ? error.message : String(error))
  }

  #report(failure: string): void {
    if (this.#settled) return
    this.#settled = true
    for (const timer of this.#timers.values()) clearTimeout(timer)
    this.#world.journal.ended(this.#request.executionId)
    this.#world.ended(this.#number, {
      failure,
      exitCode: this.#exit?.exitCode ?? null,
      signal: this.#exit?.signal ?? '',
      ending: this.#ending,
      memoryBytes: this.#memoryBytes,
      cut: this.#output?.wasCut ?? false,
    })
  }

  #armTimeout(leftMs: number): void {
    if (leftMs <= TIMER_MS_MAX) return this.#arm('timeout', leftMs, () => this.end('timeout'))
    this.#arm('timeout', TIMER_MS_MAX, () => this.#armTimeout(leftMs - TIMER_MS_MAX))
  }

  #arm(name: string, delayMs: number, callback: () => void): void {
    this.#disarm(name)
    this.#timers.set(name, setTimeout(callback, delayMs))
  }

  #disarm(name: string): void {
    const timer = this.#timers.get(name)
    if (timer !== undefined) clearTimeout(timer)
    this.#timers.delete(name)
  }
}

/** A pipe that no command ever had. */
function giveBack(pipe: Pipe): void {
  closeSync(pipe.writer)
  closeSync(pipe.reader)
  pipe.release(true)
}

/*
 * A command's standard input. It may hold a secret, so it never touches a disk: on Linux it is a nameless
 * file in memory, which a command can also open again as /dev/stdin; elsewhere a pipe that is filled as it
 * is read.
 */

/** The system's directory in memory on Linux. */
const MEMORY_DIRECTORY = '/dev/shm'

const CREATE = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

export interface Payload {
  /** What the command gets as standard input. */
  readonly reader: number
  /** Call once the command has it, or never will. */
  release(): void
}

export async function openPayload(
  bytes: Buffer,
  account: Account | null,
  pipes: OutputPipes,
): Promise<Payload> {
  return openInMemory(bytes, account) ?? openAsPipe(bytes, pipes)
}

/** `null` where there is no such directory, or no room in it. */
function openInMemory(bytes: Buffer, account: Account | null): Payload | null {
  if (process.platform !== 'linux') return null
  const path = `${MEMORY_DIRECTORY}/belfry-${randomUUID()}`
  let writer: number | null = null
  let reader: number | null = null
  try {
    writer = openSync(path, CREATE, 0o600)
    reader = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW)
    if (account !== null) fchownSync(writer, account.uid, account.gid)
    for (let offset = 0; offset < bytes.length;) offset += writeSync(writer, bytes, offset)
    const given = reader
    return {reader: given, release: () => closeSync(given)}
  } catch {
    if (reader !== null) closeSync(reader)
    return null // then by pipe, which needs nothing of the sort
  } finally {
    if (writer !== null) {
      unlinkSync(path)
      closeSync(writer)
    }
  }
}

/** A command that does not care to read is no failure. */
async function openAsPipe(bytes: Buffer, pipes: OutputPipes): Promise<Payload> {
  const {reader, writer} = await pipes.takeInput()
  const release = (): void => {
    closeSync(reader)
    const socket = new Socket({fd: writer, readable: false, writable: true})
    socket.on('error', () => socket.destroy())
    socket.end(bytes)
    socket.unref()
  }
  return {reader, release}
}
