/** A problem while its rows are added: what is counted of them, and whether all of them are over. */
import type {ClusterEvent} from '../cluster-event.ts'
import type {Fact} from '../explain/facts.ts'
import type {Words} from '../explain/words.ts'
import type {LaunchRecord} from '../launch-record.ts'
import type {DefaultTarget} from '../target.ts'
import type {Problem, ProblemFacts, ProblemPlace} from './facts.ts'

export interface ProblemContext {
  readonly defaultTarget: DefaultTarget
  /** The caller may list the members. */
  readonly seesNodes: boolean
  /** The list is of some jobs only: problems of the cluster without any of them are left out. */
  readonly isFiltered: boolean
  /** The store cannot be written now. */
  readonly isStoreDown: boolean
}

/** Facts and results that the steps share. */
export interface Folding {
  readonly facts: ProblemFacts
  readonly context: ProblemContext
  readonly words: Words
  readonly spans: readonly SpanGroup[]
  /** Drafts by key. */
  readonly drafts: Map<string, Draft>
  /** The draft of each launch that did not run or ended badly, by number. */
  readonly byGroup: Map<number, Draft>
  /** Events that are part of a problem already. */
  readonly toldEvents: Set<number>
}

/** Spans in which nothing was decided; those that follow each other closely are one. */
export interface SpanGroup {
  readonly code: 'no_leader' | 'clock_held' | 'store_restored'
  readonly from: number
  /** `Infinity` = it is not over. */
  readonly until: number
  readonly lengthMs: number
  readonly draft: Draft
  /** Rows that it covers. */
  readonly missed: LaunchRecord[]
  /** The leader before, if it failed and is not back. */
  readonly down: string[]
}

/** Kinds of rows that wait or run. */
const OF_NOW: ReadonlySet<Problem['kind']> = new Set(['waiting', 'late', 'long'])

/** Names and numbers in a reply; the totals count all. */
export const NAMES_MAX = 20
const LAUNCHES_MAX = 20

/** A row, as it is added. */
export interface Occurrence {
  /** Absent = none: an event of the cluster. */
  readonly job?: string
  readonly group?: number
  readonly count: number
  readonly from: number
  /** When it was over; `null` = it is not. */
  readonly overAt: number | null
  /** How late it started. */
  readonly lateMs?: number
}

export interface Telling {
  readonly cause: Readonly<Record<string, Fact>>
  readonly sentence: string
  readonly advice: string
  readonly output?: Problem['output']
}

export class Draft {
  readonly key: string
  readonly kind: Problem['kind']
  readonly code: string
  /** Makes the sentences when all rows are added. */
  readonly tell: (draft: Draft, folding: Folding) => Telling
  plannedTimes = 0
  /** Rows of dependents that did not run because of it. */
  dependents = 0
  since = Infinity
  /** Begin of its newest row. */
  #newest = -Infinity
  latestMs = 0
  overAt: number | null = -Infinity
  readonly #jobs = new Set<string>()
  readonly #groups = new Set<number>()

  constructor(
    {key, kind, code}: Pick<Problem, 'key' | 'kind' | 'code'>,
    tell: (draft: Draft, folding: Folding) => Telling,
  ) {
    this.key = key
    this.kind = kind
    this.code = code
    this.tell = tell
  }

  add({job, group, count, from, overAt, lateMs = 0}: Occurrence): void {
    this.latestMs = Math.max(this.latestMs, lateMs)
    this.since = Math.min(this.since, from)
    this.#newest = Math.max(this.#newest, from)
    this.plannedTimes += count
    if (job !== undefined) this.#jobs.add(job)
    if (group !== undefined) this.#groups.add(group)
    this.overAt = this.overAt === null || overAt === null ? null : Math.max(this.overAt, overAt)
  }

  /** A dependent that did not run. */
  addDependent(job: string): void {
    this.dependents += 1
    this.#jobs.add(job)
  }

  get isOver(): boolean {
    return this.overAt !== null
  }

  get jobs(): readonly string[] {
    return [...this.#jobs]
  }

  get launches(): readonly number[] {
    return [...this.#groups].toSorted((one, other) => other - one)
  }

  has(group: number): boolean {
    return this.#groups.has(group)
  }

  place({from, to}: Pick<ProblemFacts, 'from' | 'to'>): ProblemPlace {
    // A row that waits or runs may be gone at the next page.
    const newest = OF_NOW.has(this.kind) ? to : Math.max(from, this.#newest)
    return [this.isOver ? 1 : 0, this.kind === 'cluster' ? 0 : 1, -newest, this.key]
  }

  /** Makes the sentences, which takes longer than to add the rows. */
  problem(folding: Folding): Problem {
    const {key, kind, code, overAt, jobs, dependents} = this
    const {from} = folding.facts
    const {cause, sentence, advice, output = null} = this.tell(this, folding)
    return {
      key,
      kind,
      code,
      cause: dependents === 0 ? cause : {...cause, dependents},
      isOver: this.isOver,
      since: Number.isFinite(this.since) ? this.since : from,
      until: overAt !== null && Number.isFinite(overAt) ? overAt : null,
      jobs: jobs.slice(0, NAMES_MAX),
      jobsTotal: jobs.length,
      plannedTimes: this.plannedTimes,
      launches: this.launches.slice(0, LAUNCHES_MAX),
      sentence,
      advice,
      output,
    }
  }
}

/** The draft of this key, made if it is the first row. */
export function draftOf(
  {drafts}: Pick<Folding, 'drafts'>,
  identity: Pick<Problem, 'key' | 'kind' | 'code'>,
  tell: (draft: Draft, folding: Folding) => Telling,
): Draft {
  const known = drafts.get(identity.key)
  if (known !== undefined) return known
  const draft = new Draft(identity, tell)
  drafts.set(identity.key, draft)
  return draft
}

/** When the event ended, up to the end of the range; `null` = it had not. */
export function endedBy({to}: Pick<ProblemFacts, 'to'>, {until}: ClusterEvent): number | null {
  return until !== null && until <= to ? until : null
}
