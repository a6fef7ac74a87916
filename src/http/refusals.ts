/**
 * Refused requests for the audit log. Equal ones are counted in memory and written together: a flood of them
 * delays no request, and adds few rows. They are lost if the process dies before the next write.
 */
import {type Actor, actorOf} from '../core/audit.ts'
import type {RefusalCode} from '../core/errors.ts'
import {Loop, type Service} from '../lib/loop.ts'
import {LOCAL} from '../operations/access.ts'
import {readWithDeadline} from '../operations/store-deadlines.ts'
import type {AuditStore, Change} from '../ports/audit-store.ts'
import type {Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'
import {networkOf} from './auth.ts'
import {REFUSAL_STATUSES} from './errors.ts'
import type {RefusedRequest} from './options.ts'

export const REFUSALS_EVERY_MS = 10_000
/** Different refusals in this time, of this server; further ones are only counted. */
export const REFUSALS_MAX = 50
/** Of one caller at one route: it must not fill the whole of them. */
export const TARGETS_MAX = 10
const SEVERAL = 'several paths'
const TARGET_LENGTH_MAX = 300

interface Seen {
  readonly actor: Actor
  readonly on: 'path' | 'job' | 'member'
  target: string
  readonly code: RefusalCode
  /** `''` = of several methods. */
  method: string
  readonly why: string
  count: number
}

/** Whether a request with this error was refused access. */
export function isRefusedAccess(code: RefusalCode): boolean {
  return [401, 403].includes(REFUSAL_STATUSES[code]) || code === 'too_many_failures'
}

export class RefusalLog implements Service {
  readonly #store: Pick<AuditStore, 'recordAudit'>
  readonly #clock: Clock
  readonly #failed: (error: unknown) => void
  readonly #loop: Loop
  #seen = new Map<string, Seen>()
  /** Number of targets, by caller, route and code. */
  #targets = new Map<string, number>()
  #others = 0

  constructor({
    store,
    clock,
    events,
  }: {
    readonly store: Pick<AuditStore, 'recordAudit'>
    readonly clock: Clock
    readonly events: Events
  }) {
    this.#store = store
    this.#clock = clock
    this.#failed = (error) =>
      events.emit('step_failed', {step: 'record_refusals', message: String(error)})
    this.#loop = new Loop({
      clock,
      step: async () => {
        await this.#write()
        return REFUSALS_EVERY_MS
      },
      failed: this.#failed,
      backoffMaxMs: REFUSALS_EVERY_MS,
    })
  }

  start(): void {
    this.#loop.start()
  }

  /** Writes what is left, unless the store does not answer. */
  async stop(): Promise<void> {
    await this.#loop.stop()
    await this.#write().catch(this.#failed)
  }

  record(refused: RefusedRequest): void {
    const {principal, address, method, route, url, job = null, joining, code} = refused
    const isKnown = principal !== null
    const place = isKnown ? `${method} ${route}` : networkOf(address)
    const group = `${principal?.accessor ?? ''} ${principal?.name ?? ''} ${place} ${code}`
    const on = joining === undefined ? (job === null ? 'path' : 'job') : 'member'
    const named = joining?.node ?? job ?? url.split('?', 1)[0] ?? ''
    const target = named.slice(0, TARGET_LENGTH_MAX)
    const own = `${group} ${on} ${target}`
    const targets = this.#targets.get(group) ?? 0
    // A caller chooses the path, which must not choose the number of rows.
    const key = this.#seen.has(own) || (isKnown && targets < TARGETS_MAX) ? own : group
    const seen = this.#seen.get(key)
    if (seen !== undefined) {
      seen.count += 1
      if (seen.target !== target) seen.target = SEVERAL
      if (seen.method !== method) seen.method = ''
    } else if (this.#seen.size >= REFUSALS_MAX) this.#others += 1
    else {
      const actor = isKnown
        ? actorOf(principal, principal === LOCAL, address)
        : {...NOBODY, address}
      this.#targets.set(group, targets + 1)
      const rest = isKnown && key === group
      this.#seen.set(key, {
        actor,
        on: rest ? 'path' : on,
        target: rest ? SEVERAL : target,
        code,
        method,
        why: rest ? '' : (joining?.why ?? ''),
        count: 1,
      })
    }
  }

  async #write(): Promise<void> {
    const [seen, others] = [this.#seen, this.#others]
    if (seen.size === 0) return
    this.#seen = new Map()
    this.#targets = new Map()
    this.#others = 0
    try {
      const changes = changesOf([...seen.values()], others)
      await readWithDeadline(this.#clock, () => this.#store.recordAudit(changes))
    } catch (error) {
      const later = [...this.#seen.values()].reduce((sum, {count}) => sum + count, 0)
      this.#seen = seen
      this.#others += others + later
      throw error
    }
  }
}

const NOBODY: Actor = {name: '', accessor: '', kind: '', address: ''}
const REFUSED = {action: 'access.refused', result: 'refused'} as const

function changesOf(seen: readonly Seen[], others: number): Change[] {
  const changes: Change[] = seen.map(({actor, on, target, code, method, why, count}) => {
    const what = `${method} ${REFUSAL_STATUSES[code]} ${code}`.trim()
    const times = count === 1 ? what : `${what}, ${count} times`
    const detail = why === '' ? times : `${times}: ${why}`
    return {...REFUSED, actor, on, target, detail}
  })
  const detail = `${others} further requests`
  return others === 0
    ? changes
    : [...changes, {...REFUSED, actor: NOBODY, on: 'path', target: '', detail}]
}
