/**
 * Finds the primary among the hosts of an address. The last known primary is asked alone until it comes into
 * doubt; then all hosts are asked at once. A server's state is not trusted for long: every transaction checks
 * that it runs on a primary.
 *
 * Two servers may claim to be the primary: a promoted standby, and an old primary that returned. Every
 * promotion starts a new timeline of the same system. The higher timeline is used, and this process never
 * returns to a lower one, which lacks acknowledged writes. This does not replace fencing. Two primaries of
 * one timeline cannot be distinguished, and a new process knows only the servers that answer it.
 */
import {DatabaseError} from 'pg'
import type {Clock, Timer} from '../../ports/runtime.ts'
import {Session, type SessionKind} from './connection.ts'
import {NoPrimary, reasonOf} from './errors.ts'
import {type Address, describeAddress, describeHost, type Host} from './url.ts'

/** Time for a newer primary to answer after the first one; a healthy server needs less. */
const NEWER_PRIMARY_WAIT_MS = 500

const TAKES_NO_WRITES =
  'takes no writes (a standby, or default_transaction_read_only is on); name the primary as well'

export interface PrimaryOptions {
  readonly address: Address
  readonly clock: Pick<Clock, 'after'>
  /** The program name that the server shows. */
  readonly applicationName: string
}

/** The history of a server's data: the origin, and the number of promotions since. */
interface History {
  readonly system: string
  readonly timeline: number
}

interface Found {
  readonly session: Session
  /** `null` = the server does not expose it, or the address has one host. */
  readonly history: History | null
}

export class Primary {
  readonly #options: PrimaryOptions
  #known: Host | null = null
  #isInDoubt = false
  #newest: History | null = null
  /** Grows with each sign of a new primary; sessions of an older generation are not reused. */
  #generation = 0

  constructor(options: PrimaryOptions) {
    this.#options = options
  }

  get generation(): number {
    return this.#generation
  }

  /** Host of the newest session; `null` before the first. */
  get host(): Host | null {
    return this.#known
  }

  /** A caller got an error that says that the server may not be the primary any more. */
  doubt(): void {
    this.#generation += 1
    this.#isInDoubt = true
  }

  /** A session on the primary. Throws `NoPrimary`. */
  async connect(kind: SessionKind): Promise<Session> {
    const reasons: string[] = []
    const known = this.#isInDoubt ? null : this.#known
    const asked = known === null ? null : await this.#connectTo(known, kind, reasons)
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
    // Sessions on the previous primary are not reused.
    if (this.#known !== null && this.#known !== session.host) this.#generation += 1
    this.#known = session.host
    this.#isInDoubt = false
    this.#newest = history ?? this.#newest
  }

  /** The primary with the newest history; the sessions of the others are closed. */
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
        void this.#connectTo(host, kind, reasons).then((found) => {
          waiting -= 1
          if (found !== null) {
            const isBetter = !isOver && (best === null || isOlder(best.history, found.history))
            const other = isBetter ? best : found
            if (isBetter) best = found
            void other?.session.close()
            if (!isOver) timer ??= this.#options.clock.after(NEWER_PRIMARY_WAIT_MS, end)
          }
          if (waiting === 0 && !isOver) end()
        })
    })
  }

  /** `null` and a reason if the host is unreachable, read-only or outdated. */
  async #connectTo(host: Host, kind: SessionKind, reasons: string[]): Promise<Found | null> {
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

  /** Adds the reason if it is. */
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

/** Every role may call these functions, but not every service with PostgreSQL's protocol has them. */
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
