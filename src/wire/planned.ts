/** Planned times of a schedule in JSON. */
import {Type, type Static} from 'typebox'
import {OptionalTime, Time} from './shapes.ts'

export const PlannedTimes = Type.Object(
  {
    schedule: Type.String({description: 'The schedule.'}),
    timezone: Type.String({description: 'The time zone of the schedule.'}),
    next: Type.Array(Time('A planned time.'), {
      description: 'The next planned times, soonest first.',
    }),
    planned: Type.Array(
      Type.Object({
        at: Time('The planned time, as in `next`.'),
        local: Type.String({description: 'The same in the time zone, with its offset.'}),
        shift: Type.Enum(['', 'moved', 'first_pass', 'second_pass'], {
          description:
            'What daylight saving does to it. `moved`: its wall time does not exist on that day. ' +
            '`first_pass`, `second_pass`: its wall time is shown twice.',
        }),
        moved_from: Type.String({description: 'Of `moved`: that wall time. Else empty.'}),
      }),
      {description: 'The same times, as the wall clock shows them.'},
    ),
    clock_changes: Type.Array(
      Type.Object({
        at: Time('The change.'),
        before: Type.String({description: 'Offset before it, such as `+01:00`.'}),
        after: Type.String({description: 'Offset after it.'}),
      }),
      {description: 'Changes of the wall clock up to the last of these times.'},
    ),
    more: Type.Boolean({description: 'Whether more planned times follow, before `to`.'}),
    reason: Type.Enum(['', 'disabled', 'dependent', 'no_schedule', 'expired', 'ended'], {
      description:
        'Of a stored job: why it has no planned times; empty = it has. `dependent`: it runs after its ' +
        'parent. `no_schedule`: only by hand. `expired`: its `expires_at` ends them. `ended`: its ' +
        'schedule has no more.',
    }),
    paused: Type.Boolean({description: 'Whether firing of the stored job is paused now.'}),
    paused_until: OptionalTime(
      'Planned times before it are skipped. `null`: until the pause is ended, or no pause.',
    ),
  },
  {$id: 'PlannedTimes', description: 'The next planned times of a schedule.'},
)
export type PlannedTimesJson = Static<typeof PlannedTimes>
