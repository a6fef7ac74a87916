/** The one start/stop contract: everything with a life of its own keeps it. */
export interface Service {
  /** Called once. */
  start(): void
  /** Resolves when nothing of it runs any more. Idempotent, and safe before `start`. */
  stop(): Promise<void>
}
