/**
 * Process table: groups, sessions, memory, and the processes that carry this node's marks. It is read from
 * /proc on Linux, without starting a process, and from ps(1) elsewhere. Also the only place that sends
 * signals.
 */
import {execFile} from 'node:child_process'
import {readdirSync, readFileSync} from 'node:fs'

/** `/proc` counts resident memory in pages. Linux on x64 and arm64 uses 4 KiB pages by default. */
const PAGE_BYTES = 4096

const ON_LINUX = process.platform === 'linux'

/** Marks in the environment of every command: its execution, and the node that started it. */
export const EXECUTION_VARIABLE = 'BELFRY_EXECUTION'
export const NODE_ID_VARIABLE = 'BELFRY_NODE_ID'

export interface ProcessRow {
  readonly pid: number
  readonly group: number
  readonly session: number
  /**
   * Start time: exact ticks since boot on Linux; elsewhere ms since the epoch, to the second. Pids are
   * reused, so pid and start time together identify a process.
   */
  readonly started: number
  readonly residentBytes: number
}

/** All processes except zombies. */
export async function listProcesses(): Promise<ProcessRow[]> {
  return ON_LINUX ? listLinuxProcesses() : parsePs(await runPs())
}

/** `null` when the process does not exist or is a zombie, and always on other systems than Linux. */
export function readLinuxProcess(pid: number): ProcessRow | null {
  if (!ON_LINUX) return null
  let text: string
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch {
    return null // it has ended
  }
  // The name, in brackets, may contain brackets and spaces: the fields start after the last bracket.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const state = fields[0]
  if (state === 'Z' || state === 'X') return null
  return {
    pid,
    group: Number(fields[2]),
    session: Number(fields[3]),
    started: Number(fields[19]),
    residentBytes: Number(fields[21]) * PAGE_BYTES,
  }
}

function linuxPids(): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && pid > 0)
}

/** Synchronous `listProcesses`. Linux only. */
export function listLinuxProcesses(): ProcessRow[] {
  const rows: ProcessRow[] = []
  for (const pid of linuxPids()) {
    const row = readLinuxProcess(pid)
    if (row !== null) rows.push(row)
  }
  return rows
}

/**
 * Pids that carry this node's marks, by execution id. Finds processes in other sessions or with other
 * parents, as long as they kept their environment. Empty on systems other than Linux.
 */
export function listMarked(nodeId: string): Map<string, number[]> {
  const found = new Map<string, number[]>()
  if (!ON_LINUX) return found
  for (const pid of linuxPids()) {
    const executionId = readMark(pid, nodeId)
    if (executionId === null || readLinuxProcess(pid) === null) continue
    const pids = found.get(executionId)
    if (pids === undefined) found.set(executionId, [pid])
    else pids.push(pid)
  }
  return found
}

function readMark(pid: number, nodeId: string): string | null {
  let environment: string
  try {
    environment = readFileSync(`/proc/${pid}/environ`, 'utf8')
  } catch {
    return null // it has ended, or belongs to another user
  }
  if (!environment.includes(EXECUTION_VARIABLE)) return null
  const entries = environment.split('\0')
  if (!entries.includes(`${NODE_ID_VARIABLE}=${nodeId}`)) return null
  const prefix = `${EXECUTION_VARIABLE}=`
  const mark = entries.find((entry) => entry.startsWith(prefix))
  return mark === undefined ? null : mark.slice(prefix.length)
}

function runPs(): Promise<string> {
  const columns = 'pid=,pgid=,sess=,rss=,stat=,lstart='
  return new Promise((resolve, reject) => {
    const options = {
      env: {PATH: process.env['PATH'] ?? '/usr/bin:/bin', LC_ALL: 'C'},
      maxBuffer: 16 * 1024 * 1024,
    }
    execFile('ps', ['-axo', columns], options, (error, stdout) => {
      if (error === null) resolve(stdout)
      else reject(new Error('ps cannot list the processes', {cause: error}))
    })
  })
}

/** Parses the output of `ps -axo pid=,pgid=,sess=,rss=,stat=,lstart=`, which has memory in KiB. */
export function parsePs(text: string): ProcessRow[] {
  const rows: ProcessRow[] = []
  for (const line of text.split('\n')) {
    const match = /^\s*(\d+)\s+(\d+)\s+(\S+)\s+(\d+)\s+(\S+)\s+(.+)$/.exec(line)
    if (match === null || match[5]!.startsWith('Z')) continue
    rows.push({
      pid: Number(match[1]),
      group: Number(match[2]),
      session: /^\d+$/.test(match[3]!) ? Number(match[3]) : 0,
      residentBytes: Number(match[4]) * 1024,
      started: Date.parse(match[6]!),
    })
  }
  return rows
}

/** Sends a signal to a process, or to a group by its negative id. Returns whether a receiver existed. */
export function send(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal)
  } catch (error) {
    const {code} = error as NodeJS.ErrnoException
    // EPERM: it exists, but changed its user and can no longer be signalled.
    if (code === 'ESRCH' || code === 'EPERM') return false
    throw error
  }
}
