/**
 * Cost of each fault, from the launch history: time without launches after a leader died, and time until
 * executions start on time again. All times are from one machine, hence one clock.
 */
import type {Answer} from '../../test/support/server-process.ts'
import type {Fault} from './faults.ts'

type Json = Answer['json']

/** First attempts that start later than this count as delayed by the fault. */
const DISTURBED_MS = 2_000

export interface Cost {
  readonly fault: Fault
  /**
   * Time from the fault of a leader to the first launch under a new term, ms; `null` = none before the next
   * fault.
   */
  readonly takeoverMs: number | null
  /**
   * Time from the fault (from its end, if it lasts) until everything planned before the next one had started,
   * ms; 0 = no delay.
   */
  readonly recoveryMs: number
}

interface Started {
  readonly plannedAt: number
  readonly decidedAt: number
  readonly startedAt: number
  readonly term: number
}

/** Costs of `faults`; `rows` = launches of all jobs with a schedule. */
export function costsOf(faults: readonly Fault[], rows: readonly Json[]): readonly Cost[] {
  const started = rows.flatMap(startedOf).toSorted((a, b) => a.plannedAt - b.plannedAt)
  return faults.map((fault, index): Cost => {
    const next = faults.slice(index + 1).find(({from}) => from > fault.to)?.from ?? Infinity
    const meanwhile = started.filter(({plannedAt}) => plannedAt >= fault.from && plannedAt < next)
    return {
      fault,
      takeoverMs: fault.wasLeader ? takeoverMs(fault, next, started) : null,
      recoveryMs: recoveryMs(fault, meanwhile),
    }
  })
}

function startedOf(row: Json): Started[] {
  if (row.decision !== 'launched') return []
  const [first] = row.executions
  return [
    {
      plannedAt: Date.parse(row.scheduled_at),
      decidedAt: Date.parse(row.decided_at),
      startedAt: Date.parse(first.started_at),
      term: row.term,
    },
  ]
}

function takeoverMs(fault: Fault, next: number, started: readonly Started[]): number | null {
  const before = started.filter(({decidedAt}) => decidedAt < fault.from)
  const term = Math.max(0, ...before.map((launch) => launch.term))
  const after = started.filter((launch) => launch.term > term && launch.decidedAt < next)
  if (after.length === 0) return null
  return Math.min(...after.map(({decidedAt}) => decidedAt)) - fault.from
}

function recoveryMs({kind, from, to}: Fault, meanwhile: readonly Started[]): number {
  const disturbed = meanwhile.filter(
    ({plannedAt, startedAt}) => startedAt - plannedAt > DISTURBED_MS,
  )
  const lasts = kind !== 'kill' && kind !== 'stop'
  return Math.max(0, ...disturbed.map(({startedAt}) => startedAt - (lasts ? to : from)))
}
