/**
 * Starting a process: the contract, and the portable implementation with child_process. In every
 * implementation a command has its own session and group, default signals, three descriptors, and exactly the
 * requested environment.
 */
import {spawn as spawnChild} from 'node:child_process'
import {accessSync, constants, type Stats, statSync} from 'node:fs'
import {resolve} from 'node:path'

export interface SpawnRequest {
  /** `argv[0]` is looked up in `environment.PATH` unless it contains a slash. */
  readonly argv: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  /** `''` = that of the helper. */
  readonly cwd: string
  /** A descriptor, or `null` for /dev/null. */
  readonly input: number | null
  /** Standard output and error. */
  readonly output: number
  /** `null` = the user of the helper. */
  readonly user: {readonly uid: number; readonly gid: number} | null
}

export interface SpawnListener {
  /** Called exactly once for a started process. Signals as in `os.constants.signals`; `''` = exit code. */
  exited(exitCode: number | null, signal: string): void
  /** Called instead of `exited` when no process was started; `code` as in errno, e.g. `ENOENT`. */
  failed(code: string): void
}

/** Returns the pid, or `null` when no process was started: then `failed` has been or will be called. */
export type Spawn = (request: SpawnRequest, listener: SpawnListener) => number | null

/** Explains an errno code and names the setting to change. No final period. */
export function explainSpawnError(code: string, request: SpawnRequest): string {
  const command = JSON.stringify(request.argv[0])
  if (request.cwd !== '' && !isDirectory(request.cwd)) {
    return `cwd ${JSON.stringify(request.cwd)} is not a directory on this node`
  }
  if (code === 'ENOENT') {
    if (request.argv[0]!.includes('/'))
      return `command not found: ${command} does not exist, or its interpreter`
    return `command not found: ${command} is not in PATH=${request.environment['PATH'] ?? ''}`
  }
  if (code === 'EACCES') return `permission denied: ${command} is not executable for this user`
  if (code === 'E2BIG') return 'the command line and environment are larger than the system allows'
  return `the system could not start ${command}: ${code}`
}

/** False also for a path that this user cannot look up. */
export function isDirectory(path: string): boolean {
  return factsOf(path)?.isDirectory() ?? false
}

/** `null` = there is no such path, or a directory on the way cannot be searched. */
function factsOf(path: string): Stats | null {
  try {
    return statSync(path, {throwIfNoEntry: false}) ?? null
  } catch {
    return null // a program that this user cannot reach is not found, as in a shell
  }
}

/**
 * Resolves a program: `name` itself if it contains a slash, else the first executable file in `path`.
 * Relative directories in `path` start at `cwd`. `null` when there is none.
 */
export function lookUp(name: string, path: string, cwd: string): string | null {
  if (name.includes('/')) return name
  for (const directory of path.split(':')) {
    const file = resolve(cwd, directory, name)
    if (isExecutable(file)) return file
  }
  return null
}

function isExecutable(file: string): boolean {
  if (!(factsOf(file)?.isFile() ?? false)) return false
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false // the search continues, as in a shell
  }
}

/** Uses Node's child_process, which works on every platform. It forks, so only a small process may use it. */
export const spawnPortable: Spawn = (request, listener) => {
  let child
  try {
    child = spawnChild(request.argv[0]!, request.argv.slice(1), {
      detached: true,
      env: request.environment,
      stdio: [request.input ?? 'ignore', request.output, request.output],
      ...(request.cwd === '' ? {} : {cwd: request.cwd}),
      ...(request.user === null ? {} : request.user),
    })
  } catch (error) {
    listener.failed((error as NodeJS.ErrnoException).code ?? String(error))
    return null
  }
  if (child.pid === undefined) {
    child.once('error', (error: NodeJS.ErrnoException) =>
      listener.failed(error.code ?? String(error)),
    )
    return null
  }
  child.once('exit', (exitCode, signal) => listener.exited(exitCode, signal ?? ''))
  return child.pid
}
