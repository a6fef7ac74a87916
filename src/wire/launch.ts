/** A row of the ledger as it travels: what became of a planned time or of a request. */
import Type, {type Static} from 'typebox'
import type {ExecutionRecord} from '../core/execution.ts'
import type {LaunchRecord} from '../core/launch-record.ts'
import {LaunchExecution, encodeLaunchExecution} from './execution.ts'
import {OptionalTime, Refer, Time} from './shapes.ts'
import {formatOptionalTime, formatTime} from './time.ts'

export const LAUNCH_DECISIONS = ['pending', 'launched', 'skipped', 'missed'] as const

export const Launch = Type.Object(
  {
    group: Type.Integer({description: 'The launch number.'}),
    job_name: Type.String({description: 'Name of the job.'}),
    scheduled_at: Time('The planned time; for a request, when it was asked for.'),
    scheduled_until: Time('The last planned time that the row stands for.'),
    count: Type.Integer({description: 'How many planned times the row stands for.'}),
    decided_at: OptionalTime('When the leader decided.'),
    cause: Type.Enum(['schedule', 'manual', 'create', 'parent'], {description: 'Why it is there.'}),
    decision: Type.Enum([...LAUNCH_DECISIONS], {description: 'What became of it.'}),
    reason: Type.String({description: 'A code, optionally followed by a colon and a sentence.'}),
    term: Type.Union([Type.Integer(), Type.Null()], {
      description: 'Term of the leader that decided.',
    }),
    executions: Type.Array(Refer(LaunchExecution), {description: 'What was started.'}),
  },
  {$id: 'Launch', description: 'A row of the ledger.'},
)
export type LaunchJson = Static<typeof Launch>

export function encodeLaunch(
  launch: LaunchRecord,
  executions: readonly ExecutionRecord[],
): LaunchJson {
  return {
    group: launch.group,
    job_name: launch.jobName,
    scheduled_at: formatTime(launch.scheduledAt),
    scheduled_until: formatTime(launch.scheduledUntil),
    count: launch.count,
    decided_at: formatOptionalTime(launch.decidedAt),
    cause: launch.cause,
    decision: launch.decision,
    reason: launch.reason,
    term: launch.term,
    executions: executions.map(encodeLaunchExecution),
  }
}
