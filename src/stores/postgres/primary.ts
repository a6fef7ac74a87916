/**
 * Finding the primary among the hosts of an address. The one that was primary last is asked first; when it
 * is not any more, all are asked at once and the first that takes writes is it. What a server said once is
 * never believed for long: every transaction asks again whether it is on a primary.
 */
import type {Clock} from '../../ports/clock.ts'
import {describeAddress, describeHost, type Address, type Host} from './address.ts'
import {NoPrimary, textOf} from './failure.ts'
import {Session, type SessionKind} from './session.ts'

export interface PrimaryOptions {
  readonly address: Address
  readonly clock: Pick<Clock, 'after'>
  /** What the server shows as the name of the program. */
  readonly applicationName: string
}

export class Primary {
  readonly #options: PrimaryOptions
  #known: Host | null = null
  /** Grows with each sign that the primary is another one; sessions made before are not used again. */
  #generation = 0

  constructor(options: PrimaryOptions) {
    this.#options = options
  }

  get generation(): number {
    return this.#generation
  }

  /** Something said that the server is not the one to talk to any more. */
  doubt(): void {
    this.#generation += 1
  }

  /** A session on the primary. Throws `NoPrimary`. */
  async connect(kind: SessionKind): Promise<Session> {
    const {hosts} = this.#options.address
    const reasons: string[] = []
    if (this.#known !== null) {
      const session = await this.#ask(this.#known, kind, reasons)
      if (session !== null) return session
    }
    const others = hosts.filter((host) => host !== this.#known)
    const session = await this.#firstOf(others, kind, reasons)
    if (session === null) {
      const where = describeAddress(this.#options.address)
      throw new NoPrimary(`${where} has no primary that answers: ${reasons.join('; ')}`)
    }
    this.#known = session.host
    return session
  }

  /** The first host that turns out to be the primary; sessions that come after it are closed again. */
  #firstOf(hosts: readonly Host[], kind: SessionKind, reasons: string[]): Promise<Session | null> {
    return new Promise((resolve) => {
      let waiting = hosts.length
      let isFound = false
      if (waiting === 0) resolve(null)
      for (const host of hosts)
        void this.#ask(host, kind, reasons).then((session) => {
          waiting -= 1
          if (session !== null && isFound) void session.close()
          if (session !== null) {
            isFound = true
            resolve(session)
          } else if (waiting === 0) resolve(null)
        })
    })
  }

  /** `null` and a reason when the host is not a primary that answers. */
  async #ask(host: Host, kind: SessionKind, reasons: string[]): Promise<Session | null> {
    const {address, clock, applicationName} = this.#options
    let session: Session | null = null
    try {
      session = await Session.connect(address, host, clock, `${applicationName} ${kind.purpose}`)
      const {isReadOnly} = await session.prepare(address.schema, kind)
      if (!isReadOnly) return session
      reasons.push(`${describeHost(host)} takes no writes`)
      await session.close()
    } catch (error) {
      session?.destroy()
      reasons.push(textOf(error))
    }
    return null
  }
}
