/**
 * The one call that starts a process, as a replaceable part of the helper. Whatever stands behind it, a
 * command gets a session and group of its own, default signals, no descriptor but its three, and exactly
 * the environment it is given.
 */
import {spawn as spawnChild} from 'node:child_process'
import {accessSync, constants, statSync} from 'node:fs'
import {resolve} from 'node:path'

export interface SpawnRequest {
  /** `argv[0]` is looked up in `environment.PATH` unless it holds a slash. */
  readonly argv: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  /** `''` = the helper's own. */
  readonly cwd: string
  /** A descriptor, or `null` for /dev/null. */
  readonly input: number | null
  /** Standard output and error. */
  readonly output: number
  /** `null` = as the helper. */
  readonly user: {readonly uid: number; readonly gid: number} | null
}

export interface SpawnListener {
  /**
   * Exactly once for every process that started. Signal names as in `os.constants.signals`; `''` = ended by
   * exit code.
   */
  exited(exitCode: number | null, signal: string): void
  /** Instead of `exited` when nothing was started; `code` as in errno, e.g. `ENOENT`. */
  refused(code: string): void
}

/** Answers the pid, or `null` when nothing was started (then `refused` has been or will be called). */
export type Spawn = (request: SpawnRequest, listener: SpawnListener) => number | null

/** Why `code` came back, in words that name what to change. No full stop. */
export function explainRefusal(code: string, request: SpawnRequest): string {
  const command = JSON.stringify(request.argv[0])
  if (request.cwd !== '' && !isDirectory(request.cwd)) {
    return `cwd ${JSON.stringify(request.cwd)} is not a directory on this node`
  }
  if (code === 'ENOENT') {
    if (request.argv[0]!.includes('/'))
      return `command not found: ${command} does not exist, or its interpreter`
    return `command not found: ${command} is in none of PATH=${request.environment['PATH'] ?? ''}`
  }
  if (code === 'EACCES') return `permission denied: ${command} may not be executed by this user`
  if (code === 'E2BIG') return 'the command line and environment are larger than the system allows'
  return `the system could not start ${command}: ${code}`
}

function isDirectory(path: string): boolean {
  return statSync(path, {throwIfNoEntry: false})?.isDirectory() ?? false
}

/**
 * The file that `name` stands for: itself when it holds a slash, else the first that may be executed in
 * `path`, whose relative directories start at `cwd`. `null` when there is none.
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
  if (!(statSync(file, {throwIfNoEntry: false})?.isFile() ?? false)) return false
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false // not for us: look further, as a shell does
  }
}

/*
 * Starts processes with Node's child_process: works everywhere Node does. Forks, so only a small process
 * may use it.
 */

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
    listener.refused((error as NodeJS.ErrnoException).code ?? String(error))
    return null
  }
  if (child.pid === undefined) {
    child.once('error', (error: NodeJS.ErrnoException) =>
      listener.refused(error.code ?? String(error)),
    )
    return null
  }
  child.once('exit', (exitCode, signal) => listener.exited(exitCode, signal ?? ''))
  return child.pid
}
