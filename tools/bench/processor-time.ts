/**
 * Processor time of a process, its threads and its descendants, from /proc. On a busy machine this is more
 * reliable than wall time: it counts only what the measured processes used.
 */
import {readdirSync, readFileSync} from 'node:fs'

/** The unit of /proc/<pid>/stat on every Linux that Node runs on. */
const TICK_MS = 10
/**
 * Index of the first field after the program's name, which may contain any character and is cut off first.
 */
const AFTER_NAME = 3
const FIELDS = {utime: 14, stime: 15, cutime: 16, cstime: 17} as const

/** Processor time in ms, including children that were waited for; `null` without /proc. */
export function processorTimeMs(pid: number): number | null {
  try {
    return familyOf(pid).reduce((sum, each) => sum + ownMs(each), 0)
  } catch (error) {
    if (isGone(error)) return null
    throw error
  }
}

/** The process and its living descendants. */
function familyOf(pid: number): number[] {
  return [pid, ...childrenOf(pid).flatMap(familyOfAlive)]
}

/** Living children of all threads of a process. */
export function childrenOf(pid: number): number[] {
  const threads = readdirSync(`/proc/${pid}/task`)
  return threads.flatMap((thread) => numbers(read(`/proc/${pid}/task/${thread}/children`)))
}

/**
 * A short-lived command may exit during the reading; its parent then accounts for it, or the next reading
 * does.
 */
function familyOfAlive(pid: number): number[] {
  try {
    return familyOf(pid)
  } catch (error) {
    if (isGone(error)) return []
    throw error
  }
}

function ownMs(pid: number): number {
  const stat = read(`/proc/${pid}/stat`)
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  const ticks = Object.values(FIELDS).map((field) => Number(fields[field - AFTER_NAME] ?? 0))
  return ticks.reduce((sum, each) => sum + each, 0) * TICK_MS
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if (isGone(error)) return ''
    throw error
  }
}

function numbers(text: string): number[] {
  return text.split(' ').filter(Boolean).map(Number)
}

function isGone(error: unknown): boolean {
  const code = error instanceof Error && 'code' in error ? error.code : ''
  return code === 'ENOENT' || code === 'ESRCH'
}
