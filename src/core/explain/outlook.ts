/** The job now, and its next planned times with the conditions that can stop them. */
import {isInForce, pausedUntil} from '../firing.ts'
import {matchesText} from '../access/glob.ts'
import {nextPlanned} from '../next-time.ts'
import type {Around, ChangeFacts, ExplainFacts, StoredLaunchFacts} from './facts.ts'
import {nodeWith} from './nodes.ts'
import {disabledTold, reasonTold} from './reasons.ts'
import {undecidedTold} from './undecided.ts'
import {listed, type Words} from './words.ts'

export const JOB_STATES = ['running', 'backoff', 'waiting', 'disabled', 'idle'] as const
export type JobState = (typeof JOB_STATES)[number]

export interface NowTold {
  readonly state: JobState
  readonly sentences: readonly string[]
}

export interface NextTold {
  readonly at: number
  /** Conditions under which it does not run, as the ends of a sentence that begins with `unless`. */
  readonly unless: readonly string[]
}

/** Open launches with a sentence each. */
const OPEN_SHOWN = 3
/** A leader decides within it. */
const LATE_MIN_MS = 1_000
/** Planned times that are shown. */
const NEXT_SHOWN = 3

/** State of the job: the first of these that is true of an open launch, else of the job. */
export function nowTold(
  facts: ExplainFacts,
  known: Around,
  change: ChangeFacts | undefined,
  words: Words,
): NowTold {
  const {job, open} = facts
  const told = open.map((each) => openTold(each, facts, known, words))
  const states = new Set(told.map(({state}) => state))
  const sentences = told.slice(0, OPEN_SHOWN).map(({sentence}) => sentence)
  const isLate = job.nextAt !== null && job.nextAt < facts.now - LATE_MIN_MS
  if (isLate) {
    sentences.push(...undecidedTold(facts, job.nextAt, words).sentences)
    states.add('waiting')
  }
  if (told.length > OPEN_SHOWN)
    sentences.push(`${told.length - OPEN_SHOWN} more launches are open.`)
  if (job.spec.disabled) sentences.push(...disabledTold(job.spec.name, change, words).sentences)
  if (sentences.length === 0) sentences.push('Nothing runs or waits.')
  if (job.spec.parentJob !== '') sentences.push(`It ${runsAfter(facts)}.`)
  const idle = job.spec.disabled ? 'disabled' : 'idle'
  return {state: JOB_STATES.find((state) => states.has(state)) ?? idle, sentences}
}

/** `runs after extract succeeds`, for a job with a parent. */
export function runsAfter({job, isParentDisabled}: ExplainFacts): string {
  const {parentJob} = job.spec
  return `runs after ${parentJob} succeeds${isParentDisabled ? `, and ${parentJob} is disabled` : ''}`
}

function openTold(
  {launch, executions}: StoredLaunchFacts,
  {now, typicalMs}: ExplainFacts,
  known: Around,
  words: Words,
): {readonly state: JobState; readonly sentence: string} {
  const name = `Launch ${launch.group}`
  if (launch.decision === 'pending') {
    const [first] = reasonTold(launch, known, words).sentences
    const since = words.time(launch.storedAt)
    return {state: 'waiting', sentence: first ?? `${name} waits for its decision since ${since}.`}
  }
  const running = executions.filter(({status}) => status === 'running')
  if (running.length > 0) {
    const start = Math.min(...running.map(({startedAt}) => startedAt ?? now))
    const nodes = listed(running.map(({node}) => node))
    const end = typicalMs === null ? '' : `; typically it ends at ${words.time(start + typicalMs)}`
    return {
      state: 'running',
      sentence: `${name} runs since ${words.time(start)} on ${nodes}${end}.`,
    }
  }
  const [waiting] = executions.filter(({status}) => status === 'pending')
  if (waiting === undefined) return {state: 'waiting', sentence: `${name} is open.`}
  const {node, attempt, notBefore} = waiting
  if (notBefore <= now)
    return {state: 'waiting', sentence: `${name} waits for a free slot on ${node}.`}
  const at = words.time(notBefore)
  return {
    state: 'backoff',
    sentence: `Attempt ${attempt} of launch ${launch.group} starts on ${node} at ${at} or later.`,
  }
}

/** The next planned times; empty = none is planned. */
export function nextTold(
  facts: ExplainFacts,
  known: Around,
  targetWait: string,
  words: Words,
): readonly NextTold[] {
  const {job, now, settings, typicalMs, open} = facts
  const after = (at: number) => nextPlanned(job.spec, job.anchorAt, at, settings.defaultZone)
  const times: number[] = []
  for (let at = after(now); at !== null && times.length < NEXT_SHOWN; at = after(at)) times.push(at)
  const always = [...putBack(facts), ...noNode(known, targetWait)]
  const blocking = job.spec.concurrency === 'forbid' ? open.at(0) : undefined
  const end =
    blocking?.launch.decidedAt == null || typicalMs === null
      ? null
      : blocking.launch.decidedAt + typicalMs
  return times.map((at, index) => {
    const unless = [...always, ...paused(facts, at, words)]
    // The end is not known without a typical length: each of them may be too early.
    const overlaps = index === 0 || end === null || end > at
    if (blocking !== undefined && overlaps) {
      const expected = end === null ? '' : `; typically it ends at ${words.time(end)}`
      unless.push(`launch ${blocking.launch.group} is still open${expected}: then it is skipped`)
    }
    return {at, unless}
  })
}

function putBack({isPutBack}: ExplainFacts): readonly string[] {
  return isPutBack ? ['firing is not resumed before, as the store was put back from a backup'] : []
}

function noNode(known: Around, targetWait: string): readonly string[] {
  const {nodes} = known
  if (nodes === undefined || nodes.matching > 0) return []
  return [
    `${nodeWith(known).replace(/^a node/, 'no node')} takes it within ${targetWait}: then it is skipped`,
  ]
}

function paused({settings, job, now}: ExplainFacts, at: number, words: Words): readonly string[] {
  const {name} = job.spec
  if (pausedUntil(settings.pauses, name) <= at) return []
  const pause = settings.pauses.find(
    (each) => matchesText(each.jobs, name) && isInForce(each, Math.max(now, at)),
  )
  if (pause === undefined) return []
  const {until, pausedBy, reason} = pause
  const end = until === null ? '' : ` until ${words.time(until)}`
  const why = reason === '' ? '' : ` ("${reason}")`
  return [`the pause of firing by ${pausedBy}${end}${why} is not ended before: then it is skipped`]
}
