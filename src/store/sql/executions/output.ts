/**
 * Command output: appending while a command runs, reading the kept part, deleting. Kept output is a list of
 * contiguous chunks at absolute byte positions, always the tail of the command's output. Appending is
 * idempotent. A gap makes the older chunks useless, so they are deleted. The start of an output that is
 * longer than the tail is kept too: one chunk that ends at position 0. So it is never part of the tail, also
 * for servers of the previous release, which neither read nor write it.
 */
import {
  type ExecutionKey,
  type ExecutionRecord,
  OUTPUT_START_BYTES,
} from '../../../core/execution.ts'
import {unfinishedBytes} from '../../../wire/output.ts'
import {conflictFreeBatches} from '../../../lib/conflict-free.ts'
import type {ExecutionView} from '../../../ports/history-store.ts'
import type {OutputAppend} from '../../../ports/node-store.ts'
import {
  all,
  yieldToEventLoop,
  each,
  oneEach,
  type Query,
  send,
  sendEach,
  type Transaction,
  type Values,
} from '../query.ts'
import {BY_KEY, keyText, keyValues} from '../rows.ts'

/**
 * Appends in order; several items may belong to one execution. `false` = the execution is not running under
 * the item's token.
 */
export function* appendOutput(
  tx: Transaction,
  items: readonly OutputAppend[],
): Query<readonly boolean[]> {
  const rows = yield* lockRunning(tx, items)
  const known = new Map<string, number>()
  rows.forEach((row, i) => row !== null && known.set(keyText(items[i]!.key), row.output_bytes))
  const running = items.filter((_item, index) => rows[index] !== null)
  for (const batch of conflictFreeBatches(running, ({key}) => [keyText(key)])) {
    const ranges = batch.map((item) => {
      return {...item, knownBytes: known.get(keyText(item.key))!}
    })
    const ends = yield* extendOutput(tx, ranges)
    batch.forEach(({key}, index) => known.set(keyText(key), ends[index]!))
  }
  const changed = new Map<string, [number, ...ReturnType<typeof keyValues>]>()
  items.forEach(({key}, index) => {
    const end = known.get(keyText(key))
    if (end === undefined || end === rows[index]?.output_bytes) return
    changed.set(keyText(key), [end, ...keyValues(key)])
  })
  yield* sendEach(`UPDATE executions SET output_bytes = ? WHERE ${BY_KEY}`, [...changed.values()])
  return rows.map((row) => row !== null)
}

/** The row of each item's execution if it runs under the item's token. Locks in one order (no deadlocks). */
function* lockRunning(
  tx: Transaction,
  items: readonly OutputAppend[],
): Query<({output_bytes: number} | null)[]> {
  const order = items
    .map(({key}, index) => ({key, index}))
    .toSorted((a, b) => compareKeys(a.key, b.key))
  const found = yield* oneEach<{output_bytes: number}>(
    `SELECT output_bytes FROM executions
      WHERE ${BY_KEY} AND status = 'running' AND claim_token = ?
      AND EXISTS (SELECT 1 FROM jobs j WHERE j.id = executions.job_id AND j.deleted_at IS NULL)
      ${tx.dialect.forUpdate}`,
    order.map(({index}) => [...keyValues(items[index]!.key), items[index]!.token]),
  )
  const rows: ({output_bytes: number} | null)[] = items.map(() => null)
  order.forEach(({index}, place) => (rows[index] = found[place] ?? null))
  return rows
}

/** The order in which all transactions lock executions. */
function compareKeys(a: ExecutionKey, b: ExecutionKey): number {
  if (a.group !== b.group) return a.group - b.group
  if (a.node !== b.node) return a.node < b.node ? -1 : 1
  return a.attempt - b.attempt
}

/**
 * A last chunk smaller than this is joined with the next bytes: small writes must not become many rows. So
 * the first chunk holds the whole start of an output that has more.
 */
const CHUNK_JOINED_BYTES = OUTPUT_START_BYTES

export interface OutputRange {
  readonly key: ExecutionKey
  /** Bytes written before, as stored in the execution's row. */
  readonly knownBytes: number
  readonly offset: number
  readonly bytes: Uint8Array
  /** First bytes of the output, if `offset` leaves a gap. */
  readonly start?: Uint8Array
}

const LAST_SMALL_CHUNK = `SELECT at_byte, bytes FROM output
  WHERE ${BY_KEY} AND length(bytes) < ${CHUNK_JOINED_BYTES} AND at_byte + length(bytes) = ?`
const PUT_CHUNK = `INSERT INTO output (group_id, node_name, attempt, at_byte, bytes)
  VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (group_id, node_name, attempt, at_byte) DO UPDATE SET bytes = excluded.bytes`
const PUT_START = `INSERT INTO output (group_id, node_name, attempt, at_byte, bytes)
  VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (group_id, node_name, attempt, at_byte) DO NOTHING RETURNING length(bytes) AS size`
const DROP_BEFORE = `DELETE FROM output
  WHERE ${BY_KEY} AND at_byte >= 0 AND at_byte + length(bytes) <= ?
  RETURNING length(bytes) AS size, CASE WHEN at_byte = 0 THEN bytes END AS start`

/**
 * Appends one range to each of several executions. Returns the bytes each has written in all; the caller
 * stores that number with the execution.
 */
export function* extendOutput(tx: Transaction, ranges: readonly OutputRange[]): Query<number[]> {
  const fresh = ranges.map(unknownPart)
  const growing = fresh.filter(({bytes}) => bytes.length > 0)
  const following = growing.filter(({offset, knownBytes}) => offset === knownBytes && offset > 0)
  const lasts = yield* oneEach<ChunkRow>(
    LAST_SMALL_CHUNK,
    following.map(({key, offset}) => [...keyValues(key), offset]),
  )
  const lastByKey = new Map(following.map(({key}, index) => [keyText(key), lasts[index] ?? null]))
  const puts: Values[] = []
  const drops: {key: ExecutionKey; start: Uint8Array | undefined; from: number}[] = []
  const starts: Values[] = []
  let grownBytes = 0
  for (const {key, knownBytes, offset, bytes, start} of growing) {
    const last = lastByKey.get(keyText(key)) ?? null
    puts.push([...keyValues(key), last?.at_byte ?? offset, joined(last, bytes)])
    grownBytes += bytes.length
    const oldest = offset + bytes.length - tx.limits.outputTailBytes
    const from = offset > knownBytes ? offset : oldest
    if (start !== undefined) starts.push(startValues(key, start))
    if (from > 0 && knownBytes > 0) drops.push({key, start, from})
  }
  yield* sendEach(PUT_CHUNK, puts)
  const dropped = yield* each<{size: number; start: Uint8Array | null}>(
    DROP_BEFORE,
    drops.map(({key, from}) => [...keyValues(key), from]),
  )
  drops.forEach(({key, start: sent}, index) => {
    const stored = dropped[index]?.find(({start}) => start !== null)?.start ?? null
    if (sent === undefined && stored !== null) starts.push(startValues(key, stored))
  })
  const kept = yield* each<{size: number}>(PUT_START, starts)
  yield* noteSize(grownBytes + sizeOf(kept) - sizeOf(dropped))
  return fresh.map(({knownBytes, offset, bytes}) =>
    bytes.length === 0 ? knownBytes : offset + bytes.length,
  )
}

/** The chunk of an output's start. */
function startValues(key: ExecutionKey, bytes: Uint8Array): Values {
  const start = startOf(bytes)
  return [...keyValues(key), -start.length, start]
}

/** First bytes of an output, cut to whole characters: a reader may stop there. */
function startOf(bytes: Uint8Array): Uint8Array {
  const limited = bytes.subarray(0, OUTPUT_START_BYTES)
  return limited.subarray(0, limited.length - unfinishedBytes(limited))
}

/** The range without the bytes that are stored already. */
function unknownPart(range: OutputRange): OutputRange {
  const {knownBytes, offset, bytes} = range
  if (offset >= knownBytes) return range
  return {...range, offset: knownBytes, bytes: bytes.subarray(knownBytes - offset)}
}

function joined(last: ChunkRow | null, bytes: Uint8Array): Uint8Array {
  if (last === null) return bytes
  const whole = new Uint8Array(last.bytes.length + bytes.length)
  whole.set(last.bytes)
  whole.set(bytes, last.bytes.length)
  return whole
}

export interface KeptBytes {
  /** Absolute position of the first byte. */
  readonly offset: number
  readonly bytes: Uint8Array
}

/** Kept bytes from position `from` on, at most `limit`; later bytes if those were deleted. */
export function* readOutput(key: ExecutionKey, from: number, limit: number): Query<KeptBytes> {
  const [chunks = []] = yield* chunksFrom([{key, from}], from < OUTPUT_START_BYTES)
  const {start, tail} = partsOf(chunks)
  const startEnd = Math.min(start.length, from + limit, tail[0]?.at_byte ?? Infinity)
  if (from < startEnd) return {offset: from, bytes: start.subarray(from, startEnd)}
  return keptIn(tail, from, limit)
}

/** The start is stored before position 0, or is in the first chunk of the tail while that one is kept. */
function partsOf(chunks: readonly ChunkRow[]): {start: Uint8Array; tail: readonly ChunkRow[]} {
  const [first] = chunks
  if (first === undefined || first.at_byte > 0) return {start: NO_BYTES, tail: chunks}
  if (first.at_byte === 0) return {start: startOf(first.bytes), tail: chunks}
  return {start: first.bytes, tail: chunks.slice(1)}
}

/** Limits for one read statement: executions, and approximate bytes of output. */
const READ_ROWS_MAX = 500
const READ_BYTES_MAX = 8 * 2 ** 20

const NO_BYTES = new Uint8Array(0)

/**
 * Adds the last `outputBytes` bytes of kept output to each execution, and the start of the output if all is
 * read `whole`.
 */
export function* withOutput(
  tx: Transaction,
  executions: readonly ExecutionRecord[],
  outputBytes: number,
  whole = false,
): Query<ExecutionView[]> {
  const wanted = Math.min(outputBytes, tx.limits.outputTailBytes)
  const rowsMax = Math.max(1, Math.min(READ_ROWS_MAX, Math.floor(READ_BYTES_MAX / (wanted + 1))))
  const views: ExecutionView[] = []
  for (let at = 0; at < executions.length; at += rowsMax) {
    const piece = executions.slice(at, at + rowsMax)
    const ends = piece
      .filter((execution) => wanted > 0 && execution.outputBytes > 0)
      .map((key) => ({key, from: Math.max(0, key.outputBytes - wanted)}))
    const found = yield* chunksFrom(ends, whole)
    const kept = new Map(
      ends.map(({key, from}, index) => {
        const {start, tail} = partsOf(found[index] ?? [])
        return [key, {...keptIn(tail, from, wanted), start: whole ? start : NO_BYTES}]
      }),
    )
    for (const execution of piece) views.push(viewOf(execution, kept.get(execution) ?? null, whole))
    yield* yieldToEventLoop()
  }
  return views
}

function viewOf(
  execution: ExecutionRecord,
  kept: (KeptBytes & {readonly start: Uint8Array}) | null,
  whole: boolean,
): ExecutionView {
  const written = execution.outputBytes
  if (kept === null) return {...execution, output: NO_BYTES, outputTruncated: written > 0}
  const {offset, start, bytes} = kept
  if (start.length >= offset) {
    const output = offset === 0 ? bytes : Buffer.concat([start.subarray(0, offset), bytes])
    return {...execution, output, outputTruncated: output.length < written}
  }
  const view = {...execution, output: fromCharacter(bytes), outputTruncated: true}
  return whole ? {...view, outputStart: start} : view
}

/** UTF-8 has at most three continuation bytes a character; a longer run is not UTF-8 and is not cut. */
const CONTINUATIONS_MAX = 3

/** Removes the rest of a character whose first byte was cut off. */
function fromCharacter(bytes: Uint8Array): Uint8Array {
  let start = 0
  while (start < CONTINUATIONS_MAX && (bytes[start] ?? 0) >> 6 === 0b10) start += 1
  return bytes.subarray(start)
}

interface ChunkRow {
  readonly at_byte: number
  readonly bytes: Uint8Array
}

function keptIn(chunks: readonly ChunkRow[], from: number, limit: number): KeptBytes {
  const first = chunks[0]
  if (first === undefined) return {offset: from, bytes: new Uint8Array(0)}
  const offset = Math.max(from, first.at_byte)
  const last = chunks.at(-1)!
  const end = Math.min(offset + limit, last.at_byte + last.bytes.length)
  const bytes = new Uint8Array(end - offset)
  for (const chunk of chunks) {
    const start = Math.max(offset, chunk.at_byte)
    const stop = Math.min(end, chunk.at_byte + chunk.bytes.length)
    if (start < stop)
      bytes.set(chunk.bytes.subarray(start - chunk.at_byte, stop - chunk.at_byte), start - offset)
  }
  return {offset, bytes}
}

/** Chunks of each execution with bytes from position `from` on, in order. The start comes first. */
function* chunksFrom(
  wanted: readonly {readonly key: ExecutionKey; readonly from: number}[],
  withStart: boolean,
): Query<ChunkRow[][]> {
  const orStart = withStart ? 'OR at_byte <= 0' : ''
  return yield* each<ChunkRow>(
    `SELECT at_byte, bytes FROM output
      WHERE ${BY_KEY} AND (at_byte + length(bytes) > ? ${orStart})
      ORDER BY at_byte`,
    wanted.map(({key, from}) => [...keyValues(key), from]),
  )
}

/** Deletes all kept output of the executions; returns the number of bytes. */
export function* dropOutput(keys: readonly ExecutionKey[]): Query<number> {
  const dropped = yield* each<{size: number}>(
    `DELETE FROM output WHERE ${BY_KEY} RETURNING length(bytes) AS size`,
    keys.map(keyValues),
  )
  const bytes = sizeOf(dropped)
  yield* noteSize(-bytes)
  return bytes
}

/** Deletes all kept output of the launches; returns the number of bytes. */
export function* dropOutputOfLaunches(groups: readonly number[]): Query<number> {
  const dropped = yield* each<{size: number}>(
    `DELETE FROM output WHERE group_id = ? RETURNING length(bytes) AS size`,
    groups.map((group) => [group]),
  )
  const bytes = sizeOf(dropped)
  yield* noteSize(-bytes)
  return bytes
}

/** Total bytes of kept output. Merges the rows of `output_sizes` into one. */
export function* totalOutputBytes(_tx: Transaction): Query<number> {
  const rows = yield* all<{bytes: number}>(`DELETE FROM output_sizes RETURNING bytes`)
  const total = rows.reduce((sum, {bytes}) => sum + bytes, 0)
  yield* noteSize(total)
  return total
}

/** Inserts a row instead of updating a total: no transaction waits for another one. */
function* noteSize(bytes: number): Query<void> {
  if (bytes !== 0) yield* send(`INSERT INTO output_sizes (bytes) VALUES (?)`, [bytes])
}

function sizeOf(answers: readonly (readonly {size: number}[])[]): number {
  let total = 0
  for (const rows of answers) for (const {size} of rows) total += size
  return total
}
