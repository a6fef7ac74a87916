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
  const {node, isBroken} = installedNode(root, majorMin)
  if (node !== null) return runWith(node, argv)
  const fix = isBroken
    ? 'Install the libraries that the Node of Belfry needs: libatomic1, libstdc++6 (Debian, Ubuntu) or ' +
      `libatomic, libstdc++ (Red Hat, Fedora). Or install Node ${majorMin} yourself.`
    : 'npm installs one, unless its configuration omits optional packages. Install Belfry again without ' +
      `that, or install Node ${majorMin} yourself.`
  process.stderr.write(
    `belfry: Belfry requires Node ${majorMin} or newer, but this is Node ${process.version}. ${fix}\n`,
  )
  process.exitCode = EXIT_CANNOT_RUN
}

/**
 * The Node that npm installed, here or beside this package; `null` when there is none that runs. Not by its
 * link in `.bin`: npm 10 makes none for what is installed globally. `isBroken`: one does not run.
 *
 * @param {string} root
 * @param {number} majorMin
 * @returns {{node: string | null, isBroken: boolean}}
 */
function installedNode(root, majorMin) {
  let isBroken = false
  for (const place of [join(root, 'node_modules'), join(root, '..')].flatMap(nodesIn)) {
    try {
      const version = execFileSync(place, ['--version'], {encoding: 'utf8', stdio: 'pipe'})
      if (Number(/^v(\d+)\./.exec(version)?.[1] ?? 0) >= majorMin) return {node: place, isBroken}
    } catch (error) {
      isBroken = true
      process.stderr.write(`belfry: ${place} cannot run: ${causeOf(error)}\n`)
    }
  }
  return {node: null, isBroken}
}

/**
 * Output of the program, such as the name of a library that is missing.
 *
 * @param {unknown} error
 */
function causeOf(error) {
  const {message, stderr = ''} = /** @type {Error & {stderr?: string}} */ (error)
  return stderr.trim() || message
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
