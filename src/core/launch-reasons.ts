/** Meaning of the reason codes of launches, for people. docs/reference/jobs.md has the same sentences. */
import type {Reason} from './launch-record.ts'

export const REASON_SENTENCES: Readonly<Record<Reason, string>> = {
  forbid: 'Another launch of the job was open, and its concurrency is forbid',
  no_target: 'No alive node that takes work matched the tags before the wait ended',
  disabled: 'The job was disabled before the time was decided, or when the parent succeeded',
  outside_window: 'The parent succeeded before starts_at or after expires_at',
  max_lateness: 'It was older than max_lateness',
  catch_up_skip: 'It was missed, and catch_up is skip',
  catch_up_latest: 'It was missed, and a newer missed time was launched instead',
  catch_up_cap: 'It was missed, and catch_up: all had already launched its 100',
  edited: 'A change of the definition moved the schedule past it',
  restored:
    'The store was put back from a backup; times before firing was resumed are never launched',
  firing_paused: 'Firing of the job was paused when it was planned, or when the parent succeeded',
  behind:
    'Too many earlier launches of the job wait for a free slot: its nodes start them more slowly than the ' +
    'schedule plans them',
  quarantined: 'Two nodes in a row died while executing this launch, and the job was disabled',
  schedule_unreadable:
    'No planned time: a note that this version, or its time zone data, cannot read the stored schedule. ' +
    'Planned times stay undecided until a version that can read it leads, or the job is edited',
  undecidable: 'No planned time: a note that the job cannot be decided, and why. Edit the job',
  waits_for_open: 'It waits for the previous launch to end',
  waits_for_node: 'It waits for a node whose tags match',
}

/** The sentence of a stored reason, which is a code and perhaps more; an unknown code stays as it is. */
export function reasonSentence(reason: string): string {
  const [, code = '', more] = /^(\w*)(?:: (.*))?$/s.exec(reason) ?? []
  const sentences: Readonly<Record<string, string>> = REASON_SENTENCES
  const sentence = Object.hasOwn(sentences, code) ? sentences[code]! : code
  if (more === undefined) return sentence === '' ? reason : sentence
  return `${sentence}: ${more}`
}
