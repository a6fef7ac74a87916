/**
 * Virtual clock that a test advances. Timers fire one at a time, in the order they are due. After each,
 * pending promise callbacks run before time advances. Nothing here waits for the real clock.
 */
import {setImmediate as nextTurn} from 'node:timers/promises'
import type {Clock, Timer} from '../../src/ports/runtime.ts'

interface Armed {
  readonly dueAt: number
  readonly order: number
  readonly callback: () => void
}

/** More timers than this in one `advance` mean a busy loop. */
const TIMERS_MAX = 200_000

export class VirtualClock implements Clock {
  #monotonicMs = 0
  #wallOffsetMs: number
  #order = 0
  readonly #armed = new Set<Armed>()
  /** Number of timers fired so far, for tests against busy loops. */
  fired = 0

  /** `startAt`: initial wall time, ms since the epoch. */
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

  /** Number of armed timers; 0 after everything was stopped. */
  get waiting(): number {
    return this.#armed.size
  }

  /** Runs pending callbacks and timers due now; no time passes. */
  async settle(): Promise<void> {
    await this.advance(0)
  }

  /** Advances by `ms`: every timer due until then fires at its time. */
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

  /** Advances until `reached` returns true; throws after `limitMs`. Returns the time it took. */
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

  /** Advances until `work` settles; throws after `limitMs`. */
  async finish<Result>(work: Promise<Result>, limitMs = 60_000): Promise<Result> {
    let done = false
    const watched = work.finally(() => void (done = true))
    watched.catch(() => {})
    await this.until(() => done, limitMs)
    return watched
  }

  /** Passes time without firing timers, as if the machine was frozen. The next `advance` fires them. */
  sleep(ms: number): void {
    this.#monotonicMs += ms
  }

  /** Steps the wall clock; the monotonic clock is unaffected. */
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
