/** Why a planned time that is due has no row. */
import {formatTime} from '../../lib/rfc3339.ts'
import type {ExplainFacts, Told} from './facts.ts'
import type {Words} from './words.ts'

/** A planned time that is due and not decided. */
export function undecidedTold(facts: ExplainFacts, at: number, words: Words): Told {
  const {why, advice, command} = causeOf(facts, words)
  return {
    sentences: [`It was planned for ${words.time(at)} and is not decided yet: ${why}.`],
    advice,
    commands: [command],
    facts: {planned_at: formatTime(at)},
  }
}

interface Cause {
  readonly why: string
  readonly advice: string
  readonly command: string
}

function causeOf({now, leaseUntil, isPutBack, settings, spans}: ExplainFacts, words: Words): Cause {
  if (isPutBack)
    return {
      why: 'the store was put back from a backup, and firing is not resumed',
      advice: 'Resume firing when the jobs may run here.',
      command: 'belfry resume',
    }
  const since = (kind: string) => {
    const span = spans.find((each) => each.kind === kind && each.until === null)
    return span === undefined ? null : span.from
  }
  if (leaseUntil === null || leaseUntil < now) {
    const from = leaseUntil ?? since('no_leader')
    return {
      why: `no server leads${from === null ? '' : ` since ${words.time(from)}`}`,
      advice: 'Look at the servers.',
      command: 'belfry status',
    }
  }
  const held = since('clock_held')
  if (held !== null)
    return {
      why: `the clock of the store has jumped ahead, so times are held back since ${words.time(held)}`,
      advice: 'Correct the clock. A step that stays is believed after a while.',
      command: 'belfry status',
    }
  if (!settings.isPlanned)
    return {
      why: 'the jobs are being planned with a new default time zone',
      advice: 'Wait until it is done.',
      command: 'belfry status',
    }
  return {
    why: 'the leader decides it next',
    advice: 'If it stays so, look at the leader.',
    command: 'belfry status',
  }
}
