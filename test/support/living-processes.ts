/**
 * What the operating system says about processes: whose jobs started them, who their parent is, how much
 * memory they took. Read from /proc, hence Linux only; elsewhere there is nothing to be seen. Beside
 * `server-process.ts`, which knows how to start and end a server and asks here what it left running.
 */
import {readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'

export interface MarkedProcess {
  readonly pid: number
  /** `BELFRY_EXECUTION` of its environment. */
  readonly execution: string
  readonly job: string
}

/**
 * Living processes that jobs of the node on that data directory have started, wherever they went. Linux
 * only.
 */
export function markedProcesses(data: string): readonly MarkedProcess[] {
  const nodeId = readNodeId(data)
  if (nodeId === null || process.platform !== 'linux') return []
  return readdirSync('/proc').flatMap((entry) => {
    const pid = Number(entry)
    if (!Number.isInteger(pid)) return []
    const environment = readProc(pid, 'environ').split('\0')
    if (!environment.includes(`BELFRY_NODE_ID=${nodeId}`)) return []
    // A zombie is dead: it waits for its parent.
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

/** Ends them. */
export function endMarked(data: string): void {
  for (const {pid} of markedProcesses(data)) endProcess(pid)
}

/** At once; one that has ended already is no error. */
export function endProcess(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error
  }
}

/** The most memory a process has had resident, in bytes; Linux only. */
export function peakResidentBytes(pid: number): number {
  const match = /VmHWM:\s+(\d+) kB/.exec(readProc(pid, 'status'))
  return Number(match?.[1] ?? 0) * 1024
}

/** Pids of the processes a process has started itself; Linux only. */
export function childrenOf(parent: number): readonly number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && parentOf(pid) === parent)
}

function parentOf(pid: number): number {
  // The name, in brackets, may hold anything.
  return Number(/^.*\) \S (\d+) /s.exec(readProc(pid, 'stat'))?.[1])
}

export function isAlive(pid: number): boolean {
  return readProc(pid, 'stat') !== '' && !/\) [ZX] /.test(readProc(pid, 'stat'))
}
