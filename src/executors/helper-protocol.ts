/**
 * What the node and its process helper say to each other, and how it is framed. One frame is a length, a kind, the
 * number of the execution it speaks of, and a payload: JSON for control, the bytes themselves for output, so output is
 * never encoded. Stands apart because both processes import it; it never touches a process, a file or a clock.
 *
 *   u32 payload length | u8 kind | u32 execution number | payload
 */
import {assert} from '../std/assert.ts'

const HEADER_BYTES = 9

/** No frame is larger: a start request is at most a job's maps (64 entries of 64 KiB) after base64, output comes in 64 KiB. */
const PAYLOAD_BYTES_MAX = 16 * 1024 * 1024

/**
 * How many bytes of one execution may be under way between the pipe and the sink. Smaller costs round trips, larger
 * costs memory for each of hundreds of executions whose sink is slow.
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
  assert(payload.length <= PAYLOAD_BYTES_MAX, 'a frame to or from the helper is within its limit')
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payload.length)
  frame.writeUInt32LE(payload.length, 0)
  frame[4] = kind
  frame.writeUInt32LE(execution, 5)
  frame.set(payload, HEADER_BYTES)
  return frame
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

type FrameListener = (kind: number, execution: number, payload: Buffer) => void

/**
 * Cuts a stream of chunks into frames. A payload is valid only during the call of the listener when it lies within one
 * chunk: whoever keeps it copies it.
 */
export class FrameReader {
  readonly #listener: FrameListener
  #parts: Buffer[] = []
  #length = 0
  /** Bytes needed before the next frame is whole. */
  #needed = HEADER_BYTES

  constructor(listener: FrameListener) {
    this.#listener = listener
  }

  push(chunk: Buffer): void {
    this.#parts.push(chunk)
    this.#length += chunk.length
    if (this.#length < this.#needed) return
    const bytes = this.#parts.length === 1 ? chunk : Buffer.concat(this.#parts, this.#length)
    const rest = bytes.subarray(this.#cut(bytes))
    this.#parts = rest.length === 0 ? [] : [rest]
    this.#length = rest.length
  }

  /** Hands out every whole frame in `bytes`; answers how much of it was used. */
  #cut(bytes: Buffer): number {
    let offset = 0
    for (;;) {
      this.#needed = HEADER_BYTES
      if (bytes.length - offset < HEADER_BYTES) return offset
      const size = bytes.readUInt32LE(offset)
      assert(size <= PAYLOAD_BYTES_MAX, 'a frame to or from the helper is within its limit')
      this.#needed = HEADER_BYTES + size
      if (bytes.length - offset < this.#needed) return offset
      const start = offset + HEADER_BYTES
      const kind = bytes[offset + 4]!
      this.#listener(kind, bytes.readUInt32LE(offset + 5), bytes.subarray(start, start + size))
      offset = start + size
    }
  }
}
