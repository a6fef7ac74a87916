/**
 * Entry of the helper process, the only process of a node that starts others. It exchanges frames over
 * descriptor 3. When its parent is gone, for any reason, it ends all its commands and exits.
 */
import {closeSync, mkdirSync, readdirSync, readFileSync} from 'node:fs'
import {Socket} from 'node:net'
import {messageOf} from '../../../lib/error.ts'
import {bootId} from '../../../platform/boot-id.ts'
import {Journal} from '../journal.ts'
import {listProcesses, readLinuxProcess, send as sendSignal} from '../process-table.ts'
import {
  type CommandEnd,
  decodeCredit,
  decodeJson,
  encodeFrameInto,
  encodeJson,
  FRAME,
  FrameReader,
  HEADER_BYTES,
  type HelperReady,
  type HelperSetup,
  type SpawnChoice,
  type StartRequest,
} from '../protocol.ts'
import {type CommandContext, RunningCommand} from './command.ts'
import {READ_BYTES} from './output.ts'
import {type OpenPipe, OutputPipes} from './pipes.ts'
import {loadPosixSpawn} from './spawn-posix.ts'
import {type Spawn, spawnPortable} from './spawn.ts'
import {StartQueue} from './start-queue.ts'
import {UserLookup} from './user-lookup.ts'

/** The link to the parent. */
const LINK_DESCRIPTOR = 3

/** Together 4 MiB. */
const SPARE_BUFFERS_MAX = 64

/** Value in /proc/self/fdinfo. */
const O_CLOEXEC = 0o2000000

/** Time to exit beyond the grace: for the KILL, the drain and the last frames. */
const EXIT_MARGIN_MS = 3_000

const link = new Socket({fd: LINK_DESCRIPTOR, readable: true, writable: true})
/** Commands that wait for their start, or run. */
const commands = new Map<number, RunningCommand>()
const startQueue = new StartQueue()
/**
 * A crash within this time leaves commands that only their environment identifies. Most commands end sooner,
 * and are not looked up in the process table.
 */
const JOURNAL_FLUSH_MS = 200

let context: CommandContext | null = null
let stopping = false
let abandoned = false
let corked = false

/** Frames of one turn of the event loop are sent in one write. */
function send(frame: Uint8Array, written?: () => void): void {
  if (!corked) {
    corked = true
    link.cork()
    setImmediate(() => {
      corked = false
      link.uncork()
    })
  }
  link.write(frame, written)
}

/**
 * Closes descriptors that the node inherited without close-on-exec: every command would inherit them. Node
 * marks its own descriptors. (On macOS, spawning closes all descriptors.)
 */
function closeInherited(): void {
  if (process.platform !== 'linux') return
  for (const name of readdirSync('/proc/self/fdinfo')) {
    const descriptor = Number(name)
    if (descriptor <= LINK_DESCRIPTOR) continue
    const flags = /^flags:\s*([0-7]+)$/m.exec(readDescriptor(name))?.[1]
    if (flags !== undefined && (Number.parseInt(flags, 8) & O_CLOEXEC) === 0) closeSync(descriptor)
  }
}

function readDescriptor(name: string): string {
  try {
    return readFileSync(`/proc/self/fdinfo/${name}`, 'latin1')
  } catch {
    return '' // the descriptor that listed the directory is closed by now
  }
}

async function setUp(setup: HelperSetup): Promise<void> {
  closeInherited()
  mkdirSync(setup.directory, {recursive: true, mode: 0o700})
  const {spawn, openPipe, groupIsAlive, ready} = await chooseSpawn(setup.spawn)
  const pipes = new OutputPipes(openPipe)
  await pipes.open(setup.directory)
  process.once('exit', () => pipes.close())
  const self = readLinuxProcess(process.pid)
  const started = self?.started ?? Math.round(Date.now() - performance.now())
  const head = {helper: process.pid, started, boot: bootId(), node: setup.nodeId}
  const journal = new Journal(setup.directory, head, (flush) => {
    setTimeout(flush, JOURNAL_FLUSH_MS).unref()
  })
  const users = new UserLookup()
  context = {setup, pipes, journal, spawn, users, groupIsAlive, output, ended, postpone}
  setInterval(() => sampleMemory(), setup.memorySampleMs).unref()
  send(encodeJson(FRAME.ready, 0, ready satisfies HelperReady))
}

/** Pool of output buffers. New buffers would accumulate before they are garbage-collected. */
const spareBuffers: Buffer[] = []

function output(execution: number, bytes: Buffer): void {
  if (abandoned) return
  const buffer = spareBuffers.pop() ?? Buffer.allocUnsafeSlow(HEADER_BYTES + READ_BYTES)
  send(encodeFrameInto(buffer, FRAME.output, execution, bytes), () => {
    if (spareBuffers.length < SPARE_BUFFERS_MAX) spareBuffers.push(buffer)
  })
}

function ended(execution: number, end: CommandEnd): void {
  commands.delete(execution)
  startQueue.resume()
  if (!abandoned) send(encodeJson(FRAME.ended, execution, end))
  if (stopping && commands.size === 0) leave()
}

let sampling = false

function sampleMemory(): void {
  const limited = [...commands.values()].filter((command) => command.memoryBytesMax > 0)
  if (limited.length === 0 || sampling) return
  sampling = true
  listProcesses()
    .then((rows) => {
      for (const command of limited) command.checkMemory(rows)
    })
    .finally(() => {
      sampling = false
    })
    .catch((error: unknown) => {
      process.stderr.write(`belfry helper: mem_limit could not be sampled: ${String(error)}\n`)
    })
}

function start(execution: number, request: StartRequest): void {
  context!.journal.announce(request.executionId)
  const command = new RunningCommand(context!, execution, request)
  commands.set(execution, command)
  startQueue.add(command)
}

function postpone(command: RunningCommand): boolean {
  const canWait = [...commands.values()].some((other) => other.isStarted)
  if (canWait) startQueue.postpone(command)
  return canWait
}

function stop(): void {
  if (stopping) return
  stopping = true
  if (commands.size === 0) return leave()
  for (const command of commands.values()) command.end('cancel')
  // The helper always exits. The journal keeps processes it could not end for the next incarnation.
  setTimeout(() => process.exit(1), (context?.setup.killAfterMs ?? 0) + EXIT_MARGIN_MS)
}

/** The parent is gone: output and ends have no receiver. */
function abandon(): void {
  abandoned = true
  for (const command of commands.values()) command.credit(Infinity)
  stop()
}

function leave(): void {
  context?.journal.flush()
  setImmediate(() => {
    if (link.destroyed) process.exit(0)
    link.end(() => process.exit(0))
  })
}

const reader = new FrameReader((kind, execution, payload) => {
  if (kind === FRAME.setup) {
    setUp(decodeJson<HelperSetup>(payload)).catch((error: unknown) => {
      process.stderr.write(`belfry helper: ${String(error)}\n`)
      process.exit(1)
    })
  } else if (kind === FRAME.start) {
    if (!stopping) start(execution, decodeJson<StartRequest>(payload))
  } else if (kind === FRAME.credit) commands.get(execution)?.credit(decodeCredit(payload))
  else if (kind === FRAME.cancel) commands.get(execution)?.end('cancel')
  else if (kind === FRAME.kill) commands.get(execution)?.kill('kill')
  else if (kind === FRAME.stop) stop()
})

link.on('data', (chunk: Buffer) => reader.push(chunk))
link.once('end', abandon)
link.once('close', abandon)
link.on('error', abandon)

// The parent decides when the helper ends. A Ctrl-C in a shared terminal reaches the helper as well. Without
// a listener, SIGUSR1 opens the debugger of Node to every user of the machine.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2'] as const) {
  process.on(signal, () => undefined)
}

interface Starting {
  readonly spawn: Spawn
  /** `null` = pipes are made without the C library. */
  readonly openPipe: OpenPipe | null
  readonly groupIsAlive: (group: number) => boolean
  readonly ready: HelperReady
}

/** `posix` and `auto` use posix_spawn where possible, otherwise the portable method, with the reason. */
async function chooseSpawn(choice: SpawnChoice): Promise<Starting> {
  const groupIsAlive = (group: number): boolean => sendSignal(-group, 0)
  const portable = {spawn: spawnPortable, openPipe: null, groupIsAlive}
  if (choice === 'portable') return {...portable, ready: {spawn: 'portable', why: ''}}
  try {
    return {...(await loadPosixSpawn(spawnPortable)), ready: {spawn: 'posix', why: ''}}
  } catch (error) {
    return {...portable, ready: {spawn: 'portable', why: messageOf(error)}}
  }
}
