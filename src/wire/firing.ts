/** Firing in JSON: whether planned times are launched, and the pauses. */
import {type Static, Type} from 'typebox'
import {
  ALL_JOBS,
  type FiringPause,
  jobsGlobProblem,
  normalGlob,
  PAUSE_GLOB_LENGTH_MAX,
  PAUSE_REASON_LENGTH_MAX,
} from '../core/firing.ts'
import {parseLength} from '../lib/duration.ts'
import {Checked, MayBeUnset, OptionalTime, schemaRef, TextForm, Time} from './shapes.ts'
import {formatOptionalTime, formatTime, parseTime} from '../lib/rfc3339.ts'
import type {PauseRequest} from '../ports/job-store.ts'
import {decodeBody} from './body.ts'

export const Pause = Type.Object(
  {
    jobs: Type.String({description: 'The jobs: a name, in which `*` is any text.'}),
    reason: Type.String({description: 'Why, in the words of the caller; empty = not said.'}),
    paused_at: Time('When it began, or was replaced.'),
    paused_by: Type.String({
      description: 'Name of the token; `configured`, `local` or `belfry` without a stored one.',
    }),
    until: OptionalTime('When it ends by itself; `null` = it does not.'),
  },
  {$id: 'Pause', description: 'Planned times of these jobs are skipped.'},
)
export type PauseJson = Static<typeof Pause>

export const FiringStatus = Type.Object(
  {
    paused: Type.Boolean({description: 'True when planned times of some jobs do not run.'}),
    store: Type.Enum(['', 'restored', 'put_back'], {
      description:
        'Why no job has fired since the store was put back from a backup, until `POST /v1/resume`; ' +
        'empty = this is not so.',
    }),
    pauses: Type.Array(schemaRef(Pause), {description: 'The pauses in force, sorted by `jobs`.'}),
  },
  {$id: 'FiringStatus', description: 'Whether planned times are launched.'},
)
export type FiringStatusJson = Static<typeof FiringStatus>

const Jobs = Checked(
  Type.String({
    description: 'The jobs: a name, in which `*` is any text. Absent = `*`, all jobs.',
    maxLength: PAUSE_GLOB_LENGTH_MAX,
  }),
  jobsGlobProblem,
)

// oxlint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x1f\x7f-\x9f]/

export const NewPause = Type.Object(
  {
    jobs: Type.Optional(Jobs),
    until: MayBeUnset(
      TextForm(
        'A time, or a duration from now such as `2h`, by the clock of the store. Absent or `null` = ' +
          'until it is ended.',
        'must be a time such as "2026-05-01T08:30:00Z", or a duration such as "2h"',
        (text) => parseTime(text) !== null || parseLength(text) !== null,
      ),
    ),
    reason: Type.Optional(
      Checked(
        Type.String({description: 'Why, on one line.', maxLength: PAUSE_REASON_LENGTH_MAX}),
        (text) => (CONTROL.test(text) ? 'must be a text on one line' : null),
      ),
    ),
  },
  {$id: 'NewPause', description: 'A pause of firing.'},
)

export const PausedJobs = Type.Object(
  {jobs: Type.Optional(Jobs)},
  {$id: 'PausedJobs', description: 'The pause to end, by its `jobs`.'},
)

const INVALID = 'The pause of firing is invalid'

/** Throws `payload_unparsable`, `body_invalid`. */
export function decodePause(bytes: Uint8Array): Omit<PauseRequest, 'actor'> {
  const {jobs = ALL_JOBS, until, reason = ''} = decodeBody(NewPause, bytes, INVALID)
  return {jobs: normalGlob(jobs), until: untilOf(until ?? ''), reason}
}

/** The glob of the pause to end. Throws as `decodePause`. */
export function decodePausedJobs(bytes: Uint8Array): string {
  const {jobs = ALL_JOBS} = decodeBody(PausedJobs, bytes, INVALID)
  return normalGlob(jobs)
}

function untilOf(text: string): PauseRequest['until'] {
  const at = parseTime(text)
  if (at !== null) return {at}
  const afterMs = parseLength(text)
  return afterMs === null ? null : {afterMs}
}

export const Resumed = Type.Object(
  {resumed: Type.Boolean({description: 'False when firing was not paused.'})},
  {$id: 'Firing', description: 'Result of resuming firing.'},
)
export type ResumedJson = Static<typeof Resumed>

export function encodePause({jobs, reason, pausedAt, pausedBy, until}: FiringPause): PauseJson {
  return {
    jobs,
    reason,
    paused_at: formatTime(pausedAt),
    paused_by: pausedBy,
    until: formatOptionalTime(until),
  }
}
