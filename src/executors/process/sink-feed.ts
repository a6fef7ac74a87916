/**
 * Gives one execution's output to its sink and says how much the sink has taken, so that the helper sends
 * no more than a window ahead. Knows no frames and no process.
 */
import type {OutputSink} from '../../ports/executor.ts'
import {CREDIT_LUMP_BYTES} from './protocol.ts'

export class SinkFeed {
  readonly #sink: OutputSink
  readonly #acknowledge: (bytes: number) => void
  /** Taken by the sink and not yet told. */
  #credit = 0
  /** Written to a sink that said wait. */
  #waiting = 0

  /** `acknowledge` is called with lumps of what the sink has taken. */
  constructor(sink: OutputSink, acknowledge: (bytes: number) => void) {
    this.#sink = sink
    this.#acknowledge = acknowledge
  }

  push(bytes: Uint8Array): void {
    if (this.#waiting > 0) {
      // The sink said wait; what was under way by then arrives all the same, a window of it at most.
      this.#waiting += bytes.length
      this.#sink.write(bytes)
    } else if (this.#sink.write(bytes)) this.#taken(bytes.length)
    else {
      this.#waiting = bytes.length
      this.#sink.drained(() => {
        const taken = this.#waiting
        this.#waiting = 0
        this.#taken(taken)
      })
    }
  }

  #taken(bytes: number): void {
    this.#credit += bytes
    if (this.#credit < CREDIT_LUMP_BYTES) return
    const lump = this.#credit
    this.#credit = 0
    this.#acknowledge(lump)
  }
}
