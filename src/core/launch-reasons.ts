/**
 * The table of reason codes of launches: one row is everything about a code. The stored reason is a code,
 * optionally followed by `: ` and a sentence. docs/reference/jobs.md is written from the table.
 */
import {LAUNCH_CAUSES, type LaunchCause} from './launch-record.ts'

interface ReasonRow {
  /** Markdown, with links as in docs/reference/jobs.md. */
  readonly means: string
  /**
   * Decision that a leader makes for this reason, and the causes of such launches: labels of
   * `belfry_launches_total`.
   */
  readonly decides?: {
    readonly decision: 'skipped' | 'missed'
    readonly causes: readonly LaunchCause[]
  }
}

/** Every reason code. A released code keeps its meaning. */
export const LAUNCH_REASONS = {
  forbid: {
    means: 'Another launch of the job was open, and its `concurrency` is `forbid`',
    decides: {decision: 'skipped', causes: LAUNCH_CAUSES},
  },
  no_target: {
    means: 'No alive node that takes work matched the tags before the wait ended',
    decides: {decision: 'skipped', causes: LAUNCH_CAUSES},
  },
  disabled: {
    means:
      'The job was disabled. The row of a span says by whom and since when, and counts its planned times, ' +
      'also while the job is disabled. Without a name: before the time was decided, or when the parent ' +
      'succeeded',
    decides: {decision: 'skipped', causes: ['schedule', 'parent']},
  },
  outside_window: {
    means: 'The parent succeeded before `starts_at` or after `expires_at`',
    decides: {decision: 'skipped', causes: ['parent']},
  },
  max_lateness: {
    means: 'It was older than `max_lateness`',
    decides: {decision: 'missed', causes: ['schedule']},
  },
  catch_up_skip: {
    means: 'It was missed, and `catch_up` is `skip`',
    decides: {decision: 'missed', causes: ['schedule']},
  },
  catch_up_latest: {
    means: 'It was missed, and a newer missed time was launched instead',
    decides: {decision: 'missed', causes: ['schedule']},
  },
  catch_up_cap: {
    means: 'It was missed, and `catch_up: all` had already launched its 100',
    decides: {decision: 'missed', causes: ['schedule']},
  },
  firing_paused: {
    means:
      '[Firing of the job was paused](../how-to/pause.md) when it was planned, or when the parent succeeded',
    decides: {decision: 'skipped', causes: ['schedule', 'parent']},
  },
  edited: {means: 'A change of the definition moved the schedule past it'},
  restored: {
    means:
      'The store was put back from a backup; times before firing was resumed are never launched',
  },
  quarantined: {
    means: 'Two nodes in a row died while executing this launch, and the job was disabled',
  },
  schedule_unreadable: {
    means:
      'No planned time: a note that this version, or its time zone data, cannot read the stored schedule. ' +
      'Planned times stay undecided until a version that can read it leads, or the job is edited',
  },
  undecidable: {
    means: 'No planned time: a note that the job cannot be decided, and why. Edit the job',
  },
  waits_for_open: {means: 'It waits for the previous launch to end'},
  behind: {
    means:
      'Too many earlier launches of the job wait for a free slot: its nodes start them more slowly ' +
      'than the schedule plans them',
    decides: {decision: 'skipped', causes: ['schedule']},
  },
  waits_for_node: {means: 'It waits for a node whose tags match'},
  parent_failed: {means: 'The launch of its parent ended without success'},
  parent_skipped: {means: 'Its parent did not run'},
} as const satisfies Record<string, ReasonRow>

export type Reason = keyof typeof LAUNCH_REASONS

const ROWS: Readonly<Record<string, ReasonRow>> = LAUNCH_REASONS

/** All rows with their codes. */
export const REASON_ROWS: readonly (readonly [Reason, ReasonRow])[] = Object.entries(ROWS) as [
  Reason,
  ReasonRow,
][]

export function reasonText(code: Reason, sentence = ''): string {
  return sentence === '' ? code : `${code}: ${sentence}`
}

/** The code of a stored reason; `null` for one of another release. */
export function reasonCode(reason: string): Reason | null {
  const [code = ''] = reason.split(':')
  return Object.hasOwn(ROWS, code) ? (code as Reason) : null
}
