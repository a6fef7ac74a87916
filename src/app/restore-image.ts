/**
 * `belfry restore-store`: a data directory made out of an image, while no server runs on it. Beside the
 * composition roots because it names an adapter, and needs nothing else of a server.
 */
import {resolve} from 'node:path'
import {restoreStore} from '../store/sqlite/backup.ts'
import {prepareDataDirectory} from '../platform/data-directory.ts'
import {systemClock} from '../platform/clock.ts'
import {systemRandom} from '../platform/random.ts'

/** Paths may be relative to the working directory. `problem` is one sentence. */
export async function restoreImage(
  image: string,
  directory: string,
): Promise<{readonly ok: true} | {readonly ok: false; readonly problem: string}> {
  const dataDirectory = resolve(directory)
  const prepared = await prepareDataDirectory(dataDirectory)
  if (!prepared.ok) return prepared
  return restoreStore(resolve(image), dataDirectory, {clock: systemClock(), random: systemRandom()})
}
