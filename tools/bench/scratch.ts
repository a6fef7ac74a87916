/**
 * Resources of a benchmark run: folders, processes and other cleanups. `clear` removes all of them, also
 * when the run is interrupted.
 */
import type {ChildProcess} from 'node:child_process'
import {mkdtemp, rm} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'

export class Scratch {
  readonly #folders = new Set<string>()
  readonly #processes = new Set<ChildProcess>()
  readonly #cleanups: (() => unknown)[] = []

  /** Creates an empty folder. */
  async folder(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'belfry-bench-'))
    this.#folders.add(folder)
    return folder
  }

  async remove(folder: string): Promise<void> {
    await rm(folder, {recursive: true, force: true})
    this.#folders.delete(folder)
  }

  /** Registers a cleanup that runs once, after the processes have ended, newest first. */
  after(cleanup: () => unknown): void {
    this.#cleanups.push(cleanup)
  }

  /** Registers a process that must end with the run at the latest. */
  watch<Child extends ChildProcess>(child: Child): Child {
    this.#processes.add(child)
    child.once('exit', () => this.#processes.delete(child))
    return child
  }

  /** Ends all processes and removes all folders. */
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
