/**
 * What the node and its process helper say to each other, and how it is framed. One frame is a length, a
 * kind, the number of the execution it speaks of, and a payload: JSON for control, the bytes themselves for
 * output, so output is never encoded. Stands apart because both processes import it; it never touches a
 * process, a file or a clock.
 *
 *   u32 payload length | u8 kind | u32 execution number | payload
 */
import {assert} from '../../lib/assert.ts'

export const HEADER_BYTES = 9

/**
 * No frame is larger: a start request is at most a job's maps (64 entries of 64 KiB) after base64, output
 * comes in 64 KiB.
 */
const PAYLOAD_BYTES_MAX = 16 * 1024 * 1024

/**
 * How many bytes of one execution may be under way between the pipe and the sink. Smaller costs round
 * trips, larger costs memory for each of hundreds of executions whose sink is slow.
 */
export const OUTPUT_WINDOW_BYTES = 128 * 1024

/** Credit is returned in lumps of at least this, so that short outputs cost no frame at all. */
export const CREDIT_LUMP_BYTES = 32 * 1024

export const FRAME = {
  /** node → helper: `HelperSetup`, the first frame. */
  setup: 1,
  /** node → helper: `StartRequest`. */
  start: 2,
  /** node → helper: u32, bytes the sink has taken. */
  credit: 3,
  /** node → helper: TERM, then KILL. */
  cancel: 4,
  /** node → helper: KILL. */
  kill: 5,
  /** node → helper: end everything, then exit. */
  stop: 6,
  /** helper → node: `HelperReady`. */
  ready: 10,
  /** helper → node: raw output. */
  output: 11,
  /** helper → node: `CommandEnd`; nothing of this execution follows. */
  ended: 12,
} as const

export type SpawnChoice = 'auto' | 'portable' | 'posix'

export interface HelperSetup {
  /** Directory of the journal and the pipes, `<data>/executions`. Absolute. */
  readonly directory: string
  readonly nodeId: string
  /** What every command sees, before its own additions. */
  readonly environment: Readonly<Record<string, string>>
  readonly spawn: SpawnChoice
  readonly killAfterMs: number
  readonly drainMs: number
  readonly memorySampleMs: number
}

export interface HelperReady {
  /** How commands are started, after `auto` was decided. */
  readonly spawn: 'portable' | 'posix'
  /** Why `posix` was not possible; `''` when it was, or was not asked for. */
  readonly why: string
}

/** One command. `argv[0]` is looked up in the `PATH` of `environment`. */
export interface StartRequest {
  readonly executionId: string
  readonly argv: readonly string[]
  /** Added to the setup's environment. */
  readonly environment: Readonly<Record<string, string>>
  /** `''` = where the node was started. */
  readonly cwd: string
  /** Base64, `''` = nothing to read. */
  readonly payload: string
  /** `user[:group]` as written, `''` = as the node. */
  readonly user: string
  /** 0 = none. */
  readonly timeoutMs: number
  /** 0 = none. */
  readonly memoryBytesMax: number
}

/** Why a command ended early, or `null` when it ended by itself. */
export type Ending = 'timeout' | 'cancel' | 'kill' | 'memory' | null

export interface CommandEnd {
  /** Why Belfry could not run it, or not to its end: a sentence without a full stop; `''` when it ran. */
  readonly failure: string
  readonly exitCode: number | null
  /** e.g. `SIGKILL`; `''` = ended by exit code. */
  readonly signal: string
  readonly ending: Ending
  /** For `memory`: what was measured. */
  readonly memoryBytes: number
  /** True when the output was closed while another process still held it open. */
  readonly cut: boolean
}

/** One frame, ready to be written. */
export function encodeFrame(kind: number, execution: number, payload: Uint8Array): Uint8Array {
  return encodeFrameInto(
    Buffer.allocUnsafe(HEADER_BYTES + payload.length),
    kind,
    execution,
    payload,
  )
}

/** The same in a buffer that is there, which has room for the payload and `HEADER_BYTES`. */
export function encodeFrameInto(
  buffer: Buffer,
  kind: number,
  execution: number,
  payload: Uint8Array,
): Uint8Array {
  assert(payload.length <= PAYLOAD_BYTES_MAX, 'a frame to or from the helper is within its limit')
  buffer.writeUInt32LE(payload.length, 0)
  buffer[4] = kind
  buffer.writeUInt32LE(execution, 5)
  buffer.set(payload, HEADER_BYTES)
  return buffer.subarray(0, HEADER_BYTES + payload.length)
}

export function encodeJson(kind: number, execution: number, value: unknown): Uint8Array {
  return encodeFrame(kind, execution, Buffer.from(JSON.stringify(value)))
}

/** Credit of `bytes` for one execution. */
export function encodeCredit(execution: number, bytes: number): Uint8Array {
  const payload = Buffer.allocUnsafe(4)
  payload.writeUInt32LE(bytes, 0)
  return encodeFrame(FRAME.credit, execution, payload)
}

/** The inverse of `encodeCredit`'s payload. */
export function decodeCredit(payload: Buffer): number {
  return payload.readUInt32LE(0)
}

export function decodeJson<T>(payload: Buffer): T {
  return JSON.parse(payload.toString('utf8')) as T
}

/**
 * Control frames come whole. Output comes in the pieces it arrived in, so that nothing is put together only
 * to be taken apart again; each piece lies in the chunk that was pushed.
 */
type FrameListener = (kind: number, execution: number, payload: Buffer) => void

/** Cuts a stream of chunks into frames. */
export class FrameReader {
  readonly #listener: FrameListener
  readonly #header = Buffer.alloc(HEADER_BYTES)
  #headerLength = 0
  #kind = 0
  #execution = 0
  /** Payload bytes that the current frame still lacks. */
  #lacking = 0
  #parts: Buffer[] = []

  constructor(listener: FrameListener) {
    this.#listener = listener
  }

  push(chunk: Buffer): void {
    let offset = 0
    while (offset < chunk.length) {
      if (this.#headerLength < HEADER_BYTES) offset += this.#readHeader(chunk, offset)
      else {
        const end = Math.min(offset + this.#lacking, chunk.length)
        this.#take(chunk.subarray(offset, end))
        offset = end
      }
    }
  }

  /** Answers how many bytes it used. */
  #readHeader(chunk: Buffer, offset: number): number {
    const used = chunk.copy(this.#header, this.#headerLength, offset)
    this.#headerLength += used
    if (this.#headerLength < HEADER_BYTES) return used
    this.#lacking = this.#header.readUInt32LE(0)
    this.#kind = this.#header[4]!
    this.#execution = this.#header.readUInt32LE(5)
    assert(this.#lacking <= PAYLOAD_BYTES_MAX, 'a frame to or from the helper is within its limit')
    if (this.#lacking === 0) this.#take(chunk.subarray(0, 0))
    return used
  }

  #take(piece: Buffer): void {
    this.#lacking -= piece.length
    const isWhole = this.#lacking === 0
    if (isWhole) this.#headerLength = 0
    if (this.#kind === FRAME.output) return this.#listener(this.#kind, this.#execution, piece)
    this.#parts.push(piece)
    if (!isWhole) return
    const payload = this.#parts.length === 1 ? piece : Buffer.concat(this.#parts)
    this.#parts = []
    this.#listener(this.#kind, this.#execution, payload)
  }
}
