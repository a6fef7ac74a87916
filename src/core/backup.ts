/** Scheduled backups: when one is due, and whether the last one is as new as its schedule requires. Pure. */
import {parseSchedule, type Schedule} from './schedule/parse.ts'

/** State of the scheduled backups of a cluster. */
export interface BackupState {
  /** When the newest good backup was started, by the store's clock; `null` = there is none. */
  readonly lastAt: number | null
  /** Path of that backup on the server `node`; `''` = there is none. */
  readonly file: string
  readonly bytes: number
  readonly node: string
  /** First planned time that no good backup covers; `null` = none is planned. */
  readonly dueAt: number | null
  /** Newest failure since the last good backup; `null` = none. */
  readonly failedAt: number | null
  readonly failure: string
}

export const NO_BACKUP: BackupState = {
  lastAt: null,
  file: '',
  bytes: 0,
  node: '',
  dueAt: null,
  failedAt: null,
  failure: '',
}

/** A backup of a large store takes this long at most, on a usual disk. */
const LATE_MS = 3_600_000

/** The name and the anchor only matter for `~` and `@every`: the same on all servers, after each takeover. */
export function backupSchedule(text: string, timezone: string): ReturnType<typeof parseSchedule> {
  return parseSchedule(text, {timezone, name: 'backup', anchorAt: 0})
}

/** A first backup is due at once: it shows that the directory can be written. */
export function backupDueAt(schedule: Schedule, lastAt: number | null, now: number): number | null {
  // A backup of the future was made with a wrong clock.
  return lastAt === null || lastAt > now ? now : schedule.next(lastAt)
}

/** Why a person should look at the backups, as a part of a sentence; `null` = they are as wanted. */
export function backupProblem(state: BackupState | null, now: number): string | null {
  if (state === null) return null
  if (state.failedAt !== null) return `the last backup failed (${state.failure})`
  if (state.dueAt !== null && state.dueAt + LATE_MS < now) return 'the last backup is too old'
  return null
}
