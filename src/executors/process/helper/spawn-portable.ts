/**
 * Starts processes with Node's child_process: works everywhere Node does. Forks, so only a small process
 * may use it.
 */
import {spawn as spawnChild} from 'node:child_process'

import type {Spawn} from './spawn.ts'

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
