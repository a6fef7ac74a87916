/**
 * `npm run build`, and a part of `npm ci`: bundles the sources and their dependencies into `dist/<id>/`,
 * where bin/belfry.js finds them. A bundle starts in a fraction of the time and memory that the sources take.
 * It is JavaScript so that any Node can run it. With `--package` (`npm pack`) no earlier build is kept.
 */
import {execFileSync} from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {join} from 'node:path'
import {buildId, ROOT} from '../bin/build-id.js'

const BUILDS = join(ROOT, 'dist')
/**
 * A server that was not restarted since runs an earlier one, and loads parts of it on demand: its next
 * process helper, for example. Each takes 8 MiB.
 */
const BUILDS_KEPT = 10

/** Never installed. */
const NOT_BUNDLED = ['pg-native']

/** Entries of processes and threads, at the places where their parents look for them. */
const ENTRIES = {
  main: 'src/main.ts',
  'writer-worker': 'src/store/sqlite/writer-worker.ts',
  'check-worker': 'src/store/sqlite/check-worker.ts',
  'backup-worker': 'src/store/postgres/backup-worker.ts',
  'helper/main': 'src/executors/process/helper/main.ts',
}

/** Packages in CommonJS load the modules of Node with `require`. */
const REQUIRE = `const require = process.getBuiltinModule('node:module').createRequire(import.meta.url);`

/**
 * Loads the modules of Node as `require` does. An `import` reads all their exports, also those that load
 * more: `node:http` alone would load fetch and WebSocket, some 15 MiB. Fastify and undici load HTTP/2, 5 MiB,
 * which Belfry neither serves nor requests; undici can do without.
 *
 * @type {import('esbuild').Plugin}
 */
const NODE_MODULES = {
  name: 'modules of Node',
  setup({onResolve, onLoad}) {
    onResolve({filter: /^node:/}, ({path, kind}) =>
      kind === 'import-statement' || path === 'node:http2' ? {path, namespace: 'node'} : null,
    )
    onLoad({filter: /^node:/, namespace: 'node'}, ({path}) => ({
      contents:
        path === 'node:http2'
          ? 'module.exports = {constants: {}}'
          : `module.exports = process.getBuiltinModule(${JSON.stringify(path)})`,
    }))
  },
}

/**
 * The sources load a few packages synchronously when they first need them. As a plain `require` the bundler
 * sees which, and includes them.
 *
 * @type {import('esbuild').Plugin}
 */
const LOADED_LATER = {
  name: 'packages loaded later',
  setup({onLoad}) {
    onLoad({filter: /[\\/]src[\\/].*\.ts$/}, ({path}) => {
      const text = readFileSync(path, 'utf8')
      if (!text.includes(REQUIRE_LATER)) return null
      return {contents: text.replaceAll(REQUIRE_LATER, 'require('), loader: 'ts'}
    })
  },
}
const REQUIRE_LATER = 'createRequire(import.meta.url)('

/**
 * Bundles the program and `more` into `folder`; returns the paths of the bundled files. `plugins` come before
 * our own. A file that is no part of the program stays out if `external` names its package.
 *
 * @param {typeof import('esbuild')} esbuild
 * @param {string} folder
 * @param {{entries?: Record<string, string>, plugins?: import('esbuild').Plugin[], external?: string[]}} more
 */
export async function bundle(esbuild, folder, {entries = {}, plugins = [], external = []} = {}) {
  const {metafile} = await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: {...ENTRIES, ...entries},
    outdir: join(folder, 'program'),
    bundle: true,
    // Modules that are imported on demand stay in files of their own.
    splitting: true,
    external: [...NOT_BUNDLED, ...external],
    format: 'esm',
    platform: 'node',
    target: 'node26',
    banner: {js: REQUIRE},
    plugins: [...plugins, NODE_MODULES, LOADED_LATER],
    // The bundle is not minified: stack traces name functions. `NODE_OPTIONS=--enable-source-maps` shows the
    // sources.
    sourcemap: 'linked',
    sourcesContent: false,
    metafile: true,
    logLevel: 'warning',
  })
  cpSync(join(ROOT, 'src', 'http', 'ui'), join(folder, 'ui'), {recursive: true})
  return metafile
}

/**
 * A package that is published prebuilt, and what its own build bundled (its dependencies, of which some carry
 * no notice). To update it: `npm view @scalar/api-reference@VERSION dependencies`.
 */
const PREBUILT = {
  package: '@scalar/fastify-api-reference 1.72.1',
  contains:
    '@scalar/api-reference 1.72.1 and other packages of @scalar, @headlessui/vue, @unhead/vue, ' +
    '@vueuse/core, microdiff, nanoid, vue (all MIT), fuse.js (Apache-2.0), yaml (ISC), and packages that ' +
    'these depend on, among them hast and mdast utilities, radix-vue, tailwindcss and zod (all MIT)',
}

/**
 * The licenses of the bundled packages, which ask to be passed on.
 *
 * @param {readonly string[]} inputs paths of bundled files
 */
function licenses(inputs) {
  /** @type {Map<string, string[]>} */
  const filesOf = new Map()
  for (const input of inputs) {
    const path = /.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input)?.[0]
    if (path !== undefined) filesOf.set(path, [...(filesOf.get(path) ?? []), input])
  }
  const entries = [...filesOf.keys()].toSorted().map((path) => {
    const folder = join(ROOT, path)
    const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
    const title = `${about.name} ${about.version}`
    const parts = [`${title}: ${about.license}`, licenseText(folder, about)]
    if (about.name === PREBUILT.package.split(' ')[0]) {
      if (title !== PREBUILT.package)
        throw new Error(`PREBUILT in scripts/build.js must be updated: ${title} is installed.`)
      parts.push(`It contains ${PREBUILT.contains}.`)
    }
    return [...parts, ...noticesIn(filesOf.get(path) ?? [])].join('\n\n')
  })
  return `${entries.join(`\n\n${'-'.repeat(100)}\n\n`)}\n`
}

/**
 * The text in the package or, if it ships none, that of its README, or the standard one with its author.
 *
 * @param {string} folder
 * @param {{readonly name: string, readonly license: string, readonly author?: string | {name: string}}} about
 */
function licenseText(folder, {name, license, author}) {
  const entries = readdirSync(folder)
  const file = entries.find((entry) => /^licen[cs]e/i.test(entry))
  if (file !== undefined) return readFileSync(join(folder, file), 'utf8').trim()
  const readme = entries.find((entry) => /^readme/i.test(entry))
  const pages = readme === undefined ? '' : readFileSync(join(folder, readme), 'utf8')
  const section = pages.split(/^#+ *licen[cs]e.*$/im)[1]?.trim() ?? ''
  if (section.includes('Permission is hereby granted')) return section
  if (license !== 'MIT' || author === undefined)
    throw new Error(`${name} cannot be bundled: no text of its license (${license}) was found.`)
  const holder = typeof author === 'string' ? author : author.name
  return `MIT License\n\nCopyright (c) ${holder}\n\n${MIT}`
}

const MIT = `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and
associated documentation files (the "Software"), to deal in the Software without restriction,
including without limitation the rights to use, copy, modify, merge, publish, distribute,
sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial
portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT
NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES
OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.`

/** Comments beyond this length are code that is commented out, or text of a page. */
const NOTICE_LENGTH_MAX = 2_000

/**
 * Notices of packages that a published file bundles, from its comments.
 *
 * @param {readonly string[]} files
 */
function noticesIn(files) {
  const comments = files.flatMap((file) =>
    (readFileSync(join(ROOT, file), 'utf8').match(/\/\*[*!][^]*?\*\//g) ?? []).filter(
      (text) => text.length <= NOTICE_LENGTH_MAX && /@license|\| MIT License/.test(text),
    ),
  )
  // A prebuilt page is a string in a script: its line breaks are escaped.
  const notices = [...new Set(comments.map((text) => text.replaceAll('\\n', '\n')))]
  return notices.length === 0 ? [] : [`Notices in its files:\n\n${notices.join('\n')}`]
}

/** Inputs of a build, the same list as in `bin/build-id.js`: other files do not change its id. */
const BUILT_OF = ['package.json', 'package-lock.json', 'scripts/build.js', 'src']

/**
 * The commit of this tree, such as `1a2b3c4`, with `.dirty` for changes that are not committed. Empty for a
 * release: its commit has the tag of the version, or there is no repository, as in a source archive.
 */
function commit() {
  if (!existsSync(join(ROOT, '.git'))) return ''
  const {version} = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'))
  const head = git('rev-parse', '--short=7', 'HEAD') || 'unknown'
  const changes = git('status', '--porcelain', '--', ...BUILT_OF) === '' ? '' : '.dirty'
  const isRelease = git('tag', '--points-at', 'HEAD').split('\n').includes(`v${version}`)
  return isRelease && changes === '' ? '' : `${head}${changes}`
}

/**
 * Output of git; `''` = it failed, as without a commit, or it is not installed.
 *
 * @param {readonly string[]} parameters
 */
function git(...parameters) {
  try {
    const options = {cwd: ROOT, stdio: ['ignore', 'pipe', 'ignore']}
    return String(execFileSync('git', parameters, options)).trim()
  } catch {
    return ''
  }
}

/** The oldest first. */
function buildsByAge() {
  return readdirSync(BUILDS)
    .map((name) => join(BUILDS, name))
    .toSorted((one, other) => statSync(one).mtimeMs - statSync(other).mtimeMs)
}

/** @returns the bundler; `null` = not installed, or not for this system. */
export async function bundler() {
  try {
    return await import('esbuild')
  } catch (error) {
    console.log(`Not built: ${String(error)}. Run "npm ci" without --omit=dev.`)
    return null
  }
}

async function main() {
  const esbuild = await bundler()
  if (esbuild === null) return
  const folder = join(BUILDS, buildId())
  if (!existsSync(folder)) {
    // Renamed when it is complete: a start meanwhile, or after a crash here, runs the sources.
    const draft = `${folder}.${process.pid}`
    mkdirSync(draft, {recursive: true})
    const {inputs} = await bundle(esbuild, draft)
    writeFileSync(join(draft, 'LICENSES.txt'), licenses(Object.keys(inputs)))
    renameSync(draft, folder)
  }
  // Written also for an earlier build: its sources may have been committed since.
  writeFileSync(join(folder, 'commit'), `${commit()}\n`)
  const others = buildsByAge().filter((build) => build !== folder)
  const othersKept = process.argv.includes('--package') ? 0 : BUILDS_KEPT - 1
  for (const old of others.slice(0, Math.max(0, others.length - othersKept)))
    rmSync(old, {recursive: true, force: true})
}

// The tests are bundled by the same rules: scripts/bundle-tests.ts imports this file.
if (realpathSync(process.argv[1] ?? '') === import.meta.filename) await main()
