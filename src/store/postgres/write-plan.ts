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
import {type WriteName, writeQuery} from '../sql/methods.ts'
import {all, type Query, type Transaction} from '../sql/query.ts'

export type QueueName =
  'lease' | 'members' | 'jobs' | 'launch' | 'claim' | 'output' | 'finish' | 'upkeep' | 'other'

type Input = readonly unknown[]

export interface WritePlan {
  readonly queue: QueueName
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

function plan(queue: QueueName, isRepeatable: WritePlan['isRepeatable'] = always): WritePlan {
  return {queue, isShared: false, isRepeatable, isLong: false, merge: null}
}

function long(queue: QueueName, isRepeatable: WritePlan['isRepeatable']): WritePlan {
  return {...plan(queue, isRepeatable), isLong: true}
}

function shared(queue: QueueName, isRepeatable: WritePlan['isRepeatable'] = always): WritePlan {
  return {...plan(queue, isRepeatable), isShared: true}
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
  applyReassignments: plan('upkeep'),
  endStuck: plan('upkeep'),
  rescue: plan('upkeep'),
  releaseClaims: plan('upkeep'),
  pruneMembers: plan('upkeep'),
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
): Query<void> {
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
export function* lockNames(): Query<void> {
  yield* all(`SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' members', 0))`)
}

/*
 * What goes into one transaction: writes in the order their plan asks for, those that can be joined as one
 * step. Knows neither the connection nor what may go wrong.
 */

export interface Write {
  readonly name: WriteName
  readonly input: readonly unknown[]
}

/** Writes that are one step: one, or several that were joined. */
export interface BatchEntry {
  readonly name: WriteName
  readonly writes: readonly Write[]
}

export function alone(write: Write): BatchEntry {
  return {name: write.name, writes: [write]}
}

/** In the order their plan asks for, those that can be joined as one. */
export function joined(writes: readonly Write[]): BatchEntry[] {
  const units: BatchEntry[] = []
  for (const write of sorted(writes)) {
    const last = units.at(-1)
    if (last?.name === write.name && WRITE_PLANS[write.name].merge !== null)
      units[units.length - 1] = {name: write.name, writes: [...last.writes, write]}
    else units.push(alone(write))
  }
  return units
}

function sorted(writes: readonly Write[]): readonly Write[] {
  const keyOf = ({name, input}: Write) => WRITE_PLANS[name].sortKey?.(input) ?? ''
  return writes.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0))
}

/** What carries the unit out. */
export function queryOf(tx: Transaction, {name, writes}: BatchEntry): Query<unknown> {
  const inputs = writes.map(({input}) => input)
  const {merge} = WRITE_PLANS[name]
  return writeQuery(name)(tx, ...(merge === null ? inputs[0]! : merge.join(inputs)))
}

/** The answer of each of the unit's writes, out of what its step answered. */
export function resultsOf({name, writes}: BatchEntry, result: unknown): unknown[] {
  const {merge} = WRITE_PLANS[name]
  const inputs = writes.map(({input}) => input)
  return merge === null ? [result] : merge.split(inputs, result)
}

/** Locks taken before the first step of a transaction. All units are of one lane. */
export function* locksFor(units: readonly BatchEntry[]): Query<void> {
  const writes = units.flatMap((unit) => unit.writes)
  const [first] = writes
  if (first === undefined) return
  if (WRITE_PLANS[first.name].queue === 'jobs') yield* lockDefinitions(writes)
  else if (first.name === 'join') yield* lockNames()
}

/** Doing it again changes nothing and answers the truth. */
export function isRepeatable({writes}: BatchEntry): boolean {
  return writes.every(({name, input}) => WRITE_PLANS[name].isRepeatable(input))
}
