/** Ends the servers of this process if it is killed, or exits without doing so: their tests cannot then. */
import {spawn, type ChildProcess} from 'node:child_process'
import type {Socket} from 'node:net'

/**
 * Shell script that reads `+ pid` for a process to end, and `- pid` for one that has exited. When standard
 * input closes, their owner is gone: it ends them as a terminal would, and kills what is left after 5 s.
 */
const SCRIPT = `pids=' '
while read -r sign pid; do
  case $sign in
    +) pids="$pids$pid " ;;
    -) pids="\${pids%% "$pid" *} \${pids#* "$pid" }" ;;
  esac
done
[ "$pids" = ' ' ] && exit
kill -TERM $pids 2>/dev/null
kill -CONT $pids 2>/dev/null
sleep 5
kill -KILL $pids 2>/dev/null`

export class Watchdog {
  #input: Socket | null = null

  /** Ends the process when this one is gone. Not on Windows, which has no shell for it. */
  watch(child: ChildProcess): void {
    const {pid} = child
    if (pid === undefined || process.platform === 'win32') return
    const input = (this.#input ??= started())
    input.write(`+ ${pid}\n`)
    child.once('exit', () => input.write(`- ${pid}\n`))
  }
}

function started(): Socket {
  const keeper = spawn('sh', ['-c', SCRIPT, 'watchdog'], {
    stdio: ['pipe', 'ignore', 'ignore'],
    // A Ctrl-C does not reach a group of its own.
    detached: true,
  })
  const input = keeper.stdin as Socket
  // If it fails, the processes end with their tests only.
  input.on('error', () => undefined)
  keeper.on('error', () => undefined)
  keeper.unref()
  input.unref()
  return input
}
