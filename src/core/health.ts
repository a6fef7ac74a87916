/**
 * Health of the cluster, in one word and one sentence. `degraded`: it works, and a person should
 * look. `down`: nothing is launched.
 */
import {formatDuration} from '../lib/duration.ts'
import type {MemberRecord} from './node.ts'

export interface HealthFacts {
  readonly members: readonly Pick<MemberRecord, 'name' | 'status' | 'runs' | 'cordonedAt'>[]
  /** `null` = no server leads. */
  readonly leader: {readonly name: string; readonly term: number} | null
  /** `active`, or why planned times do not run. */
  readonly firing: string
  /** Firing continues by itself: each pause of it has an end. */
  readonly isPausePlanned: boolean
  readonly areSubmissionsPaused: boolean
  /** Launches without a decision. */
  readonly undecided: number
  /** Executions that wait for a slot, a node or a retry. */
  readonly pending: number
  /** How late the oldest planned time without a decision is; 0 = none is due. */
  readonly lateMs: number
  /** How long the oldest launch without a node that matches has waited; 0 = none waits for one. */
  readonly waitingMs: number
  /** Why a person should look at the scheduled backups; `null` = nothing is wrong. */
  readonly backupProblem: string | null
  readonly notices: NoticesState
  /** Time that the store took to answer. */
  readonly storeMs: number
}

/** Deliveries of notices. */
export interface NoticesState {
  /** Names of channels whose last attempt failed. */
  readonly failing: readonly string[]
  /** Messages of the last day that no receiver took. */
  readonly dead: number
}

export interface Health {
  readonly status: 'healthy' | 'degraded' | 'down'
  readonly sentence: string
}

/** Default of `--late-after`: a planned time that is decided later was missed. */
const LATE_MS = 30_000
/** A store that works answers within some milliseconds, a distant one within some hundred. */
const STORE_SLOW_MS = 2_000
/** Launches of one pass of the leader: more do not wait in a cluster that keeps up. */
const UNDECIDED_MAX = 1_000
/** Names in the sentence. */
const NAMES_MAX = 3

export function decideHealth(facts: HealthFacts): Health {
  const down = outages(facts)
  if (down.length > 0) return {status: 'down', sentence: [...down, ...problems(facts)].join('; ')}
  const degraded = problems(facts)
  if (degraded.length > 0) return {status: 'degraded', sentence: degraded.join('; ')}
  return {status: 'healthy', sentence: summary(facts)}
}

function outages({leader, members}: HealthFacts): string[] {
  const takesWork = members.some(({status, runs, cordonedAt}) => {
    return status === 'alive' && runs && cordonedAt === null
  })
  return [
    ...(leader === null ? ['no server leads, so nothing is launched'] : []),
    ...(takesWork ? [] : ['no node takes work']),
  ]
}

function problems(facts: HealthFacts): string[] {
  const {members, firing, isPausePlanned, areSubmissionsPaused} = facts
  const {undecided, lateMs, waitingMs, storeMs} = facts
  const failed = members.filter(({status}) => status === 'failed')
  const found: string[] = []
  if (failed.length > 0) found.push(`${count(failed.length, 'node')} failed (${named(failed)})`)
  if (firing !== 'active' && !isPausePlanned) found.push(`firing is ${firing}`)
  else if (lateMs > LATE_MS) found.push(`a planned time is ${roughly(lateMs)} late`)
  if (waitingMs > LATE_MS)
    found.push(`launches wait for a node that matches, the first for ${roughly(waitingMs)}`)
  if (areSubmissionsPaused) found.push('submissions are paused')
  if (undecided > UNDECIDED_MAX) found.push(`${undecided} launches wait for a decision`)
  if (facts.backupProblem !== null) found.push(facts.backupProblem)
  const {failing, dead} = facts.notices
  if (failing.length > 0)
    found.push(`notices are not delivered over ${named(failing.map((name) => ({name})))}`)
  if (dead > 0) found.push(`${count(dead, 'notice')} of the last day could not be delivered`)
  if (storeMs > STORE_SLOW_MS) found.push(`the store took ${roughly(storeMs)} to answer`)
  return found
}

/** Sentence for a healthy cluster. A cordon and a pause with an end are intended, and no problem. */
function summary({leader, members, firing, pending, undecided}: HealthFacts): string {
  const present = members.filter(({status}) => status !== 'left')
  const alive = present.filter(({status}) => status === 'alive')
  const cordoned = present.filter(({cordonedAt}) => cordonedAt !== null)
  return [
    `leader ${leader?.name} (term ${leader?.term})`,
    `${alive.length} of ${count(present.length, 'node')} alive`,
    ...(cordoned.length === 0 ? [] : [`${cordoned.length} cordoned (${named(cordoned)})`]),
    ...(firing === 'active' ? [] : [`firing is ${firing}`]),
    ...(pending === 0 ? [] : [`${count(pending, 'execution')} pending`]),
    ...(undecided === 0 ? [] : [`${undecided} undecided`]),
    ...(pending + undecided === 0 ? ['nothing waits'] : []),
  ].join(', ')
}

function named(members: readonly Pick<MemberRecord, 'name'>[]): string {
  const names = members.slice(0, NAMES_MAX).map(({name}) => name)
  const others = members.length - names.length
  return `${names.join(', ')}${others === 0 ? '' : `, and ${others} more`}`
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`
}

/** Whole seconds. */
function roughly(ms: number): string {
  return formatDuration(Math.round(ms / 1_000) * 1_000)
}
