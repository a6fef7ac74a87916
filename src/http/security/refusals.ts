/**
 * Refused requests for the audit log. Equal ones are counted in memory and written together: a flood of them
 * delays no request, and adds few rows. They are lost if the process dies before the next write.
 */
import {type Actor, actorOf, type Change} from '../../core/audit.ts'
import {ERROR_CODES, type ErrorCode} from '../../core/error-codes.ts'
import {Loop, type Service} from '../../lib/loop.ts'
import {LOCAL} from '../../identity/token-cache.ts'
import type {AuditStore} from '../../ports/audit-store.ts'
import type {Events} from '../../ports/events.ts'
import type {Clock} from '../../ports/runtime.ts'
import {networkOf} from './auth.ts'
import type {RefusedRequest} from '../options.ts'

export const REFUSALS_EVERY_MS = 10_000
/**
 * Different refusals in this time, of this server: of callers with a token, and as many of networks. Beyond
 * it, each caller with a token still has a row of its own that counts: no caller hides another.
 */
export const REFUSALS_MAX = 50
/** Different targets of one caller. */
export const TARGETS_MAX = 10
/** Rows that only count. Each takes a token of its own. */
const CALLERS_MAX = 1_000
const SEVERAL = 'several paths'
const TARGET_LENGTH_MAX = 300

interface Seen {
  readonly actor: Actor
  readonly targetType: 'path' | 'job' | 'member'
  target: string
  readonly code: ErrorCode
  /** `''` = of several methods. */
  method: string
  readonly why: string
  count: number
}

/** True if a request with this error was refused access. */
export function isRefusedAccess(code: ErrorCode): boolean {
  return [401, 403].includes(ERROR_CODES[code].status) || code === 'too_many_failures'
}

export class RefusalLog implements Service {
  readonly #store: Pick<AuditStore, 'recordAudit'>
  readonly #failed: (error: unknown) => void
  readonly #loop: Loop
  #window = emptyWindow()

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
    const {principal, address, method, url, job = null, joining, code} = refused
    const {seen, targets, rows} = this.#window
    const isKnown = principal !== null
    const caller = isKnown ? `token ${principal.accessor} ${principal.name}` : networkOf(address)
    const group = `${caller} ${code}`
    const targetType = joining === undefined ? (job === null ? 'path' : 'job') : 'member'
    const named = joining?.node ?? job ?? url.split('?', 1)[0] ?? ''
    const target = named.slice(0, TARGET_LENGTH_MAX)
    const own = `${group} ${method} ${targetType} ${target}`
    const count = targets.get(group) ?? 0
    // A caller chooses the path, which must not choose the number of rows.
    const hasRoom = isKnown && count < TARGETS_MAX && rows.targets < REFUSALS_MAX
    const key = seen.has(own) || hasRoom ? own : group
    const kind = rowsOf(isKnown, key === own)
    const known = seen.get(key)
    if (known !== undefined) {
      known.count += 1
      if (known.target !== target) known.target = SEVERAL
      if (known.method !== method) known.method = ''
    } else if (rows[kind] >= ROWS_MAX[kind]) this.#window.others += 1
    else {
      const actor = isKnown
        ? actorOf(principal, principal === LOCAL, address)
        : {...NOBODY, address}
      rows[kind] += 1
      targets.set(group, count + 1)
      const shown: Pick<Seen, 'targetType' | 'target' | 'why'> =
        kind === 'callers'
          ? {targetType: 'path', target: SEVERAL, why: ''}
          : {targetType, target, why: joining?.why ?? ''}
      seen.set(key, {actor, ...shown, code, method, count: 1})
    }
  }

  async #write(): Promise<void> {
    const window = this.#window
    if (window.seen.size === 0) return
    this.#window = emptyWindow()
    try {
      const changes = changesOf(window)
      await this.#store.recordAudit(changes)
    } catch (error) {
      const {seen, others} = this.#window
      const later = [...seen.values()].reduce((sum, {count}) => sum + count, 0)
      this.#window = window
      window.others += others + later
      throw error
    }
  }
}

/** Refusals since the last write. */
interface Window {
  readonly seen: Map<string, Seen>
  /** Number of targets, by caller and code. */
  readonly targets: Map<string, number>
  /** Number of rows in `seen`. */
  readonly rows: Record<keyof typeof ROWS_MAX, number>
  others: number
}

/** `targets` and `callers` are of tokens. */
const ROWS_MAX = {targets: REFUSALS_MAX, callers: CALLERS_MAX, networks: REFUSALS_MAX}

function emptyWindow(): Window {
  return {
    seen: new Map(),
    targets: new Map(),
    rows: {targets: 0, callers: 0, networks: 0},
    others: 0,
  }
}

function rowsOf(isKnown: boolean, isOwn: boolean): keyof typeof ROWS_MAX {
  if (!isKnown) return 'networks'
  return isOwn ? 'targets' : 'callers'
}

const NOBODY: Actor = {name: '', accessor: '', kind: '', address: ''}
const REFUSED = {action: 'access.refused', result: 'refused'} as const

function changesOf({seen, others}: Window): Change[] {
  const changes = [...seen.values()].map((refused): Change => {
    const {actor, targetType, target, code, method, why, count} = refused
    const what = `${method} ${ERROR_CODES[code].status} ${code}`.trim()
    const times = count === 1 ? what : `${what}, ${count} times`
    const detail = why === '' ? times : `${times}: ${why}`
    return {...REFUSED, actor, targetType, target, detail}
  })
  const detail = `${others} further requests`
  return others === 0
    ? changes
    : [...changes, {...REFUSED, actor: NOBODY, targetType: 'path', target: '', detail}]
}
