/**
 * Processor time of a process, its threads and everything it started, from /proc. On a machine that
 * others use at the same time this says more than the clock on the wall: it counts only what the
 * measured processes used themselves.
 */
import {readdirSync, readFileSync} from 'node:fs'

/** The unit of /proc/<pid>/stat on every Linux that Node runs on. */
const TICK_MS = 10
/** Where the fields after the program's name begin; the name may hold anything, so it is cut off first. */
const AFTER_NAME = 3
const FIELDS = {utime: 14, stime: 15, cutime: 16, cstime: 17} as const

/** In ms, ended and awaited children included; `null` where there is no /proc. */
export function processorTimeMs(pid: number): number | null {
  try {
    return familyOf(pid).reduce((sum, each) => sum + ownMs(each), 0)
  } catch (error) {
    if (isGone(error)) return null
    throw error
  }
}

/** The process and those of its descendants that are alive. */
function familyOf(pid: number): number[] {
  const threads = readdirSync(`/proc/${pid}/task`)
  const children = threads.flatMap((thread) =>
    numbers(read(`/proc/${pid}/task/${thread}/children`)),
  )
  return [pid, ...children.flatMap(familyOfAlive)]
}

/**
 * A short-lived command may end while it is looked at; what it used is with its parent then, or in the
 * next look.
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
