/**
 * Command in the helper, from its start to its last byte of output. The exit of the command's own process
 * determines its end: output that other processes hold open is closed after a short drain. Runs in the
 * helper only.
 */
import {randomUUID} from 'node:crypto'
import {closeSync, constants, fchownSync, openSync, unlinkSync, writeSync} from 'node:fs'
import {Socket} from 'node:net'
import {messageOf} from '../../../lib/error.ts'
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
import {explainSpawnError, type Spawn, type SpawnRequest} from './spawn.ts'
import {isExhausted} from './start-queue.ts'
import type {Account, UserLookup} from './user-lookup.ts'

/** Maximum delay of a timer. */
const TIMER_MS_MAX = 2 ** 31 - 1

/** Backoff between checks of an ending process tree. Each check reads the whole process table. */
const SWEEP_MS = 50
const SWEEP_MS_MAX = 400

/** Number of KILLs, over about two seconds, before surviving processes are given up. */
const KILL_SWEEPS_MAX = 40

/** Resources of the helper that its commands share. */
export interface CommandContext {
  readonly setup: HelperSetup
  readonly pipes: OutputPipes
  readonly journal: Journal
  readonly spawn: Spawn
  readonly users: UserLookup
  readonly groupIsAlive: (group: number) => boolean
  output(execution: number, bytes: Buffer): void
  /** Starts the command again when another one has ended; false = no other one runs. */
  postpone(command: RunningCommand): boolean
  /** Called once, as the last call for an execution. */
  ended(execution: number, end: CommandEnd): void
}

export class RunningCommand {
  readonly #context: CommandContext
  readonly #number: number
  readonly #request: StartRequest
  #tree: ProcessTree | null = null
  #startedAt = 0
  #pipe: Pipe | null = null
  #output: CommandOutput | null = null
  #exit: {exitCode: number | null; signal: string} | null = null
  #ending: Ending = null
  #memoryBytes = 0
  #killed = false
  /** The command exited, but other processes of its group are alive. */
  #leftBehind = false
  #treeIsGone = false
  #sweeps = 0
  /** Consecutive checks that found no process. */
  #goneChecks = 0
  #sweepMs = SWEEP_MS
  #settled = false
  readonly #timers = new Map<string, NodeJS.Timeout>()

  constructor(context: CommandContext, number: number, request: StartRequest) {
    this.#context = context
    this.#number = number
    this.#request = request
  }

  get memoryBytesMax(): number {
    return this.#request.memoryBytesMax
  }

  get isStarted(): boolean {
    return this.#tree !== null
  }

  start(): void {
    if (this.#settled) return
    const {user, payload} = this.#request
    if (user === '' && payload === '') {
      try {
        const pipe = this.#context.pipes.takeNow()
        if (pipe !== null) return this.#launch(pipe, null, null)
      } catch (error) {
        return this.#fail(error)
      }
    }
    this.#prepare().catch((error: unknown) => this.#fail(error))
  }

  async #prepare(): Promise<void> {
    const {user, payload} = this.#request
    const account = user === '' ? null : await this.#context.users.find(user)
    const bytes = Buffer.from(payload, 'base64')
    const input = payload === '' ? null : await openPayload(bytes, account, this.#context.pipes)
    try {
      this.#launch(await this.#context.pipes.take(), account, input?.reader ?? null)
    } finally {
      input?.release()
    }
  }

  #launch(pipe: Pipe, account: Account | null, input: number | null): void {
    if (this.#settled) return closeUnused(pipe)
    // A crash after this record and before that of the pid leaves a process that only its environment
    // identifies.
    try {
      if (account !== null) pipe.giveTo(account)
      this.#context.journal.beginning(this.#request.executionId)
    } catch (error) {
      closeUnused(pipe)
      throw error
    }
    const request = this.#spawnRequest(pipe, account, input)
    this.#pipe = pipe
    const pid = this.#context.spawn(request, {
      exited: (exitCode, signal) => this.#onExit(exitCode, signal),
      failed: (code) => this.#onSpawnFailed(code, request),
    })
    closeSync(pipe.writer)
    if (pid === null) return
    this.#startedAt = performance.now()
    this.#record(pid)
    const {groupIsAlive, setup} = this.#context
    this.#tree = new ProcessTree(pid, this.#request.executionId, {
      nodeId: setup.nodeId,
      groupIsAlive,
    })
    this.#output = new CommandOutput(
      pipe,
      (bytes) => this.#context.output(this.#number, bytes),
      () => this.#settle(),
    )
    if (this.#request.timeoutMs > 0) this.#armTimeout(this.#request.timeoutMs)
  }

  #spawnRequest(pipe: Pipe, account: Account | null, input: number | null): SpawnRequest {
    const {setup} = this.#context
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
    const now = process.platform === 'linux' ? 0 : Date.now()
    this.#context.journal.started(this.#request.executionId, pid, () => {
      // The pid of a process that has exited may be another's by now.
      if (this.#exit !== null) return 0
      return process.platform === 'linux' ? (readLinuxProcess(pid)?.started ?? 0) : now
    })
  }

  /** The sink accepted `bytes`; `Infinity` = the sink is gone. */
  credit(bytes: number): void {
    this.#output?.credit(bytes)
  }

  #onExit(exitCode: number | null, signal: string): void {
    this.#exit = {exitCode, signal}
    // Checked now, at the reaping: the id of an empty group may be reused later.
    this.#leftBehind = this.#tree?.groupIsAlive() ?? false
    this.#disarm('timeout')
    this.#output?.exited(this.#context.setup.drainMs)
    this.#settle()
  }

  /**
   * Ends the command: TERM to its tree, KILL after the grace. Later calls do not replace the first reason.
   */
  end(ending: Ending): void {
    if (this.#ending !== null || this.#settled) return
    if (this.#exit === null) this.#ending = ending
    if (this.#pipe === null) return this.#report('')
    this.#arm('kill', this.#context.setup.killAfterMs, () => this.kill(ending))
    if (this.#tree === null || this.#exit !== null) return
    this.#tree.signal('SIGTERM')
    this.#arm('sweep', SWEEP_MS, () => this.#sweep())
  }

  /** Ends the command and its process tree immediately. */
  kill(ending: Ending): void {
    if (this.#settled || this.#killed) return
    this.#killed = true
    if (this.#exit === null) this.#ending ??= ending
    this.#disarm('kill')
    if (this.#pipe === null) return this.#report('')
    if (this.#tree === null) return
    this.#tree.signal('SIGKILL')
    this.#output!.forceStop()
    if (this.#exit !== null) this.#output!.cut()
    this.#sweep()
  }

  /** Checks whether an ending tree is gone. After KILL, it also kills processes that were started since. */
  #sweep(): void {
    if (this.#settled) return
    const tree = this.#tree!
    // Two checks: during an exec, a process shows no environment for an instant.
    this.#goneChecks = this.#exit !== null && !tree.isAlive() ? this.#goneChecks + 1 : 0
    const gone = this.#goneChecks >= 2
    if (!gone && this.#killed) {
      this.#sweeps += 1
      tree.signal('SIGKILL')
    }
    if (gone || (this.#exit !== null && this.#sweeps > KILL_SWEEPS_MAX)) {
      this.#treeIsGone = true
      return this.#settle()
    }
    const delayMs = this.#killed || this.#goneChecks > 0 ? SWEEP_MS : this.#sweepMs
    this.#sweepMs = Math.min(2 * this.#sweepMs, SWEEP_MS_MAX)
    this.#arm('sweep', delayMs, () => this.#sweep())
  }

  /** `rows` is a sample of the process table. */
  checkMemory(rows: readonly ProcessRow[]): void {
    if (this.#tree === null || this.#ending !== null || this.#exit !== null) return
    const bytes = this.#tree.residentBytes(rows)
    if (bytes <= this.#request.memoryBytesMax) return
    this.#memoryBytes = bytes
    this.kill('memory')
  }

  /** Reports the end once the command exited, its output is over, and a tree being ended is gone. */
  #settle(): void {
    if (this.#settled || this.#exit === null) return
    if (this.#output?.isOver === false) return
    if (this.#ending !== null && this.#tree !== null && !this.#treeIsGone) return
    if (this.#leftBehind) this.#tree!.killGroup()
    this.#report('')
  }

  #onSpawnFailed(code: string, request: SpawnRequest): void {
    closeSync(this.#pipe!.reader)
    this.#pipe!.release(true)
    this.#pipe = null
    this.#failUnlessPostponed(code, () => explainSpawnError(code, request))
  }

  #fail(error: unknown): void {
    const {code = ''} = error as NodeJS.ErrnoException
    this.#failUnlessPostponed(code, () => messageOf(error))
  }

  #failUnlessPostponed(code: string, explain: () => string): void {
    if (this.#settled || (isExhausted(code) && this.#context.postpone(this))) return
    this.#report(explain())
  }

  #report(failure: string): void {
    if (this.#settled) return
    this.#settled = true
    for (const timer of this.#timers.values()) clearTimeout(timer)
    this.#context.journal.ended(this.#request.executionId)
    this.#context.ended(this.#number, {
      failure,
      exitCode: this.#exit?.exitCode ?? null,
      signal: this.#exit?.signal ?? '',
      ending: this.#ending,
      memoryBytes: this.#memoryBytes,
      cut: this.#output?.wasCut ?? false,
      ranMs: this.#tree === null ? 0 : performance.now() - this.#startedAt,
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

/** Closes and releases a pipe that no command has used. */
function closeUnused(pipe: Pipe): void {
  closeSync(pipe.writer)
  closeSync(pipe.reader)
  pipe.release(true)
}

/** A tmpfs on Linux. */
const MEMORY_DIRECTORY = '/dev/shm'

const CREATE = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

interface Payload {
  /** Descriptor for the command's standard input. */
  readonly reader: number
  /** Call once the command has the descriptor, or was not started. */
  release(): void
}

/**
 * Opens a command's standard input. It may contain a secret, so it is never written to a disk. On Linux it is
 * an unlinked file in memory, which the command can also reopen as /dev/stdin; elsewhere it is a pipe.
 */
async function openPayload(
  bytes: Buffer,
  account: Account | null,
  pipes: OutputPipes,
): Promise<Payload> {
  return openInMemory(bytes, account) ?? openAsPipe(bytes, pipes)
}

/** `null` when the directory does not exist or is full. */
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
    const opened = reader
    return {reader: opened, release: () => closeSync(opened)}
  } catch {
    if (reader !== null) closeSync(reader)
    return null // the caller uses a pipe instead
  } finally {
    if (writer !== null) {
      unlinkSync(path)
      closeSync(writer)
    }
  }
}

/** Errors of the pipe are ignored: a command need not read its input. */
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
