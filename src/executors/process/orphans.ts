/**
 * Ends processes that a previous incarnation of this node left running. The journals of its helpers name them
 * by pid and start time, so a reused pid is never signalled. On Linux, marks in the environment also identify
 * processes that left their group, and those started just before a crash. Only executions that had not ended
 * are affected: a daemon that a finished job started survives. Runs before a node starts any command, and
 * after a helper died.
 */
import {existsSync, readdirSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {pause} from '../../lib/pause.ts'
import type {Clock} from '../../ports/runtime.ts'
import {bootId} from '../../platform/boot-id.ts'
import {JOURNAL_PREFIX, type JournalEntry, type JournalHead, readJournal} from './journal.ts'
import {listMarked, listProcesses, type ProcessRow, send} from './process-table.ts'

/** Id prefix of programs that belong to no job. They are ended as well, but are not executions. */
export const PROGRAM_PREFIX = 'program:'

/** Time from TERM to KILL. Shorter than for a job: a restarting node should not delay retries. */
const GRACE_MS = 3_000

/** Maximum wait for processes to disappear after KILL. */
const KILL_WAIT_MS = 5_000

const POLL_MS = 50

/** ps(1) reports start times to the second, so a process may differ from its journal by this. */
const START_TOLERANCE_MS = 2_000

export interface OrphanOptions {
  /** `<data>/executions`. */
  readonly directory: string
  readonly nodeId: string
  readonly clock: Clock
  readonly graceMs?: number
}

/** Sends TERM to whole groups, then KILL after the grace. Returns the executions that had live processes. */
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
    // The pids in a journal of an earlier boot are meaningless now.
    if (journal === null || journal.head.boot !== bootId()) continue
    await endHelper(journal.head)
    left.push(...journal.left)
  }
  const ended = new Set<string>()
  const graceMs = options.graceMs ?? GRACE_MS
  const ownGroups = new Set<number>()
  const startedAt = clock.monotonicMs()
  let emptyPolls = 0
  const signalled = new Set<number>()
  for (;;) {
    const alive = await findAlive(left, nodeId, ownGroups)
    const elapsed = clock.monotonicMs() - startedAt
    // Two polls: during an exec, a process shows no environment for an instant.
    emptyPolls = alive.length === 0 ? emptyPolls + 1 : 0
    if (left.length === 0 || emptyPolls === 2 || elapsed > graceMs + KILL_WAIT_MS) break
    for (const {executionId, pid} of alive) {
      ended.add(executionId)
      if (elapsed >= graceMs) send(pid, 'SIGKILL')
      else if (!signalled.has(pid)) send(pid, 'SIGTERM')
      signalled.add(pid)
    }
    await pause(clock, POLL_MS)
  }
  // A crash before this line causes another search at the next start, nothing else.
  for (const path of journals) rmSync(path, {force: true})
  for (const name of names) {
    if (name.startsWith('pipes-')) rmSync(join(directory, name), {recursive: true, force: true})
  }
  return {ended: [...ended].filter((id) => !id.startsWith(PROGRAM_PREFIX))}
}

/** Kills the old helper if it is still alive, so it cannot write or start anything more. */
async function endHelper(head: JournalHead): Promise<void> {
  const rows = await listProcesses()
  const helper = rows.find((row) => row.pid === head.helper && isSame(row, head.started))
  if (helper !== undefined && helper.pid !== process.pid) send(helper.pid, 'SIGKILL')
}

function isSame(row: ProcessRow, started: number): boolean {
  if (process.platform === 'linux') return row.started === started
  return Math.abs(row.started - started) <= START_TOLERANCE_MS
}

/** All processes of the executions in `left`, without duplicates. */
async function findAlive(
  left: readonly JournalEntry[],
  nodeId: string,
  ownGroups: Set<number>,
): Promise<{executionId: string; pid: number}[]> {
  if (left.length === 0) return []
  const rows = await listProcesses()
  const marked = listMarked(nodeId)
  const found = new Map<number, string>()
  for (const entry of left) {
    const markedPids = new Set(marked.get(entry.executionId) ?? [])
    for (const pid of markedPids) found.set(pid, entry.executionId)
    if (entry.pid === 0) continue
    const members = rows.filter((row) => row.group === entry.pid || row.session === entry.pid)
    // A group id is not reused while the group has members. So the group belongs to the execution if its
    // leader is the recorded process, or if any member carries the mark.
    const isOwn = members.some(
      (row) => markedPids.has(row.pid) || (row.pid === entry.pid && isSame(row, entry.started)),
    )
    // Remembered until the group is empty, because the leader may end first.
    if (isOwn) ownGroups.add(entry.pid)
    if (members.length === 0) ownGroups.delete(entry.pid)
    if (ownGroups.has(entry.pid)) for (const row of members) found.set(row.pid, entry.executionId)
  }
  return [...found].map(([pid, executionId]) => ({executionId, pid}))
}
