/**
 * A command and all that came of it: its process group, and on Linux also what left the group (a session of
 * its own) but still bears the execution's marks. Sends signals; decides nothing. Runs in the helper only.
 */
import {
  listLinuxProcesses,
  listMarked,
  type ProcessRow,
  readLinuxProcess,
  send,
} from '../process-table.ts'

/** A look through every process's environment serves all commands that ask within this time. */
const CENSUS_MS = 40

let census: {nodeId: string; at: number; marked: Map<string, number[]>} | null = null

function markedPids(nodeId: string, executionId: string): readonly number[] {
  const now = performance.now()
  if (census === null || census.nodeId !== nodeId || now - census.at > CENSUS_MS) {
    census = {nodeId, at: now, marked: listMarked(nodeId)}
  }
  return census.marked.get(executionId) ?? []
}

export class ProcessTree {
  /** The command's pid, which is also the number of its group and session. */
  readonly #pid: number
  readonly #executionId: string
  readonly #nodeId: string

  constructor(pid: number, executionId: string, nodeId: string) {
    this.#pid = pid
    this.#executionId = executionId
    this.#nodeId = nodeId
  }

  /** To every process once, in the group or escaped from it. */
  signal(signal: NodeJS.Signals): void {
    const strays = this.#strays()
    send(-this.#pid, signal)
    for (const pid of strays) send(pid, signal)
  }

  killGroup(): void {
    send(-this.#pid, 'SIGKILL')
  }

  groupIsAlive(): boolean {
    return send(-this.#pid, 0)
  }

  /**
   * Zombies do not count: they wait for their parent, which may take its time (a container's init often
   * does).
   */
  isAlive(): boolean {
    return (this.groupIsAlive() && this.#groupHasLiving()) || this.#strays().length > 0
  }

  #groupHasLiving(): boolean {
    return (
      process.platform !== 'linux' || listLinuxProcesses().some((row) => row.group === this.#pid)
    )
  }

  /** Resident memory of all of the session, in bytes. */
  residentBytes(rows: readonly ProcessRow[]): number {
    let bytes = 0
    for (const row of rows) {
      if (row.group === this.#pid || row.session === this.#pid) bytes += row.residentBytes
    }
    return bytes
  }

  #strays(): number[] {
    return markedPids(this.#nodeId, this.#executionId).filter((pid) => {
      const row = readLinuxProcess(pid)
      return row !== null && row.group !== this.#pid
    })
  }
}
