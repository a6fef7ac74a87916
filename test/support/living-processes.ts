/**
 * Processes as the operating system reports them: the job that started them, parent, memory. Read from /proc,
 * hence Linux only; elsewhere the lists are empty. `server-process.ts` uses it to clean up after a server.
 */
import {readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'

export interface MarkedProcess {
  readonly pid: number
  /** `BELFRY_EXECUTION` of its environment. */
  readonly execution: string
  readonly job: string
}

/** Processes started by jobs of the node on a data directory, in any session or group. Linux only. */
export function markedProcesses(data: string): readonly MarkedProcess[] {
  const nodeId = readNodeId(data)
  if (nodeId === null || process.platform !== 'linux') return []
  return readdirSync('/proc').flatMap((entry) => {
    const pid = Number(entry)
    if (!Number.isInteger(pid)) return []
    const environment = readProc(pid, 'environ').split('\0')
    if (!environment.includes(`BELFRY_NODE_ID=${nodeId}`)) return []
    // A zombie has exited and waits for its parent.
    if (/\) [ZX] /.test(readProc(pid, 'stat'))) return []
    const variable = (name: string) =>
      environment.find((text) => text.startsWith(`${name}=`))?.slice(name.length + 1) ?? ''
    return [{pid, execution: variable('BELFRY_EXECUTION'), job: variable('BELFRY_JOB')}]
  })
}

function readProc(pid: number, file: string): string {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8')
  } catch {
    return '' // it ended while we looked
  }
}

function readNodeId(data: string): string | null {
  try {
    return readFileSync(join(data, 'node-id'), 'utf8').trim()
  } catch {
    return null // it never came so far
  }
}

/** Kills them. */
export function endMarked(data: string): void {
  for (const {pid} of markedProcesses(data)) endProcess(pid)
}

/** Sends SIGKILL; a process that has exited already is no error. */
export function endProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** Peak resident memory of a process, bytes; Linux only. */
export function peakResidentBytes(pid: number): number {
  const match = /VmHWM:\s+(\d+) kB/.exec(readProc(pid, 'status'))
  return Number(match?.[1] ?? 0) * 1024
}

/** Pids of the direct children of a process; Linux only. */
export function childrenOf(parent: number): readonly number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && parentOf(pid) === parent)
}

function parentOf(pid: number): number {
  // The name, in brackets, may contain any character.
  return Number(/^.*\) \S (\d+) /s.exec(readProc(pid, 'stat'))?.[1])
}

export function isAlive(pid: number): boolean {
  const stat = readProc(pid, 'stat')
  return stat !== '' && !/\) [ZX] /.test(stat)
}
