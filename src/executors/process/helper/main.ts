/**
 * Entry of the helper process: the only process of a node that starts others. It speaks frames over
 * descriptor 3, never lives longer than its parent, and when the parent is gone, whatever the reason, ends
 * every command it runs.
 */
import {closeSync, mkdirSync, readdirSync, readFileSync} from 'node:fs'
import {Socket} from 'node:net'
import {Journal} from '../journal.ts'
import {bootId} from '../../../platform/boot-id.ts'
import {listProcesses, readLinuxProcess} from '../process-table.ts'
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
import {type CommandWorld, RunningCommand} from './command.ts'
import {READ_BYTES} from './output.ts'
import {OutputPipes} from './pipes.ts'
import {loadPosixSpawn} from './spawn-posix.ts'
import {type Spawn, spawnPortable} from './spawn.ts'
import {UserLookup} from './user-lookup.ts'

/** The end of the link that the parent gave. */
const LINK_DESCRIPTOR = 3

/** Together 4 MiB. */
const SPARE_MAX = 64

/** As /proc/self/fdinfo shows it. */
const O_CLOEXEC = 0o2000000

/** What an orderly end may take beyond the grace: the KILL, the drain, the last frames. */
const EXIT_MARGIN_MS = 3_000

const link = new Socket({fd: LINK_DESCRIPTOR, readable: true, writable: true})
const commands = new Map<number, RunningCommand>()
let world: CommandWorld | null = null
let stopping = false
let abandoned = false
let corked = false

/** Frames of one turn of the loop leave in one write. */
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
 * Descriptors the node itself inherited, and never marked close-on-exec, would pass through us into every
 * command. All of Node's own are marked. (On macOS spawning closes everything by itself.)
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
    return '' // the one that listed the directory is closed by now
  }
}

async function setUp(setup: HelperSetup): Promise<void> {
  closeInherited()
  mkdirSync(setup.directory, {recursive: true, mode: 0o700})
  const pipes = new OutputPipes()
  await pipes.open(setup.directory)
  process.once('exit', () => pipes.close())
  const self = readLinuxProcess(process.pid)
  const started = self?.started ?? Math.round(Date.now() - performance.now())
  const journal = new Journal(setup.directory, {
    helper: process.pid,
    started,
    boot: bootId(),
    node: setup.nodeId,
  })
  const {spawn, ready} = await chooseSpawn(setup.spawn)
  world = {setup, pipes, journal, spawn, users: new UserLookup(), output, ended}
  setInterval(() => sampleMemory(), setup.memorySampleMs).unref()
  send(encodeJson(FRAME.ready, 0, ready satisfies HelperReady))
}

/**
 * Buffers of output that has been written, to be used again: fresh ones would pile up before they are
 * collected.
 */
const spare: Buffer[] = []

function output(execution: number, bytes: Buffer): void {
  if (abandoned) return
  const buffer = spare.pop() ?? Buffer.allocUnsafeSlow(HEADER_BYTES + READ_BYTES)
  send(encodeFrameInto(buffer, FRAME.output, execution, bytes), () => {
    if (spare.length < SPARE_MAX) spare.push(buffer)
  })
}

function ended(execution: number, end: CommandEnd): void {
  commands.delete(execution)
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

function begin(execution: number, request: StartRequest): void {
  const command = new RunningCommand(world!, execution, request)
  commands.set(execution, command)
  command.begin()
}

function stop(): void {
  if (stopping) return
  stopping = true
  if (commands.size === 0) return leave()
  for (const command of commands.values()) command.end('cancel')
  // Whatever happens the helper goes; what it could not end stands in the journal for the next life.
  setTimeout(() => process.exit(1), (world?.setup.killAfterMs ?? 0) + EXIT_MARGIN_MS)
}

/** The parent is gone, whatever the reason: nobody takes output or ends any more. */
function abandon(): void {
  abandoned = true
  for (const command of commands.values()) command.credit(Infinity)
  stop()
}

function leave(): void {
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
    if (!stopping) begin(execution, decodeJson<StartRequest>(payload))
  } else if (kind === FRAME.credit) commands.get(execution)?.credit(decodeCredit(payload))
  else if (kind === FRAME.cancel) commands.get(execution)?.end('cancel')
  else if (kind === FRAME.kill) commands.get(execution)?.kill('kill')
  else if (kind === FRAME.stop) stop()
})

link.on('data', (chunk: Buffer) => reader.push(chunk))
link.once('end', abandon)
link.once('close', abandon)
link.on('error', abandon)

// The parent decides when to end; a Ctrl-C meant for it reaches us too where the terminal is shared.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const) {
  process.on(signal, () => undefined)
}

/* Decides, once per helper life, how processes are started. */

/** posix_spawn when it is asked for, or `auto`, and possible; otherwise the portable way, with the reason. */
export async function chooseSpawn(
  choice: SpawnChoice,
): Promise<{spawn: Spawn; ready: HelperReady}> {
  if (choice === 'portable') return {spawn: spawnPortable, ready: {spawn: 'portable', why: ''}}
  try {
    return {spawn: await loadPosixSpawn(spawnPortable), ready: {spawn: 'posix', why: ''}}
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    return {spawn: spawnPortable, ready: {spawn: 'portable', why}}
  }
}
