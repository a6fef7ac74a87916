#!/usr/bin/env node
// The `belfry` command. Plain JavaScript that any Node from 20 on can read: it only finds a Node that can run
// the program (Belfry is TypeScript run from source) and hands over, or says in one sentence what is missing.
import {execFileSync, spawn} from 'node:child_process'
import {existsSync} from 'node:fs'
import {constants} from 'node:os'
import {dirname, join} from 'node:path'
import {fileURLToPath} from 'node:url'

const NODE_MAJOR_MIN = 26
const EXIT_CANNOT_RUN = 1
const SIGNALS = /** @type {const} */ (['SIGTERM', 'SIGINT', 'SIGHUP'])

const root = join(dirname(fileURLToPath(import.meta.url)), '..')

/** @param {string} version such as `v26.1.0` */
function fits(version) {
  return Number(/^v?(\d+)\./.exec(version)?.[1] ?? 0) >= NODE_MAJOR_MIN
}

/**
 * The Node that `npm ci` brought, here or beside a package this one is installed in; `null` when there is
 * none.
 */
function pinnedNode() {
  const places = [join(root, 'node_modules', '.bin', 'node'), join(root, '..', '.bin', 'node')]
  for (const place of places) {
    if (!existsSync(place)) continue
    try {
      if (fits(execFileSync(place, ['--version'], {encoding: 'utf8'}).trim())) return place
    } catch (error) {
      process.stderr.write(`belfry: ${place} does not run: ${String(error)}\n`)
    }
  }
  return null
}

/** @param {string} node */
function handOver(node) {
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    // The fourth is a channel that closes when this process dies, however it dies.
    stdio: ['inherit', 'inherit', 'inherit', 'ipc'],
  })
  for (const signal of SIGNALS) process.on(signal, () => child.kill(signal))
  child.on('error', (error) => {
    process.stderr.write(`belfry: ${node} cannot be started: ${error.message}\n`)
    process.exitCode = EXIT_CANNOT_RUN
  })
  child.on('exit', (code, signal) => {
    process.exitCode = code ?? 128 + (signal === null ? 0 : constants.signals[signal])
    if (child.connected) child.disconnect()
  })
}

if (fits(process.version)) {
  if (process.channel !== undefined) {
    process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
    // Listening would keep the process; only the work of the command may.
    process.channel.unref()
  }
  await import(new URL('../src/main.ts', import.meta.url).href)
} else {
  const node = pinnedNode()
  if (node === null) {
    process.stderr.write(
      `belfry: this is Node ${process.version}, but Belfry needs Node ${NODE_MAJOR_MIN} or newer; ` +
        'run "npm ci" in its directory, which brings one, or install one.\n',
    )
    process.exitCode = EXIT_CANNOT_RUN
  } else handOver(node)
}
