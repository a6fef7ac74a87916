/**
 * Bundles the test files by the rules of the build, with the sources that they test: a test file and each
 * thread of a store then load a few files instead of some hundred. A test file knows itself by the place
 * of its source, as it does without a bundle.
 */
import {readdirSync, readFileSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {getCompileCacheDir} from 'node:module'
import {dirname, join} from 'node:path'
import {pathToFileURL} from 'node:url'
import type {Plugin} from 'esbuild'
import {ROOT} from '../bin/build-id.js'
import {bundle, bundler} from './build.js'

const FOLDER = join(ROOT, 'node_modules', '.cache', 'tests')
/** Parts of a bundle are named by their contents: those of earlier sources would stay forever. */
const KEPT_MS = 86_400_000
/** Packages that only tests use: they load files by name, or few tests need them. */
const NOT_BUNDLED = [
  'esbuild',
  'oidc-provider',
  'smtp-server',
  '@seriousme/openapi-schema-validator',
]

/** Tests find files and programs beside their sources. */
const OWN_PLACES: Plugin = {
  name: 'own places',
  setup({onLoad}) {
    onLoad({filter: /[\\/](?:test|tools|scripts|bin)[\\/][^.]*(?:\.test)?\.[jt]s$/}, ({path}) => {
      if (path.includes('node_modules')) return null
      const contents = readFileSync(path, 'utf8')
        .replaceAll('import.meta.dirname', JSON.stringify(dirname(path)))
        .replaceAll('import.meta.filename', JSON.stringify(path))
        .replaceAll('import.meta.url', JSON.stringify(pathToFileURL(path).href))
      return {contents, loader: 'ts'}
    })
  },
}

/** Name of a bundled file: all are in one folder, where the sources look for their threads and processes. */
const nameOf = (file: string) => file.replace(/\.ts$/, '').replaceAll(/[\\/]/g, '--')

/** Removes files that were written more than a day ago. A run meanwhile may still load younger ones. */
function removeOld(folder: string): void {
  for (const entry of readdirSync(folder, {withFileTypes: true})) {
    const path = join(folder, entry.name)
    const writtenAt = statSync(path, {throwIfNoEntry: false})?.mtimeMs ?? Infinity
    if (entry.isFile() && writtenAt < Date.now() - KEPT_MS) rmSync(path, {force: true})
  }
}

/** Paths of the bundles of `files`, in their order; `null` = there is no bundler. */
export async function bundleTests(files: readonly string[]): Promise<string[] | null> {
  const esbuild = await bundler()
  if (esbuild === null) return null
  const entries = Object.fromEntries(files.map((file) => [nameOf(file), file]))
  await bundle(esbuild, FOLDER, {entries, plugins: [OWN_PLACES], external: NOT_BUNDLED})
  writeFileSync(join(FOLDER, 'package.json'), '{"type": "module"}')
  for (const folder of [join(FOLDER, 'program'), getCompileCacheDir()])
    if (folder !== undefined) removeOld(folder)
  return files.map((file) => join(FOLDER, 'program', `${nameOf(file)}.js`))
}
