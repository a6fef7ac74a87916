/**
 * Scheduled backups, leader only: written beside running work, checked by reading them back, and then old
 * ones are deleted. The state is in the store, so a new leader makes a backup that was missed and repeats
 * none.
 *
 * Crash points:
 * - While a backup is written: its draft stays, and the next leader on this directory removes it.
 * - After the backup has its name, before the store knows: the next leader makes another one.
 * - Before old backups are deleted: the next backup deletes them.
 */
import {backupDueAt, backupSchedule, type BackupState, NO_BACKUP} from '../core/backup.ts'
import {messageOf} from '../lib/error.ts'
import type {Loop, Service} from '../lib/loop.ts'
import {stepLoop} from '../node/step-loop.ts'
import type {BackupDirectory} from '../platform/backup-directory.ts'
import type {LeaderStore} from '../ports/leader-store.ts'
import type {Store} from '../ports/store.ts'
import {TermOver} from '../ports/store-errors.ts'
import type {TermOptions} from './leadership.ts'

/** A full disk or a share that is away: a person needs longer, and each try reads the whole store. */
const RETRY_MS = 600_000
/** The store's clock is asked this often whether a backup is due. */
const LOOK_MS = 15_000

export interface ScheduledBackupsOptions extends TermOptions {
  readonly store: Pick<LeaderStore, 'backupState' | 'recordBackup'> &
    Pick<Store, 'backup' | 'defaultTimezone'>
  readonly directory: () => Promise<
    Pick<BackupDirectory, 'prepare' | 'draft' | 'publish' | 'discard' | 'removeOld'>
  >
  /** Reads a backup back; resolves with what is wrong, as a sentence without its subject, or `null`. */
  readonly check: (file: string) => Promise<string | null>
  readonly schedule: string
  /** Backups that are kept. */
  readonly keep: number
  readonly nodeName: string
}

export class ScheduledBackups implements Service {
  readonly #options: ScheduledBackupsOptions
  readonly #loop: Loop
  #isStopped = false
  /**
   * Backup in progress. The end of a term does not wait for it: a large store takes minutes, and the next
   * term may begin here.
   */
  #running: Promise<void> | null = null
  /** Monotonic. */
  #notBefore = -Infinity

  constructor(options: ScheduledBackupsOptions) {
    this.#options = options
    this.#loop = stepLoop('backup', {...options, step: () => this.#look()})
  }

  start(): void {
    this.#loop.start()
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#loop.stop()
  }

  async #look(): Promise<number> {
    const {store, term, schedule: text, clock} = this.#options
    if (this.#running !== null || clock.monotonicMs() < this.#notBefore) return LOOK_MS
    const [{now, state}, zone] = await Promise.all([store.backupState(), store.defaultTimezone()])
    const parsed = backupSchedule(text, zone)
    if (!parsed.ok) throw new Error(`--backup-schedule cannot be used: ${parsed.problem}`)
    const before = state ?? NO_BACKUP
    const dueAt = backupDueAt(parsed.schedule, before.lastAt, now)
    if (dueAt !== before.dueAt && dueAt !== now)
      await store.recordBackup({term, state: {...before, dueAt}})
    if (dueAt === null || dueAt > now || this.#isStopped) return LOOK_MS
    const nextAt = parsed.schedule.next(now)
    this.#running = this.#backUp(now, {...before, dueAt}, nextAt).finally(
      () => (this.#running = null),
    )
    return LOOK_MS
  }

  /** Never rejects. */
  async #backUp(now: number, before: BackupState, nextAt: number | null): Promise<void> {
    const {store, term, events, clock, keep, nodeName: node, onTermOver} = this.#options
    const startedAt = clock.monotonicMs()
    let state = before
    try {
      const {file, bytes, removeOld} = await this.#write(now)
      const made = {...NO_BACKUP, lastAt: now, file, bytes, node, dueAt: nextAt}
      await store.recordBackup({term, state: made})
      state = made
      events.emit('backup_made', {file, bytes, duration_ms: clock.monotonicMs() - startedAt})
      await removeOld(keep)
    } catch (error) {
      this.#notBefore = clock.monotonicMs() + RETRY_MS
      if (error instanceof TermOver) return onTermOver()
      const message = messageOf(error)
      if (this.#isStopped) return
      events.emit('backup_failed', {message})
      // A backup counts also if old ones cannot be deleted: it is not repeated.
      await this.#recordFailure({...state, failedAt: now, failure: message})
    }
  }

  async #write(now: number) {
    const {store, check} = this.#options
    const directory = await this.#options.directory()
    await directory.prepare()
    const draft = directory.draft(now)
    try {
      await store.backup(draft)
      const problem = await check(draft)
      if (problem !== null) throw new Error(`the backup ${problem}`)
      if (this.#isStopped) throw new Error('the term of this leader is over')
      const {file, bytes} = await directory.publish(draft)
      return {file, bytes, removeOld: (keep: number) => directory.removeOld(keep, file, now)}
    } catch (error) {
      try {
        await directory.discard(draft)
      } catch {
        // The next backup removes it.
      }
      throw error
    }
  }

  async #recordFailure(state: BackupState): Promise<void> {
    const {store, term, events} = this.#options
    try {
      await store.recordBackup({term, state})
    } catch (error) {
      events.emit('step_failed', {step: 'backup', message: String(error)})
    }
  }
}
