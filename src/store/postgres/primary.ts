/**
 * Finding the primary among the hosts of an address. The one that was primary last is asked alone until it
 * comes into doubt; then all are asked at once. What a server said once is never believed for long: every
 * transaction asks again whether it is on a primary.
 *
 * Two may say that they are: one that was promoted, and one that came back and knows nothing of that. Every
 * promotion begins a new timeline of the same system, so the higher one is taken, and no lower one ever
 * again in this process: what was acknowledged since is not there. This replaces no fencing. Two primaries
 * of one timeline cannot be told apart, and a process that starts knows only what answers it.
 */
import {DatabaseError} from 'pg'
import type {Clock, Timer} from '../../ports/runtime.ts'
import {Session, type SessionKind} from './connection.ts'
import {NoPrimary, reasonOf} from './errors.ts'
import {type Address, describeAddress, describeHost, type Host} from './url.ts'

/** Once a primary is found, another that is newer has this long to say so: more than any that is well. */
const HEAR_OUT_MS = 500

const TAKES_NO_WRITES =
  'takes no writes (a standby, or default_transaction_read_only is on); name the primary as well'

export interface PrimaryOptions {
  readonly address: Address
  readonly clock: Pick<Clock, 'after'>
  /** What the server shows as the name of the program. */
  readonly applicationName: string
}

/** Which past a server has: its data's origin, and how often somebody was promoted since. */
interface History {
  readonly system: string
  readonly timeline: number
}

interface Found {
  readonly session: Session
  /** `null` = the server does not tell, or there is only one. */
  readonly history: History | null
}

export class Primary {
  readonly #options: PrimaryOptions
  #known: Host | null = null
  #isInDoubt = false
  #newest: History | null = null
  /** Grows with each sign that the primary is another one; sessions made before are not used again. */
  #generation = 0

  constructor(options: PrimaryOptions) {
    this.#options = options
  }

  get generation(): number {
    return this.#generation
  }

  /** Where the newest session was opened; `null` before the first. */
  get host(): Host | null {
    return this.#known
  }

  /** Something said that the server is not the one to talk to any more. */
  doubt(): void {
    this.#generation += 1
    this.#isInDoubt = true
  }

  /** A session on the primary. Throws `NoPrimary`. */
  async connect(kind: SessionKind): Promise<Session> {
    const reasons: string[] = []
    const known = this.#isInDoubt ? null : this.#known
    const asked = known === null ? null : await this.#ask(known, kind, reasons)
    const others = this.#options.address.hosts.filter((host) => host !== known)
    const found = asked ?? (await this.#newestOf(others, kind, reasons))
    if (found !== null && !this.#isOutdated(found.history, reasons, found.session.host)) {
      this.#follow(found)
      return found.session
    }
    await found?.session.close()
    const where = describeAddress(this.#options.address)
    throw new NoPrimary(where, reasons)
  }

  #follow({session, history}: Found): void {
    // What was opened before on another one is not used again, whoever noticed the change.
    if (this.#known !== null && this.#known !== session.host) this.#generation += 1
    this.#known = session.host
    this.#isInDoubt = false
    this.#newest = history ?? this.#newest
  }

  /** Of the hosts that are primaries the one with the newest past; the others' sessions are closed again. */
  #newestOf(hosts: readonly Host[], kind: SessionKind, reasons: string[]): Promise<Found | null> {
    return new Promise((resolve) => {
      let waiting = hosts.length
      let best: Found | null = null
      let timer: Timer | null = null
      let isOver = false
      const end = () => {
        isOver = true
        timer?.cancel()
        resolve(best)
      }
      if (waiting === 0) end()
      for (const host of hosts)
        void this.#ask(host, kind, reasons).then((found) => {
          waiting -= 1
          if (found !== null) {
            const isBetter = !isOver && (best === null || isOlder(best.history, found.history))
            const other = isBetter ? best : found
            if (isBetter) best = found
            void other?.session.close()
            if (!isOver) timer ??= this.#options.clock.after(HEAR_OUT_MS, end)
          }
          if (waiting === 0 && !isOver) end()
        })
    })
  }

  /** `null` and a reason when the host is not a primary that answers, or one that is outdated. */
  async #ask(host: Host, kind: SessionKind, reasons: string[]): Promise<Found | null> {
    const {address, clock, applicationName} = this.#options
    let session: Session | null = null
    try {
      session = await Session.connect(address, host, clock, `${applicationName} ${kind.purpose}`)
      const {isReadOnly} = await session.prepare(address.schema, kind)
      if (isReadOnly) reasons.push(`${describeHost(host)} ${TAKES_NO_WRITES}`)
      else {
        const history = address.hosts.length > 1 ? await historyOf(session) : null
        if (!this.#isOutdated(history, reasons, host)) return {session, history}
      }
      await session.close()
    } catch (error) {
      session?.destroy()
      reasons.push(reasonOf(error, host, address))
    }
    return null
  }

  /** Tells the reason when it is. */
  #isOutdated(history: History | null, reasons: string[], host: Host): boolean {
    const isOutdated = isOlder(history, this.#newest)
    if (isOutdated)
      reasons.push(
        `${describeHost(host)} is an old primary (timeline ${history?.timeline}, and ` +
          `${this.#newest?.timeline} was in use)`,
      )
    return isOutdated
  }
}

function isOlder(history: History | null, other: History | null): boolean {
  if (history === null || other === null) return false
  return history.system === other.system && history.timeline < other.timeline
}

/** Every role may ask for these, but not every service that speaks PostgreSQL's protocol has them. */
async function historyOf(session: Session): Promise<History | null> {
  try {
    const [result] = await session.run(`SELECT system_identifier::text AS system,
      pg_walfile_name(pg_current_wal_lsn()) AS file FROM pg_control_system()`)
    const row = result?.rows[0]
    // The first eight hexadecimal digits of the log's current file are the timeline.
    const timeline = Number.parseInt(String(row?.['file']).slice(0, 8), 16)
    return {system: String(row?.['system']), timeline}
  } catch (error) {
    if (error instanceof DatabaseError) return null
    throw error
  }
}
