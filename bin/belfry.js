#!/bin/sh
':' //; self=$(readlink -f "$0"); root=${self%/bin/*}; why=
':' //; for node in "$root"/node_modules/node-*/bin/node "$root"/../node-*/bin/node; do
':' //; [ -e "$node" ] || continue
':' //; error=$("$node" --version 2>&1 >/dev/null) && exec "$node" "$self" "$@"; why="$why$error. "; done
':' //; command -v node >/dev/null && exec node "$self" "$@"
':' //; echo "belfry: Node cannot start: ${why:-there is none. }Install Node 26 and its libraries:" >&2
':' //; echo "libatomic1, libstdc++6 (Debian, Ubuntu) or libatomic, libstdc++ (Red Hat, Fedora)." >&2; exit 1

// The `belfry` command, in JavaScript for Node 20 and newer. The lines above are for the shell: they start
// the Node that npm installed, without a process in between. `node bin/belfry.js` begins here. It runs the
// build of these sources, or else the sources.
import {join} from 'node:path'
import {fileURLToPath, pathToFileURL} from 'node:url'
import {builtFolder, ROOT} from './build-id.js'

const NODE_MAJOR_MIN = 26

/** The program; it starts when it is imported. */
function entry() {
  const built = builtFolder()
  return built === null ? join(ROOT, 'src', 'main.ts') : join(built, 'program', 'main.js')
}

/** @param {Error & {readonly code?: string}} error */
function explain(error) {
  if (error.code !== 'ERR_MODULE_NOT_FOUND' || builtFolder() !== null) throw error
  process.stderr.write(
    'belfry: The packages of this checkout are not installed. Run "npm ci" in it, without --omit=dev.\n',
  )
  process.exitCode = 1
}

if (Number.parseInt(process.version.slice(1), 10) >= NODE_MAJOR_MIN) {
  // The parent is a Node that could not run Belfry: when it dies, this process ends too.
  if (process.channel !== undefined) {
    process.once('disconnect', () => process.kill(process.pid, 'SIGTERM'))
    // The listener must not keep the process alive.
    process.channel.unref()
  }
  await import(pathToFileURL(entry()).href).catch(explain)
} else {
  const {startAgain} = await import('./old-node.js')
  startAgain(ROOT, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], NODE_MAJOR_MIN)
}
