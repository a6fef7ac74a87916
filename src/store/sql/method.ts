/**
 * Entry of the table of store methods: the query, and what an engine must know to queue, merge, repeat and
 * lock it.
 */
import type {Slice} from '../../ports/page.ts'
import {PAGE_ROWS_MAX} from '../../wire/query.ts'
import type {Query, Transaction} from './query.ts'

/** Exceeds any healthy answer, and is short enough for a person and for a client's own timeout. */
export const DEADLINE_MS = 5_000
/** Lists without an end, or of more than a page: all jobs, or all executions of one. */
export const LONG_READ_MS = 30_000
/** Restoring a hundred thousand jobs, or copying a database. */
export const LONG_WRITE_MS = 600_000

export type QueryFunction<Input extends readonly unknown[], Result> = (
  tx: Transaction,
  ...input: Input
) => Query<Result>

export interface ReadMethod<Input extends readonly unknown[], Result> {
  readonly kind: 'read'
  readonly query: QueryFunction<Input, Result>
  /** Reads lists. On SQLite it yields to the event loop between pages. */
  readonly isLong: boolean
  /** Reads a list without an end. */
  readonly isUnbounded: (...input: Input) => boolean
  readonly reader: 'services' | 'nodes'
  /** Uses its `reader` also in the facade for clients. */
  readonly isOwn: boolean
  /** Deadline of a call by a client. */
  readonly deadlineMs: (...input: Input) => number
}

/**
 * Reader of the store. On PostgreSQL each has sessions of its own, so that none waits for the reads of
 * another: `services` of this server, among them the leader's; `nodes` and agents; `requests` of clients;
 * `lists` without an end, of clients.
 */
export type ReaderName = 'services' | 'nodes' | 'requests' | 'lists'

/**
 * Writes of one queue run one after another. Each queue has its own connection, so queues wait for each other
 * only for the same rows: a heartbeat never waits for a large launch or a join, and a lease renewal never
 * waits. SQLite has one connection that writes, and one queue; some writes overtake there.
 */
export type QueueName =
  | 'lease'
  | 'members'
  | 'joins'
  | 'jobs'
  | 'launch'
  | 'claim'
  | 'output'
  | 'finish'
  | 'upkeep'
  | 'other'

/**
 * Writes that overtake others on SQLite if more wait than one transaction takes: without them a node or a
 * leader fails, or work waits.
 */
export const URGENT_QUEUES: ReadonlySet<QueueName> = new Set([
  'lease',
  'members',
  'claim',
  'finish',
])

export interface WriteMethod<Input extends readonly unknown[], Result> {
  readonly kind: 'write'
  readonly query: QueryFunction<Input, Result>
  readonly queue: QueueName
  /** Shares a transaction with other writes of its queue. False: it has a transaction of its own. */
  readonly isShared: boolean
  /** The only argument is a list and the result has one entry an item: several calls are merged into one. */
  readonly isList: boolean
  /** Query for several calls, given their only arguments, with one result for each, in order. */
  merged?(tx: Transaction, inputs: readonly Input[0][]): Query<readonly Result[]>
  /** Keys that no two calls of one `merged` share; `null` = the call is alone. */
  readonly conflictKeys: (...input: Input) => readonly string[] | null
  /** Idempotent for this input: a commit with an unknown outcome is resolved by repeating the write. */
  readonly isRepeatable: (...input: Input) => boolean
  /**
   * Rare, and not idempotent: its result is stored with the change, so that a repetition answers it. Only
   * engines that repeat a commit with an unknown outcome store it.
   */
  readonly hasReceipt: boolean
  /**
   * A long write: its statements may take longer than those of others. The leader skips rows it locks;
   * finishes of its jobs are rejected and retried until it is done.
   */
  readonly isLong: boolean
  /** Computes for long between two statements. */
  readonly isIdleLong: boolean
  /** Names of the jobs it may change, locked before the first query of the transaction. */
  readonly jobNames: (...input: Input) => readonly string[]
  /**
   * Lock of the queue `jobs`. Whether a definition is valid may depend on other definitions (parents,
   * ephemeral, paused), and no row stands for that. `exclusive`: it may depend on others, or others on it.
   * `shared`: it changes a definition that is valid by itself. `none`: it changes no definition.
   */
  readonly definitionLock: (...input: Input) => 'exclusive' | 'shared' | 'none'
  /** The idempotency key, locked so that two requests with it follow each other; `null` = none. */
  readonly keyLock: (...input: Input) => string | null
  /** Changes open launches of these jobs: their rows are locked too, before those of the jobs. */
  readonly closesLaunches: boolean
  /** Takes a member's name: locked, so that two nodes with one name follow each other. */
  readonly locksNames: boolean
  /** Writes of one transaction run in the order of this key; equal keys in the order of the calls. */
  readonly sortKey: (...input: Input) => string
  /** Input that is safe to send to another thread. */
  readonly detach: (...input: Input) => Input
  /** Deadline of a call by a client: a later reply is not waited for. */
  readonly deadlineMs: number
  /** Returns `ClaimResult`s, to which the facade adds the values of the secrets that they name. */
  readonly namesSecrets: boolean
}

type WriteOptions<Input extends readonly unknown[], Result> = Pick<
  WriteMethod<Input, Result>,
  'queue'
> &
  Partial<Omit<WriteMethod<Input, Result>, 'kind' | 'query' | 'isList'>>

export function read<Input extends readonly unknown[], Result>(
  query: QueryFunction<Input, Result>,
): ReadMethod<Input, Result> {
  return {
    kind: 'read',
    query,
    isLong: false,
    isUnbounded: () => false,
    reader: 'services',
    isOwn: false,
    deadlineMs: () => DEADLINE_MS,
  }
}

/** A read that every node, or a server for each of its agents, makes again and again. */
export function nodeRead<Input extends readonly unknown[], Result>(
  query: QueryFunction<Input, Result>,
): ReadMethod<Input, Result> {
  return {...read(query), reader: 'nodes'}
}

/** A read that serves all requests: those of single clients never delay it. */
export function ownRead<Input extends readonly unknown[], Result>(
  query: QueryFunction<Input, Result>,
): ReadMethod<Input, Result> {
  return {...read(query), isOwn: true}
}

/** A list. A slice of more than a page takes as long as there are rows. */
export function longRead<Input extends readonly unknown[], Result>(
  query: QueryFunction<Input, Result>,
  sliceOf: (...input: Input) => Slice,
): ReadMethod<Input, Result> {
  const deadlineMs = (...input: Input) => {
    const {start, end} = sliceOf(...input)
    return end === null || end - start > PAGE_ROWS_MAX ? LONG_READ_MS : DEADLINE_MS
  }
  const isUnbounded = (...input: Input) => sliceOf(...input).end === null
  return {...read(query), isLong: true, isUnbounded, deadlineMs}
}

export function write<Input extends readonly unknown[], Result>(
  query: QueryFunction<Input, Result>,
  options: WriteOptions<Input, Result>,
): WriteMethod<Input, Result> {
  return {
    kind: 'write',
    query,
    isShared: false,
    isList: false,
    conflictKeys: () => [],
    definitionLock: () => 'exclusive',
    keyLock: () => null,
    isRepeatable: () => true,
    hasReceipt: false,
    isLong: false,
    isIdleLong: false,
    jobNames: () => [],
    closesLaunches: false,
    locksNames: false,
    sortKey: () => '',
    detach: (...input) => input,
    deadlineMs: DEADLINE_MS,
    namesSecrets: false,
    ...options,
  }
}

/** A write whose query takes the only arguments of several calls, and returns a result for each, in order. */
export function mergedWrite<Item, Result>(
  query: QueryFunction<[items: readonly Item[]], readonly Result[]>,
  options: WriteOptions<[item: Item], Result>,
): WriteMethod<[item: Item], Result> {
  const single = function* (tx: Transaction, item: Item): Query<Result> {
    const [result] = yield* query(tx, [item])
    return result!
  }
  return write(single, {...options, merged: query})
}

export function listWrite<Item, Answer>(
  query: QueryFunction<[items: readonly Item[]], readonly Answer[]>,
  {
    queue,
    sortKey,
    detach,
    namesSecrets = false,
  }: {
    readonly queue: QueueName
    /**
     * Batches are ordered by the key of their first item: lists of several nodes come from one place only.
     */
    readonly sortKey?: (first: Item) => string
    readonly detach?: (item: Item) => Item
    readonly namesSecrets?: boolean
  },
): WriteMethod<[items: readonly Item[]], readonly Answer[]> {
  const plain = write(query, {queue, isShared: true, namesSecrets})
  return {
    ...plain,
    isList: true,
    ...(sortKey === undefined
      ? {}
      : {sortKey: ([first]) => (first === undefined ? '' : sortKey(first))}),
    ...(detach === undefined ? {} : {detach: (items) => [items.map(detach)]}),
  }
}
