/**
 * Time that a test turns by hand. Timers fire in the order they are due, one at a time, and after
 * each the work it set off is allowed to come to rest before time goes on: nothing here waits for
 * the machine's own clock.
 */
import {setImmediate as nextTurn} from 'node:timers/promises'
import type {Clock, Timer} from '../../src/ports/runtime.ts'

interface Armed {
  readonly dueAt: number
  readonly order: number
  readonly callback: () => void
}

/** More timers than this in one `advance` is a step that spins instead of waiting. */
const TIMERS_MAX = 200_000

export class VirtualClock implements Clock {
  #monotonicMs = 0
  #wallOffsetMs: number
  #order = 0
  readonly #armed = new Set<Armed>()
  /** How many timers have fired so far; what a test of "does not spin" counts. */
  fired = 0

  /** `startAt`: wall instant the clock begins at, ms since the epoch. */
  constructor(startAt: number = Date.parse('2026-03-01T12:00:00Z')) {
    this.#wallOffsetMs = startAt
  }

  now(): number {
    return Math.floor(this.#monotonicMs + this.#wallOffsetMs)
  }

  monotonicMs(): number {
    return this.#monotonicMs
  }

  after(delayMs: number, callback: () => void): Timer {
    if (Number.isNaN(delayMs)) throw new TypeError('a delay must be a number')
    const dueAt = this.#monotonicMs + Math.max(0, delayMs)
    const armed = {dueAt, order: this.#order++, callback}
    this.#armed.add(armed)
    return {cancel: () => void this.#armed.delete(armed)}
  }

  /** Timers waiting; a test of "leaves nothing behind" expects 0. */
  get waiting(): number {
    return this.#armed.size
  }

  /** Lets work already set off come to rest, without a millisecond passing; timers due now fire too. */
  async settle(): Promise<void> {
    await this.advance(0)
  }

  /** Lets `ms` pass: every timer due until then fires at its time. */
  async advance(ms: number): Promise<void> {
    const until = this.#monotonicMs + ms
    await nextTurn()
    for (let fired = 0; ; fired += 1) {
      if (fired > TIMERS_MAX) throw new Error(`more than ${TIMERS_MAX} timers in ${ms} ms`)
      const next = this.#earliest()
      if (next === null || next.dueAt > until) break
      this.#fire(next)
      await nextTurn()
    }
    this.#monotonicMs = Math.max(this.#monotonicMs, until)
  }

  /**
   * Lets time pass until `reached` holds; throws when it does not within `limitMs`. Answers how
   * long it took.
   */
  async until(reached: () => boolean, limitMs = 60_000): Promise<number> {
    const began = this.#monotonicMs
    await nextTurn()
    while (!reached()) {
      const next = this.#earliest()
      if (next === null || next.dueAt > began + limitMs) {
        throw new Error(`not reached within ${limitMs} ms of virtual time: ${reached.toString()}`)
      }
      this.#fire(next)
      await nextTurn()
    }
    return this.#monotonicMs - began
  }

  /** Resolves `work`, letting time pass as it needs; throws when `limitMs` do not suffice. */
  async finish<Result>(work: Promise<Result>, limitMs = 60_000): Promise<Result> {
    let done = false
    const watched = work.finally(() => void (done = true))
    watched.catch(() => {})
    await this.until(() => done, limitMs)
    return watched
  }

  /**
   * The machine was off, or frozen: time has passed and nothing ran. Overdue timers fire with the
   * next `advance`.
   */
  sleep(ms: number): void {
    this.#monotonicMs += ms
  }

  /** The wall clock is set by hand; the monotonic clock knows nothing of it. */
  stepWall(ms: number): void {
    this.#wallOffsetMs += ms
  }

  #earliest(): Armed | null {
    let earliest: Armed | null = null
    for (const armed of this.#armed) {
      if (
        earliest === null ||
        armed.dueAt < earliest.dueAt ||
        (armed.dueAt === earliest.dueAt && armed.order < earliest.order)
      ) {
        earliest = armed
      }
    }
    return earliest
  }

  #fire(armed: Armed): void {
    this.#armed.delete(armed)
    this.#monotonicMs = Math.max(this.#monotonicMs, armed.dueAt)
    this.fired += 1
    armed.callback()
  }
}
