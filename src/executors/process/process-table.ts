/**
 * Which processes there are: their groups, sessions, memory, and which of them bear this node's marks. On
 * Linux read from /proc without starting anything; elsewhere from ps(1). Never sends a signal.
 */
import {execFile} from 'node:child_process'
import {readdirSync, readFileSync} from 'node:fs'

/**
 * `/proc` counts resident memory in pages. Belfry's Linux targets (x64, arm64) use 4 KiB pages by default.
 */
const PAGE_BYTES = 4096

const ON_LINUX = process.platform === 'linux'

/** The two marks every command is started with; together they say whose it is. */
export const EXECUTION_VARIABLE = 'BELFRY_EXECUTION'
export const NODE_ID_VARIABLE = 'BELFRY_NODE_ID'

export interface ProcessRow {
  readonly pid: number
  readonly group: number
  readonly session: number
  /**
   * When it started: on Linux ticks since boot, exact; elsewhere ms since the epoch, to the second.
   * Together with the pid the identity of a process, because pids are re-used.
   */
  readonly started: number
  readonly residentBytes: number
}

/** Every process that is not a zombie. */
export async function listProcesses(): Promise<ProcessRow[]> {
  return ON_LINUX ? listLinuxProcesses() : parsePs(await runPs())
}

/** One process; `null` when there is none, or only its zombie. Linux only: elsewhere always `null`. */
export function readLinuxProcess(pid: number): ProcessRow | null {
  if (!ON_LINUX) return null
  let text: string
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch {
    return null // it ended meanwhile, which is an answer
  }
  // The name, in brackets, may itself hold brackets and spaces: the fields begin after the last one.
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

/** The same at once, on Linux. */
export function listLinuxProcesses(): ProcessRow[] {
  const rows: ProcessRow[] = []
  for (const pid of linuxPids()) {
    const row = readLinuxProcess(pid)
    if (row !== null) rows.push(row)
  }
  return rows
}

/**
 * Pids that bear the marks of this node, by execution id; wherever they went (a session of their own,
 * another parent), as long as they kept their environment. Empty where environments cannot be read.
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
    return null // gone, or another user's: not one of ours
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
      else reject(new Error('ps did not list the processes', {cause: error}))
    })
  })
}

/** Rows of `ps -axo pid=,pgid=,sess=,rss=,stat=,lstart=`; the memory comes in KiB. */
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

/* The one place that sends signals: to a process, or to a group by its negative number. */

/** True when there was someone to send it to. */
export function send(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal)
  } catch (error) {
    const {code} = error as NodeJS.ErrnoException
    // EPERM: there, but no longer ours to end (it changed its user).
    if (code === 'ESRCH' || code === 'EPERM') return false
    throw error
  }
}
