/**
 * `npm run build`, and a part of `npm ci`: bundles the sources and their dependencies into `dist/<id>/`,
 * where bin/belfry.js finds them. A bundle starts in a fraction of the time and memory that the sources take.
 * It is JavaScript so that any Node can run it. With `--package` (`npm pack`) no earlier build is kept.
 */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
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
 * @param {typeof import('esbuild')} esbuild
 * @param {string} folder
 */
async function bundle(esbuild, folder) {
  const {metafile} = await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: ENTRIES,
    outdir: join(folder, 'program'),
    bundle: true,
    // Modules that are imported on demand stay in files of their own.
    splitting: true,
    external: NOT_BUNDLED,
    format: 'esm',
    platform: 'node',
    target: 'node26',
    banner: {js: REQUIRE},
    plugins: [NODE_MODULES, LOADED_LATER],
    // Not minified: stack traces name functions. `NODE_OPTIONS=--enable-source-maps` shows the sources.
    sourcemap: 'linked',
    sourcesContent: false,
    metafile: true,
    logLevel: 'warning',
  })
  writeFileSync(join(folder, 'LICENSES.txt'), licenses(Object.keys(metafile.inputs)))
  cpSync(join(ROOT, 'src', 'http', 'ui'), join(folder, 'ui'), {recursive: true})
}

/**
 * The licenses of the bundled packages, which ask to be passed on.
 *
 * @param {readonly string[]} inputs paths of bundled files
 */
function licenses(inputs) {
  const packages = inputs.map((path) => /.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0])
  return [...new Set(packages.filter((path) => path !== undefined))]
    .toSorted()
    .map((path) => join(ROOT, path))
    .map((path) => {
      const {name, version, license} = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'))
      const file = readdirSync(path).find((entry) => /^licen[cs]e/i.test(entry))
      const text = file === undefined ? '' : `\n\n${readFileSync(join(path, file), 'utf8').trim()}`
      return `${name} ${version}: ${license}${text}\n`
    })
    .join(`\n${'-'.repeat(100)}\n\n`)
}

/** The oldest first. */
function buildsByAge() {
  return readdirSync(BUILDS)
    .map((name) => join(BUILDS, name))
    .toSorted((one, other) => statSync(one).mtimeMs - statSync(other).mtimeMs)
}

/** @returns the bundler; `null` = not installed, or not for this system. */
async function bundler() {
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
    await bundle(esbuild, draft)
    renameSync(draft, folder)
  }
  const others = buildsByAge().filter((build) => build !== folder)
  const othersKept = process.argv.includes('--package') ? 0 : BUILDS_KEPT - 1
  for (const old of others.slice(0, Math.max(0, others.length - othersKept)))
    rmSync(old, {recursive: true, force: true})
}

await main()
