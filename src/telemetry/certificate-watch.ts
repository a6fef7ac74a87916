/**
 * Watches the end of the certificate of an address. It emits `certificate_expires` when the certificate is
 * taken over and once a day while its end is near. It changes nothing: SIGHUP takes over a renewed one.
 */
import type {Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'

const DAY_MS = 86_400_000
/** Long enough for a renewal by hand; automatic renewals come earlier. */
const NEAR_MS = 14 * DAY_MS

export interface CertificateWatchOptions {
  readonly clock: Clock
  readonly events: Events
  /** Flag of the certificate, for the log. */
  readonly setting: string
}

export class CertificateWatch {
  readonly #options: CertificateWatchOptions
  #expiresAt: number | null = null
  #timer: {cancel(): void} | null = null

  constructor(options: CertificateWatchOptions) {
    this.#options = options
  }

  /** ms since the epoch; `null` = no certificate. */
  get expiresAt(): number | null {
    return this.#expiresAt
  }

  /** Begins to watch this certificate in place of the one before; `null` = there is none. */
  use(tls: {readonly expiresAt: number} | null): void {
    this.stop()
    this.#expiresAt = tls?.expiresAt ?? null
    if (tls !== null) this.#look(tls.expiresAt)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = null
  }

  #look(expiresAt: number): void {
    const {clock, events, setting} = this.#options
    const leftMs = expiresAt - clock.now()
    if (leftMs < NEAR_MS)
      events.emit('certificate_expires', {
        setting,
        expires_at: expiresAt,
        days_left: Math.floor(leftMs / DAY_MS),
      })
    this.#timer = clock.after(DAY_MS, () => this.#look(expiresAt))
  }
}
