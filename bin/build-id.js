// Names the build that belongs to the present sources: `dist/<id>/`. The id covers the path, size and time of
// each source file: after an edit, an older build is never run. Used to build and to start.
import {createHash} from 'node:crypto'
import {existsSync, readdirSync, statSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {fileURLToPath} from 'node:url'

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..')

/** What a build is made of. The lock file stands for the dependencies, which are part of the build. */
const INPUTS = ['package.json', 'package-lock.json', 'scripts/build.js', 'src']

/** @param {string} path below the root */
function* filesIn(path) {
  const full = join(ROOT, path)
  const status = statSync(full, {throwIfNoEntry: false})
  if (status === undefined) return
  if (!status.isDirectory()) yield `${path} ${status.size} ${status.mtimeMs}`
  else for (const name of readdirSync(full).toSorted()) yield* filesIn(`${path}/${name}`)
}

/** Takes some milliseconds. */
export function buildId() {
  const hash = createHash('sha256')
  for (const input of INPUTS) for (const file of filesIn(input)) hash.update(`${file}\n`)
  return hash.digest('hex').slice(0, 16)
}

/** The folder of the build to run; `null` = run the sources. A package without sources has one build. */
export function builtFolder() {
  const builds = join(ROOT, 'dist')
  if (!existsSync(builds)) return null
  const id = existsSync(join(ROOT, 'src')) ? buildId() : readdirSync(builds)[0]
  if (id === undefined || !existsSync(join(builds, id))) return null
  return join(builds, id)
}
