/**
 * Process tree of a command: its process group. On Linux it includes processes that left the group (for a
 * session of their own) but still carry the execution's marks. Runs in the helper only.
 */
import {
  listLinuxProcesses,
  listMarked,
  type ProcessRow,
  readLinuxProcess,
  send,
} from '../process-table.ts'

/** Age at which a scan of all environments is repeated. */
const SCAN_FRESH_MS = 40

let scan: {nodeId: string; at: number; marked: Map<string, number[]>} | null = null

function markedPids(nodeId: string, executionId: string): readonly number[] {
  const now = performance.now()
  if (scan === null || scan.nodeId !== nodeId || now - scan.at > SCAN_FRESH_MS) {
    scan = {nodeId, at: now, marked: listMarked(nodeId)}
  }
  return scan.marked.get(executionId) ?? []
}

export class ProcessTree {
  /** The command's pid, which is also the id of its group and session. */
  readonly #pid: number
  readonly #executionId: string
  readonly #nodeId: string
  readonly #groupIsAlive: (group: number) => boolean

  constructor(
    pid: number,
    executionId: string,
    {nodeId, groupIsAlive}: {nodeId: string; groupIsAlive: (group: number) => boolean},
  ) {
    this.#pid = pid
    this.#executionId = executionId
    this.#nodeId = nodeId
    this.#groupIsAlive = groupIsAlive
  }

  /** Signals each process once, within the group and outside. */
  signal(signal: NodeJS.Signals): void {
    const escaped = this.#escaped()
    send(-this.#pid, signal)
    for (const pid of escaped) send(pid, signal)
  }

  killGroup(): void {
    send(-this.#pid, 'SIGKILL')
  }

  groupIsAlive(): boolean {
    return this.#groupIsAlive(this.#pid)
  }

  /** Zombies do not count: their parent may reap them late, as the init of a container often does. */
  isAlive(): boolean {
    return (this.groupIsAlive() && this.#groupHasLiving()) || this.#escaped().length > 0
  }

  #groupHasLiving(): boolean {
    return (
      process.platform !== 'linux' || listLinuxProcesses().some((row) => row.group === this.#pid)
    )
  }

  /** Resident memory of the group and the session, in bytes. */
  residentBytes(rows: readonly ProcessRow[]): number {
    let bytes = 0
    for (const row of rows) {
      if (row.group === this.#pid || row.session === this.#pid) bytes += row.residentBytes
    }
    return bytes
  }

  /** Pids outside the group. */
  #escaped(): number[] {
    return markedPids(this.#nodeId, this.#executionId).filter((pid) => {
      const row = readLinuxProcess(pid)
      return row !== null && row.group !== this.#pid
    })
  }
}
