/**
 * Messages of notices: what a channel sends about the incidents of a rule. Plain data, the same for
 * every kind of channel. Pure; `wire/notice-message.ts` has their JSON.
 */

/** The most urgent first. */
export const SEVERITIES = ['critical', 'error', 'warning', 'info'] as const
export type Severity = (typeof SEVERITIES)[number]

/**
 * Kinds of messages. `opened`, `closed`: incidents. `reminder`: incidents that are still open. `digest`:
 * what opened and closed in quiet hours. `flapping`: incidents that opened and closed often. `output`,
 * `started`, `succeeded`: one launch, without state. `alive`: the cluster works. `test`: sent by a
 * person to try the channel.
 */
export const MESSAGE_KINDS = [
  'opened',
  'closed',
  'reminder',
  'digest',
  'flapping',
  'output',
  'started',
  'succeeded',
  'alive',
  'test',
] as const
export type MessageKind = (typeof MESSAGE_KINDS)[number]

/** States of a message of a channel. `dead`: it was not delivered, and is not tried again. */
export const MESSAGE_STATES = ['waiting', 'sent', 'dead'] as const
export type MessageState = (typeof MESSAGE_STATES)[number]

/** Incidents in a message: more would be read by no person. `more` counts the others. */
export const INCIDENTS_MAX = 20

/** Instants in ms since the epoch. */
export interface NoticeIncident {
  /** Rule, subject and condition: `all-jobs/load/failed`. The same from the opening to the closing. */
  readonly key: string
  /** `''` = the incident is about the cluster. */
  readonly job: string
  readonly openedAt: number
  /** `null` = still open. */
  readonly closedAt: number | null
  /** Facts counted so far. */
  readonly count: number
  /** Number of the launch; `null` = none. */
  readonly launch: number | null
  /** `''` = none. */
  readonly execution: string
  readonly sentences: readonly string[]
  /** `''` = none. */
  readonly advice: string
  /** Last lines of the output; `''` = none. */
  readonly outputTail: string
  /** Page of the console; `''` = none. */
  readonly url: string
  /**
   * Address of the owner of the job, for channels that send to owners. Not a part of the JSON. `''` =
   * none.
   */
  readonly ownerEmail: string
}

export interface NoticeMessage {
  /** The same in every attempt and repetition. Receivers compare it. */
  readonly id: string
  /** The first is 1. */
  readonly attempt: number
  /** True if the message may have been delivered already. */
  readonly repeat: boolean
  readonly kind: MessageKind
  readonly rule: string
  readonly severity: Severity
  readonly cluster: string
  readonly sentAt: number
  readonly summary: string
  /** At most `INCIDENTS_MAX`. */
  readonly incidents: readonly NoticeIncident[]
  /** Number of further incidents, which are not in the list. */
  readonly more: number
  /**
   * Further parts, from 1, have the incidents that `more` counts. Only channels get them that send each
   * incident by itself, or to the owner of its job. Not a part of the JSON.
   */
  readonly part: number
}

/** True if the message is good news: nothing in it is open. */
export function isGoodNews({kind, incidents}: Pick<NoticeMessage, 'kind' | 'incidents'>): boolean {
  if (kind === 'closed' || kind === 'succeeded' || kind === 'alive') return true
  return kind === 'digest' && incidents.every(({closedAt}) => closedAt !== null)
}
