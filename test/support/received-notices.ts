/** Messages of notices as a receiver outside of the cluster got them, and what they break of the promises. */

/** Part of a message that the check reads, in the form of the core or of the API. */
export interface ReceivedNotice {
  readonly id: string
  readonly kind: string
  readonly repeat: boolean
  readonly summary: string
  readonly incidents: readonly {readonly key: string}[]
}

export interface CheckedNotices<Notice> {
  /** The first arrival of each message, in order. */
  readonly firsts: readonly Notice[]
  /** Arrivals that are marked as repetitions of an earlier one. */
  readonly repeated: number
  /**
   * Arrivals without a mark or with another content, openings of what is open, and closings of what is
   * not.
   */
  readonly doubled: readonly string[]
}

/** Checks that each message arrives once, or marked as a repetition, and each closing after its opening. */
export function checkNotices<Notice extends ReceivedNotice>(
  received: readonly Notice[],
): CheckedNotices<Notice> {
  const firsts = new Map<string, Notice>()
  const told = new Map<string, string>()
  const doubled: string[] = []
  let repeated = 0
  for (const notice of received) {
    const {id, kind, repeat, summary, incidents} = notice
    const first = firsts.get(id)
    if (first !== undefined) {
      if (repeat) repeated += 1
      else doubled.push(`${id} is sent again without a mark`)
      if (first.summary !== summary)
        doubled.push(`${id} says "${summary}" after "${first.summary}"`)
      continue
    }
    firsts.set(id, notice)
    if (kind !== 'opened' && kind !== 'closed' && kind !== 'flapping') continue
    for (const {key} of incidents) {
      // A message about flapping says nothing about the state, so both may follow.
      if (kind !== 'flapping' && (told.get(key) ?? 'closed') === kind)
        doubled.push(`${key} is ${kind} twice, the second time in ${id}`)
      told.set(key, kind)
    }
  }
  return {firsts: [...firsts.values()], repeated, doubled}
}
