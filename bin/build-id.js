// Names the build that belongs to the present sources: `dist/<id>/`. The id covers the path, size and time of
// each source file: after an edit, an older build is never run. Used to build and to start.
import {hash} from 'node:crypto'
import {existsSync, readdirSync, statSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {fileURLToPath} from 'node:url'

export const ROOT = dirname(dirname(fileURLToPath(import.meta.url)))

/** Files that a build is made of. The lock file stands for the dependencies, which are part of the build. */
const INPUTS = ['package.json', 'package-lock.json', 'scripts/build.js', 'src']

/**
 * Path, size and time of a file, or of all files in a folder; a line each.
 *
 * @param {string} path
 * @returns {string}
 */
function describe(path) {
  const status = statSync(path, {throwIfNoEntry: false})
  if (status === undefined) return ''
  if (!status.isDirectory()) return `${path} ${status.size} ${status.mtimeMs}\n`
  let text = ''
  for (const name of readdirSync(path).toSorted()) text += describe(`${path}/${name}`)
  return text
}

/** Takes some milliseconds. */
export function buildId() {
  const text = INPUTS.map((input) => describe(`${ROOT}/${input}`)).join('')
  // The place of the folder does not count: it may be built in one place and run in another.
  return hash('sha256', text.replaceAll(ROOT, '')).slice(0, 16)
}

/** The folder of the build to run; `null` = run the sources. A package without sources has one build. */
export function builtFolder() {
  const builds = join(ROOT, 'dist')
  if (!existsSync(builds)) return null
  const id = existsSync(join(ROOT, 'src')) ? buildId() : readdirSync(builds)[0]
  if (id === undefined || !existsSync(join(builds, id))) return null
  return join(builds, id)
}
