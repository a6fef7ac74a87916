/**
 * Contents of one transaction: the writes of a batch in the order of their sort key, calls of one list method
 * merged into one query, and the locks taken first. Knows neither the connection nor its failures.
 */
import {withReceipt} from '../sql/jobs/idempotency.ts'
import {conflictFreeBatches} from '../../lib/conflict-free.ts'
import {type WriteName, WRITES} from '../sql/methods.ts'
import {type Query, send, type Transaction} from '../sql/query.ts'

export interface Write {
  readonly name: WriteName
  readonly input: readonly unknown[]
  /** Key of the receipt, for a method that has one. */
  readonly receipt?: string
}

/** Writes that one query carries out: a single one, or merged calls of one list method. */
export interface BatchEntry {
  readonly name: WriteName
  readonly writes: readonly Write[]
}

/** Items of merged lists in one transaction at most: rows locked by a finish stay locked until the commit. */
const MERGED_ITEMS_MAX = 1_000

/** How many of these writes, in order, share a transaction; at least one. */
export function sharedWrites(writes: readonly Write[]): number {
  let items = 0
  for (const [index, write] of writes.entries()) {
    const {isShared} = WRITES[write.name]
    items += itemCount(write)
    if (index > 0 && (!isShared || items > MERGED_ITEMS_MAX)) return index
    if (!isShared) return 1
  }
  return writes.length
}

/** How much of `MERGED_ITEMS_MAX` a write uses. */
function itemCount({name, input}: Write): number {
  return WRITES[name].isList ? listOf(input).length : 1
}

/** Sorted by the key of the method; calls of one method that have no conflict are merged. */
export function entriesOf(writes: readonly Write[]): BatchEntry[] {
  const entries: BatchEntry[] = []
  for (const write of sorted(writes)) {
    const last = entries.at(-1)
    if (last?.name === write.name && isMerged(write.name))
      entries[entries.length - 1] = {name: write.name, writes: [...last.writes, write]}
    else entries.push(singleEntry(write))
  }
  return entries.flatMap(({name, writes: merged}) =>
    conflictFreeBatches(merged, ({input}) => WRITES[name].conflictKeys(...input)).map((batch) => ({
      name,
      writes: batch,
    })),
  )
}

function isMerged(name: WriteName): boolean {
  return WRITES[name].isList || WRITES[name].merged !== undefined
}

export function singleEntry(write: Write): BatchEntry {
  return {name: write.name, writes: [write]}
}

function sorted(writes: readonly Write[]): readonly Write[] {
  const keyOf = ({name, input}: Write) => WRITES[name].sortKey(...input)
  return writes.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0))
}

export function queryOf(tx: Transaction, {name, writes}: BatchEntry): Query<unknown> {
  const method = WRITES[name]
  if (method.merged !== undefined)
    return method.merged(
      tx,
      writes.map(({input}) => input[0]),
    )
  const {input, receipt} = writes[0]!
  if (receipt !== undefined) return withReceipt(tx, receipt, () => method.query(tx, ...input))
  if (!method.isList) return method.query(tx, ...input)
  const items = writes.flatMap(({input}) => listOf(input))
  return method.query(tx, items)
}

/** The result of each write, in order, from the result of the entry's query. */
export function resultsOf({name, writes}: BatchEntry, result: unknown): unknown[] {
  if (WRITES[name].merged !== undefined) return [...listOf([result])]
  if (!WRITES[name].isList) return [result]
  const answers = listOf([result])
  let from = 0
  return writes.map(({input}) => {
    const {length} = listOf(input)
    from += length
    return answers.slice(from - length, from)
  })
}

/** Idempotent: repeating the entry changes nothing and answers the truth. */
export function isRepeatable({writes}: BatchEntry): boolean {
  return writes.every(({name, input}) => WRITES[name].isRepeatable(...input))
}

/** Locks taken before the first query of a transaction. All entries are of one queue. */
export function* locksFor(entries: readonly BatchEntry[]): Query<void> {
  const writes = entries.flatMap((entry) => entry.writes)
  const [first] = writes
  if (first === undefined) return
  const {queue, locksNames} = WRITES[first.name]
  if (queue === 'jobs') yield* lockDefinitions(writes)
  else if (locksNames) yield* lockNames()
}

/**
 * Locks over all servers, in the order that every transaction keeps: all definitions, idempotency keys,
 * launches, jobs.
 */
function* lockDefinitions(writes: readonly Write[]): Query<void> {
  const locks = new Set(writes.map(({name, input}) => WRITES[name].definitionLock(...input)))
  if (locks.has('exclusive')) yield* send(`SELECT pg_advisory_xact_lock(${DEFINITIONS})`)
  else if (locks.has('shared')) yield* send(`SELECT pg_advisory_xact_lock_shared(${DEFINITIONS})`)
  const keys = writes.flatMap(({name, input}) => WRITES[name].keyLock(...input) ?? [])
  if (keys.length > 0)
    yield* send(
      `SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' key ' || key, 0))
        FROM (SELECT key FROM jsonb_array_elements_text(?::jsonb) AS keys (key) ORDER BY key
          OFFSET 0) AS sorted`,
      [JSON.stringify(keys)],
    )
  const closing = writes.filter(({name}) => WRITES[name].closesLaunches)
  if (closing.length > 0)
    yield* send(
      `SELECT group_id FROM launches
        WHERE job_name = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb))) AND open = 1
        ORDER BY group_id FOR UPDATE`,
      [JSON.stringify(closing.flatMap(jobNames))],
    )
  yield* send(
    `SELECT id FROM jobs
      WHERE name = ANY (ARRAY(SELECT jsonb_array_elements_text(?::jsonb))) AND deleted_at IS NULL
      ORDER BY id FOR UPDATE`,
    [JSON.stringify([...new Set(writes.flatMap(jobNames))])],
  )
}

const DEFINITIONS = `hashtextextended(current_schema() || ' jobs', 0)`

/** Nodes that join under one name follow each other, even if no row has that name yet. */
function* lockNames(): Query<void> {
  yield* send(`SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' members', 0))`)
}

function jobNames({name, input}: Write): readonly string[] {
  return WRITES[name].jobNames(...input)
}

/** The only argument of a list method, and its result. */
function listOf([items]: readonly unknown[]): readonly unknown[] {
  return items as readonly unknown[]
}
