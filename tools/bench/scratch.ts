/**
 * Everything a run of the benchmark leaves in the world while it lasts: folders, processes and what else
 * says how it ends. Nothing outlives `clear`, which is also what happens when somebody interrupts the run.
 */
import type {ChildProcess} from 'node:child_process'
import {mkdtemp, rm} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'

export class Scratch {
  readonly #folders = new Set<string>()
  readonly #processes = new Set<ChildProcess>()
  readonly #cleanups: (() => unknown)[] = []

  /** An empty folder. */
  async folder(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'belfry-bench-'))
    this.#folders.add(folder)
    return folder
  }

  async remove(folder: string): Promise<void> {
    await rm(folder, {recursive: true, force: true})
    this.#folders.delete(folder)
  }

  /** Has `cleanup` called once, after the processes have ended; what came last goes first. */
  after(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup)
  }

  /** Sees to it that the process ends with the run, at the latest. */
  watch<Child extends ChildProcess>(child: Child): Child {
    this.#processes.add(child)
    child.once('exit', () => this.#processes.delete(child))
    return child
  }

  /** Ends what still runs and removes what still lies about. */
  async clear(): Promise<void> {
    const ends = [...this.#processes].map((child) => {
      const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
      child.kill('SIGKILL')
      return ended
    })
    await Promise.all(ends)
    for (const cleanup of this.#cleanups.splice(0).toReversed()) await cleanup()
    for (const folder of this.#folders) await this.remove(folder)
  }
}
