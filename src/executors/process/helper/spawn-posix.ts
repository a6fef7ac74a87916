/**
 * Starts processes with posix_spawn of the C library, called through node:ffi. It does not fork the helper's
 * memory and is three times as fast as child_process. node:ffi is experimental, so it is tested before use.
 * It is used only where the C structures are known: Linux with glibc on x64 and arm64. It reaps each process
 * it started by its pid. Runs in the helper only.
 */
import {closeSync, openSync} from 'node:fs'
import {constants} from 'node:os'
import {resolve} from 'node:path'
import type {OpenPipe} from './pipes.ts'
import {isDirectory, lookUp, type Spawn, type SpawnListener, type SpawnRequest} from './spawn.ts'

type Ffi = typeof import('node:ffi')

/** Flags of glibc's <spawn.h>. */
const SETSIGDEF = 0x04
const SETSIGMASK = 0x08
const SETSID = 0x80

/** Both structures and a signal set are smaller (336, 80 and 128 bytes). */
const STRUCTURE_BYTES = 512

/** Flags of <sys/wait.h>. With WNOWAIT, waitid reports a child without reaping it. */
const P_ALL = 0
const WNOHANG = 1
const WEXITED = 4
const WNOWAIT = 0x01000000
/** Offset of `si_pid` in the `siginfo_t` of a 64-bit Linux. */
const SI_PID_OFFSET = 16

/** Arrays of up to 64 bytes may be on the garbage-collected heap, which moves them; larger ones are not. */
const OFF_HEAP_BYTES = 128

const O_RDONLY = 0
const O_WRONLY = 1
const O_NONBLOCK = 0o4000
const O_CLOEXEC = 0o2000000
const F_SETFL = 4

/** Polling interval for ended children, in case a SIGCHLD is lost. */
const POLL_MS = 1_000

const CODES = new Map(Object.entries(constants.errno).map(([name, number]) => [number, name]))
const SIGNALS = new Map(Object.entries(constants.signals).map(([name, number]) => [number, name]))

const SIGNATURES = {
  posix_spawnattr_init: {arguments: ['buffer'], return: 'int32'},
  posix_spawnattr_setflags: {arguments: ['buffer', 'int16'], return: 'int32'},
  posix_spawnattr_setsigdefault: {arguments: ['buffer', 'buffer'], return: 'int32'},
  posix_spawnattr_setsigmask: {arguments: ['buffer', 'buffer'], return: 'int32'},
  posix_spawn_file_actions_init: {arguments: ['buffer'], return: 'int32'},
  posix_spawn_file_actions_destroy: {arguments: ['buffer'], return: 'int32'},
  posix_spawn_file_actions_adddup2: {arguments: ['buffer', 'int32', 'int32'], return: 'int32'},
  posix_spawn_file_actions_addopen: {
    arguments: ['buffer', 'int32', 'buffer', 'int32', 'uint32'],
    return: 'int32',
  },
  posix_spawn_file_actions_addchdir_np: {arguments: ['buffer', 'buffer'], return: 'int32'},
  posix_spawn: {
    arguments: ['buffer', 'buffer', 'buffer', 'buffer', 'buffer', 'buffer'],
    return: 'int32',
  },
  sigfillset: {arguments: ['buffer'], return: 'int32'},
  sigemptyset: {arguments: ['buffer'], return: 'int32'},
  pipe2: {arguments: ['buffer', 'int32'], return: 'int32'},
  fcntl: {arguments: ['int32', 'int32', 'int32'], return: 'int32'},
  kill: {arguments: ['int32', 'int32'], return: 'int32'},
  waitpid: {arguments: ['int32', 'buffer', 'int32'], return: 'int32'},
  waitid: {arguments: ['int32', 'uint32', 'buffer', 'int32'], return: 'int32'},
} as const

function bind(ffi: Ffi) {
  return ffi.dlopen('libc.so.6', SIGNATURES).functions
}
type Libc = ReturnType<typeof bind>

/** Functions of the C library that the helper calls. */
export interface PosixCalls {
  readonly spawn: Spawn
  readonly openPipe: OpenPipe
  /** True if the process group has a process that can be signalled. */
  readonly groupIsAlive: (group: number) => boolean
}

/** Throws, with the reason, where posix_spawn cannot be used. */
export async function loadPosixSpawn(portable: Spawn): Promise<PosixCalls> {
  if (process.platform !== 'linux' || !['x64', 'arm64'].includes(process.arch)) {
    throw new Error(
      `posix_spawn is used on Linux x64 and arm64 only, not on ${process.platform} ${process.arch}`,
    )
  }
  const ffi = await import('node:ffi')
  const spawner = new PosixSpawner(ffi)
  const spawn: Spawn = (request, listener) =>
    // glibc's posix_spawn cannot change the user.
    request.user === null ? spawner.spawn(request, listener) : portable(request, listener)
  await selfTest(spawn)
  return {
    spawn,
    openPipe: (blocking) => spawner.openPipe(blocking),
    groupIsAlive: (group) => spawner.groupIsAlive(group),
  }
}

/** Starts one process and checks its exit status, because node:ffi is experimental. */
function selfTest(spawn: Spawn): Promise<void> {
  const output = openSync('/dev/null', 'w')
  const environment = {PATH: '/usr/bin:/bin'}
  const request = {
    argv: ['sh', '-c', 'exit 7'],
    environment,
    cwd: '/',
    input: null,
    output,
    user: null,
  }
  return new Promise<void>((done, reject) => {
    spawn(request, {
      exited: (exitCode) => {
        if (exitCode === 7) done()
        else
          reject(
            new Error(`the self-test of posix_spawn returned exit status ${exitCode} instead of 7`),
          )
      },
      failed: (code) => reject(new Error(`the self-test of posix_spawn failed with ${code}`)),
    })
  }).finally(() => closeSync(output))
}

class PosixSpawner {
  readonly #libc: Libc
  readonly #attributes = Buffer.alloc(STRUCTURE_BYTES)
  readonly #actions = Buffer.alloc(STRUCTURE_BYTES)
  readonly #pipe = Buffer.alloc(OFF_HEAP_BYTES)
  readonly #pid = Buffer.alloc(OFF_HEAP_BYTES)
  readonly #status = Buffer.alloc(OFF_HEAP_BYTES)
  readonly #info = Buffer.alloc(STRUCTURE_BYTES)
  readonly #null = new CString().set('/dev/null')
  readonly #file = new CString()
  readonly #directory = new CString()
  readonly #argv: StringArray
  readonly #environment: StringArray
  readonly #children = new Map<number, SpawnListener>()
  readonly #files = new FileLookup()

  constructor(ffi: Ffi) {
    this.#argv = new StringArray(ffi)
    this.#environment = new StringArray(ffi)
    this.#libc = bind(ffi)
    const libc = this.#libc
    const all = Buffer.alloc(STRUCTURE_BYTES)
    const none = Buffer.alloc(STRUCTURE_BYTES)
    libc.sigfillset(all)
    libc.sigemptyset(none)
    const failed =
      libc.posix_spawnattr_init(this.#attributes) ||
      libc.posix_spawnattr_setflags(this.#attributes, SETSIGDEF | SETSIGMASK | SETSID) ||
      libc.posix_spawnattr_setsigdefault(this.#attributes, all) ||
      libc.posix_spawnattr_setsigmask(this.#attributes, none)
    if (failed !== 0) throw new Error(`posix_spawnattr failed with ${CODES.get(failed) ?? failed}`)
    process.on('SIGCHLD', () => this.#reap())
    setInterval(() => this.#reap(), POLL_MS).unref()
  }

  spawn(request: SpawnRequest, listener: SpawnListener): number | null {
    const found = this.#files.find(request)
    if ('code' in found) {
      listener.failed(found.code)
      return null
    }
    let failed = this.#start(found.file, request.argv, request)
    if (failed === constants.errno.ENOEXEC) {
      // A script without an interpreter line is run by the shell, as execvp does.
      failed = this.#start('/bin/sh', ['/bin/sh', found.file, ...request.argv.slice(1)], request)
    }
    if (failed !== 0) {
      // A cached path may be the cause.
      this.#files.clear()
      listener.failed(CODES.get(failed) ?? `error ${failed}`)
      return null
    }
    const pid = this.#pid.readInt32LE(0)
    this.#children.set(pid, listener)
    return pid
  }

  openPipe(blocking: 'reader' | 'writer'): ReturnType<OpenPipe> {
    if (this.#libc.pipe2(this.#pipe, O_CLOEXEC | O_NONBLOCK) !== 0) {
      // The only cause in pipe(2) for these arguments: this process, or the system, has too many open files.
      const message = 'no file descriptor is free for the output'
      throw Object.assign(new Error(message), {code: 'EMFILE'})
    }
    const reader = this.#pipe.readInt32LE(0)
    const writer = this.#pipe.readInt32LE(4)
    if (blocking === 'writer') this.#libc.fcntl(writer, F_SETFL, O_WRONLY)
    else this.#libc.fcntl(reader, F_SETFL, O_RDONLY)
    return {reader, writer}
  }

  /** `process.kill` would throw for each group that has ended, with a stack trace. */
  groupIsAlive(group: number): boolean {
    return this.#libc.kill(-group, 0) === 0
  }

  /** Returns an errno, or 0 with the pid in `#pid`. */
  #start(file: string, argv: readonly string[], request: SpawnRequest): number {
    const libc = this.#libc
    const actions = this.#actions
    const prepared = libc.posix_spawn_file_actions_init(actions)
    if (prepared !== 0) return prepared
    const failed =
      (request.cwd === ''
        ? 0
        : libc.posix_spawn_file_actions_addchdir_np(actions, this.#directory.set(request.cwd))) ||
      (request.input === null
        ? libc.posix_spawn_file_actions_addopen(actions, 0, this.#null, O_RDONLY, 0)
        : libc.posix_spawn_file_actions_adddup2(actions, request.input, 0)) ||
      libc.posix_spawn_file_actions_adddup2(actions, request.output, 1) ||
      libc.posix_spawn_file_actions_adddup2(actions, request.output, 2) ||
      this.#call(file, argv, request)
    libc.posix_spawn_file_actions_destroy(actions)
    return failed
  }

  #call(file: string, argv: readonly string[], request: SpawnRequest): number {
    const pairs: string[] = []
    for (const name in request.environment) pairs.push(`${name}=${request.environment[name]}`)
    return this.#libc.posix_spawn(
      this.#pid,
      this.#file.set(file),
      this.#actions,
      this.#attributes,
      this.#argv.set(argv),
      this.#environment.set(pairs),
    )
  }

  /** Reaps the children started here only; child_process reaps its own by their pids. */
  #reap(): void {
    while (this.#children.size > 0) {
      this.#info.fill(0)
      const failed = this.#libc.waitid(P_ALL, 0, this.#info, WEXITED | WNOHANG | WNOWAIT)
      const pid = this.#info.readInt32LE(SI_PID_OFFSET)
      if (failed !== 0 || pid === 0) return
      if (!this.#children.has(pid)) {
        // A child of child_process is reported first until it is reaped: check each child here.
        for (const child of this.#children.keys()) this.#reapChild(child)
        return
      }
      this.#reapChild(pid)
    }
  }

  #reapChild(pid: number): void {
    if (this.#libc.waitpid(pid, this.#status, WNOHANG) !== pid) return
    const listener = this.#children.get(pid)!
    this.#children.delete(pid)
    const status = this.#status.readInt32LE(0)
    const signal = status & 0x7f
    if (signal === 0) listener.exited((status >> 8) & 0xff, '')
    else listener.exited(null, SIGNALS.get(signal) ?? `signal ${signal}`)
  }
}

/** Most bytes of UTF-8 for one unit of a JavaScript string. */
const UNIT_BYTES_MAX = 3

/** A larger memory, of a rare long command, is replaced at the next call. */
const KEPT_BYTES_MAX = 64 * 1024

/** True if memory of this size is to be replaced for a call that needs `bytesMax`. */
function isUnfit(size: number, bytesMax: number): boolean {
  return bytesMax > size || size > Math.max(KEPT_BYTES_MAX, bytesMax)
}

/** Memory for one C string, used again for the next: memory of each call would be garbage to collect. */
class CString {
  #bytes = Buffer.alloc(OFF_HEAP_BYTES)

  /** Valid until the next call. */
  set(text: string): Buffer {
    const bytesMax = UNIT_BYTES_MAX * text.length + 1
    if (isUnfit(this.#bytes.length, bytesMax))
      this.#bytes = Buffer.alloc(Math.max(bytesMax, OFF_HEAP_BYTES))
    this.#bytes[this.#bytes.write(text)] = 0
    return this.#bytes
  }
}

/** Memory for a NULL-terminated `char *[]` and its strings, used again like that of `CString`. */
class StringArray {
  readonly #ffi: Ffi
  #bytes = Buffer.alloc(0)
  #address = 0
  /** Two words a pointer, the low one first. */
  #pointers = new Uint32Array(0)

  constructor(ffi: Ffi) {
    this.#ffi = ffi
  }

  /** Valid until the next call. */
  set(texts: readonly string[]): Uint32Array {
    const unitCount = texts.reduce((sum, {length}) => sum + length, 0)
    this.#reserve(UNIT_BYTES_MAX * unitCount + texts.length, texts.length + 1)
    let offset = 0
    texts.forEach((text, index) => {
      this.#point(index, this.#address + offset)
      offset += this.#bytes.write(text, offset)
      this.#bytes[offset++] = 0
    })
    this.#point(texts.length, 0)
    return this.#pointers
  }

  #point(index: number, address: number): void {
    this.#pointers[2 * index] = address
    this.#pointers[2 * index + 1] = address / 2 ** 32
  }

  #reserve(bytesMax: number, pointersMax: number): void {
    if (isUnfit(this.#bytes.length, bytesMax)) {
      this.#bytes = Buffer.alloc(Math.max(bytesMax, OFF_HEAP_BYTES))
      this.#address = Number(this.#ffi.getRawPointer(this.#bytes))
    }
    if (2 * pointersMax > this.#pointers.length)
      this.#pointers = new Uint32Array(Math.max(2 * pointersMax, OFF_HEAP_BYTES))
  }
}

/** How long a path is cached; shells cache it for longer. */
const LOOKUP_FRESH_MS = 1_000
const LOOKUPS_MAX = 256

/** Cached look-ups in the command's PATH: posix_spawnp would search the helper's PATH. */
class FileLookup {
  readonly #known = new Map<string, {file: string; until: number}>()

  find(request: SpawnRequest): {file: string} | {code: string} {
    const name = request.argv[0]!
    const path = request.environment['PATH'] ?? ''
    const key = `${name}\0${path}\0${request.cwd}`
    const now = performance.now()
    const known = this.#known.get(key)
    if (known !== undefined && known.until > now) return known
    if (request.cwd !== '' && !isDirectory(request.cwd)) return {code: 'ENOENT'}
    const file = lookUp(name, path, resolve(request.cwd))
    if (file === null) return {code: 'ENOENT'}
    if (this.#known.size >= LOOKUPS_MAX) this.#known.clear()
    this.#known.set(key, {file, until: now + LOOKUP_FRESH_MS})
    return {file}
  }

  clear(): void {
    this.#known.clear()
  }
}
