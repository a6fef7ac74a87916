/**
 * `npm run build`, and a part of `npm ci`: bundles the sources and their dependencies into `dist/<id>/`,
 * where bin/belfry.js finds them. A bundle starts in a fraction of the time and memory that the sources take.
 * It is JavaScript so that any Node can run it. Without the bundler (`npm ci --omit=dev`) Belfry runs the
 * sources.
 */
import {cpSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {buildId, ROOT} from '../bin/build-id.js'

const BUILDS = join(ROOT, 'dist')
/**
 * A server that was not restarted since runs an earlier one, and loads parts of it on demand: its next
 * process helper, for example. Each takes 8 MiB.
 */
const BUILDS_KEPT = 10

/** `pg-native` is never installed; the API reference is served from the folder of its package. */
const NOT_BUNDLED = ['pg-native', '@scalar/fastify-api-reference']

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
 * @param {typeof import('esbuild')} esbuild
 * @param {string} folder
 */
async function bundle(esbuild, folder) {
  await esbuild.build({
    absWorkingDir: ROOT,
    entryPoints: ENTRIES,
    outdir: join(folder, 'program'),
    bundle: true,
    // What is imported on demand stays in files of its own.
    splitting: true,
    external: NOT_BUNDLED,
    format: 'esm',
    platform: 'node',
    target: 'node26',
    banner: {js: REQUIRE},
    plugins: [NODE_MODULES],
    // Not minified: stack traces name functions. `NODE_OPTIONS=--enable-source-maps` shows the sources.
    sourcemap: 'linked',
    sourcesContent: false,
    logLevel: 'warning',
  })
  cpSync(join(ROOT, 'src', 'http', 'ui'), join(folder, 'ui'), {recursive: true})
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
    console.log(`Not built: ${String(error)}. Belfry runs its sources, which start more slowly.`)
    return null
  }
}

async function main() {
  const esbuild = await bundler()
  if (esbuild === null) return
  const folder = join(BUILDS, buildId())
  if (existsSync(folder)) return
  // Renamed when it is complete: a start meanwhile, or after a crash here, runs the sources.
  const draft = `${folder}.${process.pid}`
  mkdirSync(draft, {recursive: true})
  await bundle(esbuild, draft)
  renameSync(draft, folder)
  for (const old of buildsByAge().slice(0, -BUILDS_KEPT))
    rmSync(old, {recursive: true, force: true})
}

await main()
