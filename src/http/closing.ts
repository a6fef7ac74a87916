/**
 * Ending the server in good order: streams, which would never end, are ended; everything else under way gets
 * a moment to finish; only then are connections cut.
 */
import type {FastifyInstance} from 'fastify'
import type {Clock} from '../ports/runtime.ts'
import {CLOSE_PATIENCE_MS} from './options.ts'
import type {OpenStreams} from './streams.ts'

export class Closing {
  readonly #clock: Clock
  readonly #streams: OpenStreams
  #underWay = 0
  #idle: (() => void) | null = null

  constructor(clock: Clock, streams: OpenStreams) {
    this.#clock = clock
    this.#streams = streams
  }

  watch(app: FastifyInstance): void {
    app.addHook('onRequest', async (_request, reply) => {
      this.#underWay += 1
      reply.raw.once('close', () => this.#over())
    })
    app.addHook('preClose', async () => {
      this.#streams.endAll()
      await this.#finished()
      if (this.#underWay > 0) app.server.closeAllConnections()
    })
  }

  #over(): void {
    this.#underWay -= 1
    if (this.#underWay === 0) this.#idle?.()
  }

  /** Resolves when nothing is under way, or after the time that is given for it. */
  #finished(): Promise<void> {
    if (this.#underWay === 0) return Promise.resolve()
    return new Promise((resolve) => {
      const timer = this.#clock.after(CLOSE_PATIENCE_MS, resolve)
      this.#idle = () => {
        timer.cancel()
        resolve()
      }
    })
  }
}
