// Starts the `belfry` command again with the Node that npm installed. Loaded only by a Node that cannot run
// Belfry.
import {execFileSync, spawn} from 'node:child_process'
import {existsSync} from 'node:fs'
import {constants} from 'node:os'
import {join} from 'node:path'

const EXIT_CANNOT_RUN = 1
const SIGNALS = /** @type {const} */ (['SIGTERM', 'SIGINT', 'SIGHUP'])

/**
 * @param {string} root
 * @param {readonly string[]} argv the script and its arguments
 * @param {number} majorMin
 */
export function startAgain(root, argv, majorMin) {
  const node = installedNode(root, majorMin)
  if (node !== null) return runWith(node, argv)
  process.stderr.write(
    `belfry: Belfry requires Node ${majorMin} or newer, but this is Node ${process.version}. ` +
      'Run "npm ci" in its directory, which installs one, or install one yourself.\n',
  )
  process.exitCode = EXIT_CANNOT_RUN
}

/**
 * The Node that `npm ci` installed, here or in the package that depends on Belfry; `null` when there is none.
 *
 * @param {string} root
 * @param {number} majorMin
 */
function installedNode(root, majorMin) {
  const places = [join(root, 'node_modules', '.bin', 'node'), join(root, '..', '.bin', 'node')]
  for (const place of places) {
    if (!existsSync(place)) continue
    try {
      const version = execFileSync(place, ['--version'], {encoding: 'utf8'})
      if (Number(/^v(\d+)\./.exec(version)?.[1] ?? 0) >= majorMin) return place
    } catch (error) {
      process.stderr.write(`belfry: ${place} cannot run: ${String(error)}\n`)
    }
  }
  return null
}

/**
 * Replaces this process where Node can do that; otherwise this process stays as the parent.
 *
 * @param {string} node
 * @param {readonly string[]} argv
 */
function runWith(node, argv) {
  if (process.execve !== undefined) process.execve(node, [node, ...argv], process.env)
  const child = spawn(node, argv, {
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
