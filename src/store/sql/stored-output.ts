/**
 * Kept output: contiguous chunks at absolute positions, always the tail of what a command wrote. Repeating
 * an append changes nothing; a skipped stretch makes everything before it worthless, so it is dropped.
 */
import type {ExecutionKey} from '../../core/execution.ts'
import {all, each, oneEach, type Step, type Value, type Values} from './query.ts'
import {BY_KEY, keyText, keyValues} from './rows.ts'
import type {Transaction} from './transaction.ts'

/**
 * A last chunk smaller than this is joined with what follows: a chatty command must not become thousands of
 * rows.
 */
const CHUNK_JOINED_BYTES = 16 * 1024

export interface Stretch {
  readonly key: ExecutionKey
  /** How many bytes were written before, as the execution's row says. */
  readonly knownBytes: number
  readonly offset: number
  readonly bytes: Uint8Array
}

export interface ChunkRow {
  readonly at_byte: number
  readonly bytes: Uint8Array
}

const LAST_SMALL_CHUNK = `SELECT at_byte, bytes FROM output
  WHERE ${BY_KEY} AND length(bytes) < ${CHUNK_JOINED_BYTES} AND at_byte + length(bytes) = ?`
const PUT_CHUNK = `INSERT INTO output (group_id, node_name, attempt, at_byte, bytes)
  VALUES (?, ?, ?, ?, ?)
  ON CONFLICT (group_id, node_name, attempt, at_byte) DO UPDATE SET bytes = excluded.bytes`
const DROP_BEFORE = `DELETE FROM output WHERE ${BY_KEY} AND at_byte + length(bytes) <= ?
  RETURNING length(bytes) AS size`

/**
 * Adds a stretch to each of several executions (at most one each). Answers how many bytes each has written
 * now; the caller stores that with the execution.
 */
export function* extendOutput(tx: Transaction, stretches: readonly Stretch[]): Step<number[]> {
  const fresh = stretches.map(unknownPart)
  const growing = fresh.filter(({bytes}) => bytes.length > 0)
  const following = growing.filter(({offset, knownBytes}) => offset === knownBytes && offset > 0)
  const lasts = yield* oneEach<ChunkRow>(
    LAST_SMALL_CHUNK,
    following.map(({key, offset}) => [...keyValues(key), offset]),
  )
  const lastByKey = new Map(following.map(({key}, index) => [keyText(key), lasts[index] ?? null]))
  const puts: Values[] = []
  const drops: Value[][] = []
  let grownBytes = 0
  for (const {key, knownBytes, offset, bytes} of growing) {
    const last = lastByKey.get(keyText(key)) ?? null
    puts.push([...keyValues(key), last?.at_byte ?? offset, joined(last, bytes)])
    grownBytes += bytes.length
    const oldest = offset + bytes.length - tx.limits.outputKeptBytes
    const from = offset > knownBytes ? offset : oldest
    if (from > 0 && knownBytes > 0) drops.push([...keyValues(key), from])
  }
  yield* each(PUT_CHUNK, puts)
  const dropped = yield* each<{size: number}>(DROP_BEFORE, drops)
  yield* noteSize(grownBytes - sizeOf(dropped))
  return fresh.map(({knownBytes, offset, bytes}) =>
    bytes.length === 0 ? knownBytes : offset + bytes.length,
  )
}

/** Without what is stored already. */
function unknownPart(stretch: Stretch): Stretch {
  const {knownBytes, offset, bytes} = stretch
  if (offset >= knownBytes) return stretch
  return {...stretch, offset: knownBytes, bytes: bytes.subarray(knownBytes - offset)}
}

function joined(last: ChunkRow | null, bytes: Uint8Array): Uint8Array {
  if (last === null) return bytes
  const whole = new Uint8Array(last.bytes.length + bytes.length)
  whole.set(last.bytes)
  whole.set(bytes, last.bytes.length)
  return whole
}

function sizeOf(answers: readonly (readonly {size: number}[])[]): number {
  let total = 0
  for (const rows of answers) for (const {size} of rows) total += size
  return total
}

/** The size of all kept output is a sum of these rows: adding one never waits for another transaction. */
function* noteSize(bytes: number): Step<void> {
  if (bytes !== 0) yield* all(`INSERT INTO output_sizes (bytes) VALUES (?)`, [bytes])
}

/** Deletes all kept output of the executions; answers how many bytes that was. */
export function* dropOutput(keys: readonly ExecutionKey[]): Step<number> {
  const dropped = yield* each<{size: number}>(
    `DELETE FROM output WHERE ${BY_KEY} RETURNING length(bytes) AS size`,
    keys.map(keyValues),
  )
  const bytes = sizeOf(dropped)
  yield* noteSize(-bytes)
  return bytes
}

/** Deletes all kept output of whole launches; answers how many bytes that was. */
export function* dropOutputOfLaunches(groups: readonly number[]): Step<number> {
  const dropped = yield* each<{size: number}>(
    `DELETE FROM output WHERE group_id = ? RETURNING length(bytes) AS size`,
    groups.map((group) => [group]),
  )
  const bytes = sizeOf(dropped)
  yield* noteSize(-bytes)
  return bytes
}

/** Bytes of output kept in all; folds the notes into one row. */
export function* totalOutputBytes(_tx: Transaction): Step<number> {
  const rows = yield* all<{bytes: number}>(`DELETE FROM output_sizes RETURNING bytes`)
  const total = rows.reduce((sum, {bytes}) => sum + bytes, 0)
  yield* noteSize(total)
  return total
}

/** Of each execution the chunks that hold bytes from position `from` on, in order. */
export function* chunksFrom(
  wanted: readonly {readonly key: ExecutionKey; readonly from: number}[],
): Step<ChunkRow[][]> {
  return yield* each<ChunkRow>(
    `SELECT at_byte, bytes FROM output WHERE ${BY_KEY} AND at_byte + length(bytes) > ?
      ORDER BY at_byte`,
    wanted.map(({key, from}) => [...keyValues(key), from]),
  )
}
