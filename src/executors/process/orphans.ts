/**
 * Ends what an earlier life of this node left running: by the journals of its helpers (pid and start time,
 * so that a re-used pid is never hit), and on Linux also by the marks in the environment, which reach what
 * left its group and what was started in the instant before a crash. Only executions that had not ended: a
 * daemon that a finished job started lives on. Runs before a node starts anything, and when a helper died.
 */
import {existsSync, readdirSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import type {Clock} from '../../ports/runtime.ts'
import {JOURNAL_PREFIX, type JournalEntry, type JournalHead, readJournal} from './journal.ts'
import {bootId} from '../../platform/boot-id.ts'
import {listMarked, listProcesses, type ProcessRow, send} from './process-table.ts'

/** Begins the ids of programs that belong to no job. Ended like the others, but nobody's execution. */
export const PROGRAM_PREFIX = 'program:'

/**
 * Between TERM and KILL. Shorter than a job's own grace: a node that returns should not keep its retries
 * waiting.
 */
const GRACE_MS = 3_000

/** How long after KILL the dead are waited for. */
const KILL_WAIT_MS = 5_000

const LOOK_MS = 50

/** Where ps(1) gives start times to the second, a process may differ from its journal by this. */
const START_TOLERANCE_MS = 2_000

export interface OrphanOptions {
  /** `<data>/executions`. */
  readonly directory: string
  readonly nodeId: string
  readonly clock: Clock
  readonly graceMs?: number
}

/**
 * Ends them: TERM, KILL after a grace, the whole groups. Answers the execution ids of which something was
 * alive.
 */
export async function endOrphans(options: OrphanOptions): Promise<{ended: string[]}> {
  const {directory, nodeId, clock} = options
  if (!existsSync(directory)) return {ended: []}
  const names = readdirSync(directory)
  const journals = names
    .filter((name) => name.startsWith(JOURNAL_PREFIX))
    .map((name) => join(directory, name))
  const left: JournalEntry[] = []
  for (const path of journals) {
    const journal = readJournal(path)
    // A journal of an earlier boot speaks of pids that mean nothing now.
    if (journal === null || journal.head.boot !== bootId()) continue
    await endHelper(journal.head)
    left.push(...journal.left)
  }
  const ended = new Set<string>()
  const graceMs = options.graceMs ?? GRACE_MS
  const ours = new Set<number>()
  const began = clock.monotonicMs()
  let emptyLooks = 0
  const signalled = new Set<number>()
  for (;;) {
    const alive = await findAlive(left, nodeId, ours)
    const elapsed = clock.monotonicMs() - began
    // Twice: a process in the middle of an exec shows no environment for an instant, and would be overlooked.
    emptyLooks = alive.length === 0 ? emptyLooks + 1 : 0
    if (left.length === 0 || emptyLooks === 2 || elapsed > graceMs + KILL_WAIT_MS) break
    for (const {executionId, pid} of alive) {
      ended.add(executionId)
      if (elapsed >= graceMs) send(pid, 'SIGKILL')
      else if (!signalled.has(pid)) send(pid, 'SIGTERM')
      signalled.add(pid)
    }
    await pause(clock, LOOK_MS)
  }
  // A crash before this line only repeats the search.
  for (const path of journals) rmSync(path, {force: true})
  for (const name of names) {
    if (name.startsWith('pipes-')) rmSync(join(directory, name), {recursive: true, force: true})
  }
  return {ended: [...ended].filter((id) => !id.startsWith(PROGRAM_PREFIX))}
}

/**
 * The old helper may itself still be about, ending things by its own rules: it must not write or start
 * anything more.
 */
async function endHelper(head: JournalHead): Promise<void> {
  const rows = await listProcesses()
  const helper = rows.find((row) => row.pid === head.helper && isSame(row, head.started))
  if (helper !== undefined && helper.pid !== process.pid) send(helper.pid, 'SIGKILL')
}

function isSame(row: ProcessRow, started: number): boolean {
  if (process.platform === 'linux') return row.started === started
  return Math.abs(row.started - started) <= START_TOLERANCE_MS
}

/** Every process of the executions left, once. */
async function findAlive(
  left: readonly JournalEntry[],
  nodeId: string,
  ours: Set<number>,
): Promise<{executionId: string; pid: number}[]> {
  if (left.length === 0) return []
  const rows = await listProcesses()
  const marked = listMarked(nodeId)
  const found = new Map<number, string>()
  for (const entry of left) {
    const own = new Set(marked.get(entry.executionId) ?? [])
    for (const pid of own) found.set(pid, entry.executionId)
    if (entry.pid === 0) continue
    const members = rows.filter((row) => row.group === entry.pid || row.session === entry.pid)
    // The number of a group is not given away while it has members. So the group is ours when its leader is
    // the process that was recorded, or any member bears our mark.
    const isOurs = members.some(
      (row) => own.has(row.pid) || (row.pid === entry.pid && isSame(row, entry.started)),
    )
    // Once known it stays ours until it is empty: the leader may be the first to go.
    if (isOurs) ours.add(entry.pid)
    if (members.length === 0) ours.delete(entry.pid)
    if (ours.has(entry.pid)) for (const row of members) found.set(row.pid, entry.executionId)
  }
  return [...found].map(([pid, executionId]) => ({executionId, pid}))
}

function pause(clock: Clock, delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    clock.after(delayMs, resolve)
  })
}
