#!/usr/bin/env node
// The `belfry` command, in JavaScript for Node 20 and newer. It finds a Node that can run the program (Belfry
// is TypeScript, run from source) and starts it, or prints what is missing.
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
function isSupported(version) {
  return Number(/^v?(\d+)\./.exec(version)?.[1] ?? 0) >= NODE_MAJOR_MIN
}

/**
 * The Node that `npm ci` installed, here or in the package that depends on Belfry; `null` when there is none.
 */
function installedNode() {
  const places = [join(root, 'node_modules', '.bin', 'node'), join(root, '..', '.bin', 'node')]
  for (const place of places) {
    if (!existsSync(place)) continue
    try {
      if (isSupported(execFileSync(place, ['--version'], {encoding: 'utf8'}).trim())) return place
    } catch (error) {
      process.stderr.write(`belfry: ${place} cannot run: ${String(error)}\n`)
    }
  }
  return null
}

/** @param {string} node */
function runWith(node) {
  const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    // The IPC channel closes when this process dies for any reason.
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

if (isSupported(process.version)) {
  if (process.channel !== undefined) {
    process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
    // The listener must not keep the process alive.
    process.channel.unref()
  }
  await import(new URL('../src/main.ts', import.meta.url).href)
} else {
  const node = installedNode()
  if (node === null) {
    process.stderr.write(
      `belfry: Belfry requires Node ${NODE_MAJOR_MIN} or newer, but this is Node ${process.version}. ` +
        'Run "npm ci" in its directory, which installs one, or install one yourself.\n',
    )
    process.exitCode = EXIT_CANNOT_RUN
  } else runWith(node)
}
