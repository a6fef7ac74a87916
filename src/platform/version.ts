/** Version of Belfry. `package.json` states the release; a build states the commit it was made of. */
import manifest from '../../package.json' with {type: 'json'}
import {readIfExistsSync} from './durable-file.ts'

/** Written by `scripts/build.js` beside the folder of the program. Sources have none. */
const COMMIT_FILE = new URL('../commit', import.meta.url)

/** `0.2.0`, a build between releases `0.2.0-dev+1a2b3c4`, and sources without a build `0.2.0-dev`. */
export const VERSION: string = versionOf(readIfExistsSync(COMMIT_FILE)?.trim() ?? null)

/** `built`: `''` = the release itself, `null` = not built. */
function versionOf(built: string | null): string {
  if (built === '') return manifest.version
  return `${manifest.version}-dev${built === null ? '' : `+${built}`}`
}
