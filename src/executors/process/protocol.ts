/**
 * Protocol between the node and its process helper. A frame has a length, a kind, an execution number and a
 * payload: JSON for control, raw bytes for output, so output is never encoded. Both processes import this
 * file; it uses no process, file or clock.
 *
 *   u32 payload length | u8 kind | u32 execution number | payload
 */
import {assert} from '../../lib/assert.ts'

export const HEADER_BYTES = 9

/** Larger than any frame: a start request is at most a job's maps (64 × 64 KiB, base64), output 64 KiB. */
const PAYLOAD_BYTES_MAX = 16 * 1024 * 1024

/**
 * Flow-control window: bytes of one execution in transit between pipe and sink. A smaller window costs round
 * trips; a larger one costs memory for each of hundreds of executions with slow sinks.
 */
export const OUTPUT_WINDOW_BYTES = 128 * 1024

/** Credit is returned in portions of at least this size, so short outputs need no credit frame. */
export const CREDIT_MIN_BYTES = 32 * 1024

export const FRAME = {
  /** node → helper: `HelperSetup`, the first frame. */
  setup: 1,
  /** node → helper: `StartRequest`. */
  start: 2,
  /** node → helper: u32, bytes that the sink has accepted. */
  credit: 3,
  /** node → helper: TERM, then KILL. */
  cancel: 4,
  /** node → helper: KILL. */
  kill: 5,
  /** node → helper: end all commands, then exit. */
  stop: 6,
  /** helper → node: `HelperReady`. */
  ready: 10,
  /** helper → node: raw output. */
  output: 11,
  /** helper → node: `CommandEnd`, the last frame of an execution. */
  ended: 12,
} as const

export type SpawnChoice = 'auto' | 'portable' | 'posix'

export interface HelperSetup {
  /** Directory of the journal and the pipes, `<data>/executions`. Absolute. */
  readonly directory: string
  readonly nodeId: string
  /** Environment of every command, before its own variables. */
  readonly environment: Readonly<Record<string, string>>
  readonly spawn: SpawnChoice
  readonly killAfterMs: number
  readonly drainMs: number
  readonly memorySampleMs: number
}

export interface HelperReady {
  /** The method in use; `auto` is resolved. */
  readonly spawn: 'portable' | 'posix'
  /** Why `posix` is not possible; `''` when it is used or was not requested. */
  readonly why: string
}

/** `argv[0]` is looked up in the `PATH` of `environment`. */
export interface StartRequest {
  readonly executionId: string
  readonly argv: readonly string[]
  /** Added to the setup's environment. */
  readonly environment: Readonly<Record<string, string>>
  /** `''` = the node's working directory. */
  readonly cwd: string
  /** Standard input as base64; `''` = empty. */
  readonly payload: string
  /** `user[:group]`; `''` = the user of the node. */
  readonly user: string
  /** 0 = none. */
  readonly timeoutMs: number
  /** 0 = none. */
  readonly memoryBytesMax: number
}

/** Why a command was ended; `null` when it ended by itself. */
export type Ending = 'timeout' | 'cancel' | 'kill' | 'memory' | null

export interface CommandEnd {
  /** Why Belfry could not run it to its end, without a final period; `''` when it ran. */
  readonly failure: string
  readonly exitCode: number | null
  /** e.g. `SIGKILL`; `''` = ended by exit code. */
  readonly signal: string
  readonly ending: Ending
  /** Measured size, for the ending `memory`. */
  readonly memoryBytes: number
  /** The output was closed while another process still held it open. */
  readonly cut: boolean
  /** Time since the start of the process; 0 = it was not started. */
  readonly ranMs: number
}

export function encodeFrame(kind: number, execution: number, payload: Uint8Array): Uint8Array {
  return encodeFrameInto(
    Buffer.allocUnsafe(HEADER_BYTES + payload.length),
    kind,
    execution,
    payload,
  )
}

/** Encodes into a buffer with room for the payload and `HEADER_BYTES`. */
export function encodeFrameInto(
  buffer: Buffer,
  kind: number,
  execution: number,
  payload: Uint8Array,
): Uint8Array {
  writeHeader(buffer, payload.length, kind, execution)
  buffer.set(payload, HEADER_BYTES)
  return buffer.subarray(0, HEADER_BYTES + payload.length)
}

function writeHeader(buffer: Buffer, length: number, kind: number, execution: number): void {
  assert(length <= PAYLOAD_BYTES_MAX, 'a frame to or from the helper is within its limit')
  buffer.writeUInt32LE(length, 0)
  buffer[4] = kind
  buffer.writeUInt32LE(execution, 5)
}

export function encodeJson(kind: number, execution: number, value: unknown): Uint8Array {
  const text = JSON.stringify(value)
  const length = Buffer.byteLength(text)
  const buffer = Buffer.allocUnsafe(HEADER_BYTES + length)
  writeHeader(buffer, length, kind, execution)
  buffer.write(text, HEADER_BYTES)
  return buffer
}

export function encodeCredit(execution: number, bytes: number): Uint8Array {
  const payload = Buffer.allocUnsafe(4)
  payload.writeUInt32LE(bytes, 0)
  return encodeFrame(FRAME.credit, execution, payload)
}

/** Reads the payload of `encodeCredit`. */
export function decodeCredit(payload: Buffer): number {
  return payload.readUInt32LE(0)
}

export function decodeJson<T>(payload: Buffer): T {
  return JSON.parse(payload.toString('utf8')) as T
}

/**
 * Control frames are passed whole. Output is passed in pieces of the chunks that were pushed, without a copy.
 */
type FrameListener = (kind: number, execution: number, payload: Buffer) => void

/** Splits a stream of chunks into frames. */
export class FrameReader {
  readonly #listener: FrameListener
  readonly #header = Buffer.alloc(HEADER_BYTES)
  #headerLength = 0
  #kind = 0
  #execution = 0
  /** Payload bytes of the current frame that have not arrived. */
  #missing = 0
  #parts: Buffer[] = []

  constructor(listener: FrameListener) {
    this.#listener = listener
  }

  push(chunk: Buffer): void {
    let offset = 0
    while (offset < chunk.length) {
      if (this.#headerLength < HEADER_BYTES) offset += this.#readHeader(chunk, offset)
      else {
        const end = Math.min(offset + this.#missing, chunk.length)
        this.#take(chunk.subarray(offset, end))
        offset = end
      }
    }
  }

  /** Returns how many bytes it used. */
  #readHeader(chunk: Buffer, offset: number): number {
    const used = chunk.copy(this.#header, this.#headerLength, offset)
    this.#headerLength += used
    if (this.#headerLength < HEADER_BYTES) return used
    this.#missing = this.#header.readUInt32LE(0)
    this.#kind = this.#header[4]!
    this.#execution = this.#header.readUInt32LE(5)
    assert(this.#missing <= PAYLOAD_BYTES_MAX, 'a frame to or from the helper is within its limit')
    if (this.#missing === 0) this.#take(chunk.subarray(0, 0))
    return used
  }

  #take(piece: Buffer): void {
    this.#missing -= piece.length
    const isWhole = this.#missing === 0
    if (isWhole) this.#headerLength = 0
    if (this.#kind === FRAME.output) return this.#listener(this.#kind, this.#execution, piece)
    this.#parts.push(piece)
    if (!isWhole) return
    const payload = this.#parts.length === 1 ? piece : Buffer.concat(this.#parts)
    this.#parts = []
    this.#listener(this.#kind, this.#execution, payload)
  }
}
