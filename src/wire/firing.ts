/** Firing in JSON: whether planned times are launched, and the pauses. */
import {type Static, Type} from 'typebox'
import {type FiringPause, PAUSE_GLOB_LENGTH_MAX, PAUSE_REASON_LENGTH_MAX} from '../core/firing.ts'
import {OptionalTime, schemaRef, Time} from './shapes.ts'
import {formatOptionalTime, formatTime} from './time.ts'

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

const JOBS = {
  description: 'The jobs: a name, in which `*` is any text. Absent = `*`, all jobs.',
  maxLength: PAUSE_GLOB_LENGTH_MAX,
}

export const NewPause = Type.Object(
  {
    jobs: Type.Optional(Type.String(JOBS)),
    until: Type.Optional(
      Type.Union([Type.String(), Type.Null()], {
        description:
          'A time, or a duration from now such as `2h`, by the clock of the store. Absent or `null` = ' +
          'until it is ended.',
      }),
    ),
    reason: Type.Optional(
      Type.String({description: 'Why, on one line.', maxLength: PAUSE_REASON_LENGTH_MAX}),
    ),
  },
  {$id: 'NewPause', description: 'A pause of firing.'},
)

export const PausedJobs = Type.Object(
  {jobs: Type.Optional(Type.String(JOBS))},
  {$id: 'PausedJobs', description: 'The pause to end, by its `jobs`.'},
)

export function encodePause({jobs, reason, pausedAt, pausedBy, until}: FiringPause): PauseJson {
  return {
    jobs,
    reason,
    paused_at: formatTime(pausedAt),
    paused_by: pausedBy,
    until: formatOptionalTime(until),
  }
}
