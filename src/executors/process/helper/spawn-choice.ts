/** Decides, once per helper life, how processes are started. */
import type {HelperReady, SpawnChoice} from '../protocol.ts'
import {spawnPortable} from './spawn-portable.ts'
import {loadPosixSpawn} from './spawn-posix.ts'
import type {Spawn} from './spawn.ts'

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
