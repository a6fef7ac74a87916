// Starts the `belfry` command again with the Node that npm installed. Loaded only by a Node that cannot run
// Belfry.
import {execFileSync, spawn} from 'node:child_process'
import {existsSync, readdirSync} from 'node:fs'
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
      'npm installs one, unless it runs with --omit=optional. Install Belfry again without that, or ' +
      `install Node ${majorMin} yourself.\n`,
  )
  process.exitCode = EXIT_CANNOT_RUN
}

/**
 * The Node that npm installed, here or beside this package; `null` when there is none. Not by its link in
 * `.bin`: npm 10 makes none for what is installed globally.
 *
 * @param {string} root
 * @param {number} majorMin
 */
function installedNode(root, majorMin) {
  for (const place of [join(root, 'node_modules'), join(root, '..')].flatMap(nodesIn)) {
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
 * @param {string} folder packages, one of them Node for this system
 * @returns {readonly string[]}
 */
function nodesIn(folder) {
  if (!existsSync(folder)) return []
  return readdirSync(folder)
    .filter((name) => name.startsWith('node-'))
    .map((name) => join(folder, name, 'bin', 'node'))
    .filter((path) => existsSync(path))
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
