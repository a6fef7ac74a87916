/** A file that was made or renamed is durable under its name only once its directory is. */
import {open} from 'node:fs/promises'

export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r')
  try {
    await directory.sync()
  } finally {
    await directory.close()
  }
}
