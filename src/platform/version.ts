/** Version of Belfry. `package.json` states the release; a build states the commit it was made of. */
import {readFileSync} from 'node:fs'
import manifest from '../../package.json' with {type: 'json'}

/** Written by `scripts/build.js` beside the folder of the program. Sources have none. */
const COMMIT_FILE = new URL('../commit', import.meta.url)

/** `0.2.0`, a build between releases `0.2.0-dev+1a2b3c4`, and sources without a build `0.2.0-dev`. */
export const VERSION: string = versionOf(commit())

function versionOf(built: string | null): string {
  if (built === '') return manifest.version
  return `${manifest.version}-dev${built === null ? '' : `+${built}`}`
}

/** `''` = the release itself, `null` = not built. */
function commit(): string | null {
  try {
    return readFileSync(COMMIT_FILE, 'utf8').trim()
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
    throw error
  }
}
