/**
 * How each write is carried out: beside which others, on whose connection, in which order it takes its
 * locks, and whether it may be done again when nobody knows if it was. One table, so that a new write is one
 * line here.
 *
 * Writes of one lane follow each other; lanes wait for each other only where they want the same rows, each
 * having a connection: a heartbeat never stands behind a large launch, and a renewal of the lease behind
 * nothing at all.
 */
import type {Idempotency, RestoreEntry, SubmitRequest} from '../../ports/job-store.ts'
import {all, type Step} from '../sql/query.ts'
import type {WriteName} from '../sql/writes.ts'

export type LaneName =
  'lease' | 'members' | 'jobs' | 'launch' | 'claim' | 'output' | 'finish' | 'upkeep' | 'other'

type Input = readonly unknown[]

export interface WritePlan {
  readonly lane: LaneName
  /** Goes into one transaction with others that came meanwhile; else it has one of its own. */
  readonly isShared: boolean
  /**
   * Doing it again changes nothing and answers the truth, so a commit nobody knows the outcome of is
   * answered by doing it again.
   */
  isRepeatable(input: Input): boolean
  /**
   * Its statements may take longer than others'. What it locks the leader passes over, and ends of the jobs
   * are refused and offered again until it is done.
   */
  readonly isLong: boolean
  /** Writes of one transaction are done in this order; by default in the order they came. */
  sortKey?(input: Input): string
  /** Several writes of this kind are one; `null` = they are not. */
  readonly merge: Merge | null
}

/** Joins inputs into one, and cuts the answer up again. */
export interface Merge {
  join(inputs: readonly Input[]): Input
  split(inputs: readonly Input[], result: unknown): unknown[]
}

const always = () => true
const never = () => false

function plan(lane: LaneName, isRepeatable: WritePlan['isRepeatable'] = always): WritePlan {
  return {lane, isShared: false, isRepeatable, isLong: false, merge: null}
}

function long(lane: LaneName, isRepeatable: WritePlan['isRepeatable']): WritePlan {
  return {...plan(lane, isRepeatable), isLong: true}
}

function shared(lane: LaneName, isRepeatable: WritePlan['isRepeatable'] = always): WritePlan {
  return {...plan(lane, isRepeatable), isShared: true}
}

/** A request with a key finds the answer of its first time. */
function hasKey([request]: Input): boolean {
  return (request as {readonly idempotency: Idempotency | null}).idempotency !== null
}

/** Of a list about one node. */
function nodeOf([items]: Input): string {
  return (items as readonly {readonly nodeId: string}[])[0]!.nodeId
}

/** Lists that are worked through item by item, one answer each: several calls are one longer one. */
const lists: Merge = {
  join: (inputs) => [inputs.flatMap(([items]) => items as readonly unknown[])],
  split: (inputs, result) => {
    const answers = result as readonly unknown[]
    let from = 0
    return inputs.map(([items]) => {
      const {length} = items as readonly unknown[]
      from += length
      return answers.slice(from - length, from)
    })
  },
} satisfies Merge

export const WRITE_PLANS: Readonly<Record<WriteName, WritePlan>> = {
  acquireLease: plan('lease'),
  renewLease: plan('lease'),
  resignLease: plan('lease'),
  vacateLease: plan('lease'),

  beat: {...shared('members'), merge: lists, sortKey: nodeOf},
  join: plan('members'),
  failMember: plan('members'),

  submit: shared('jobs', hasKey),
  requestRun: shared('jobs', hasKey),
  toggle: shared('jobs', never),
  setPaused: plan('jobs'),
  restore: long('jobs', never),
  deleteJob: long('jobs', never),
  resetHistory: long('jobs', never),

  applyLaunches: plan('launch'),
  applyMoves: plan('upkeep'),
  endStrays: plan('upkeep'),
  rescue: plan('upkeep'),
  giveBack: plan('upkeep'),
  forgetMembers: plan('upkeep'),
  // Repeated, it would say that there is no such member.
  removeMember: plan('upkeep', never),
  prune: plan('upkeep'),

  // In the order of nodes, so that two servers that serve the same ones never wait in a circle.
  claim: {...shared('claim'), merge: lists, sortKey: nodeOf},
  appendOutput: {...shared('output'), merge: lists},
  finish: {...shared('finish'), merge: lists},

  cancelExecution: plan('other'),
  putPolicy: plan('other'),
  deletePolicy: plan('other', never),
  establish: plan('other'),
  agreeTimezone: plan('other'),
  probe: plan('other'),
}

/** Items of merged lists in one transaction at most: what an end locks it holds until the commit. */
export const MERGED_ITEMS_MAX = 1_000

export function itemsOf(name: WriteName, [items]: Input): number {
  if (WRITE_PLANS[name].merge === null) return 1
  return (items as readonly unknown[]).length
}

/**
 * Taken before anything else of a transaction that changes definitions. They follow each other over all
 * servers: what a definition may be depends on the definitions of others (parents, ephemeral, paused), and
 * no row stands for that. Then the rows in the order everybody takes them: launches, jobs.
 */
export function* lockDefinitions(
  writes: readonly {readonly name: WriteName; readonly input: Input}[],
): Step<void> {
  yield* all(`SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' jobs', 0))`)
  const names = JSON.stringify([...new Set(writes.flatMap(namesOf))])
  const ending = writes.filter(({name}) => name === 'deleteJob' || name === 'resetHistory')
  if (ending.length > 0)
    yield* all(
      `SELECT group_id FROM launches
        WHERE job_name = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb))) AND open = 1
        ORDER BY group_id FOR UPDATE`,
      [JSON.stringify(ending.flatMap(namesOf))],
    )
  yield* all(
    `SELECT id FROM jobs
      WHERE name = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb))) AND deleted_at IS NULL
      ORDER BY id FOR UPDATE`,
    [names],
  )
}

/** The jobs a write of the lane is about. */
function namesOf({name, input: [first]}: {name: WriteName; input: Input}): string[] {
  if (name === 'submit') return [(first as SubmitRequest).spec.name]
  if (name === 'requestRun') return [(first as {readonly name: string}).name]
  if (name === 'restore') return (first as readonly RestoreEntry[]).map(({spec}) => spec.name)
  return typeof first === 'string' ? [first] : []
}

/** Two nodes that want one name follow each other, whether or not there is a row of that name yet. */
export function* lockNames(): Step<void> {
  yield* all(`SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' members', 0))`)
}
