/** Settings that are stored in the cluster: the default time zone, with the pauses of `firing.ts`. */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {findZone} from '../core/schedule/zone.ts'
import {quoteForMessage} from '../lib/quote.ts'
import type {OperationsContext} from './context.ts'
import type {Firing} from './firing.ts'

export interface Settings {
  readonly timezone: string
  readonly submissionsPaused: boolean
  readonly firing: Firing
}

export interface ChangedSettings {
  /** A name of a zone in any spelling. */
  readonly timezone: string
}

export function createSettings(
  {store, events, wakeup}: OperationsContext,
  firing: () => Promise<Firing>,
) {
  async function settings(): Promise<Settings> {
    const [timezone, submissionsPaused, paused] = await Promise.all([
      store.defaultTimezone(),
      store.submissionsPaused(),
      firing(),
    ])
    return {timezone, submissionsPaused, firing: paused}
  }

  /** Jobs without a zone of their own are planned anew. Throws `body_invalid`. */
  async function changeSettings({timezone}: ChangedSettings, actor: Actor): Promise<Settings> {
    const zone = readTimezone(timezone)
    const was = await store.setTimezone(zone, actor)
    if (was !== zone) {
      events.emit('timezone_changed', {timezone: zone, was})
      wakeup.notify('launch')
    }
    return settings()
  }

  return {settings, changeSettings}
}

/** The zone in its canonical spelling. */
function readTimezone(timezone: string): string {
  const zone = findZone(timezone)
  if (zone !== null) return zone.name
  throw invalid(
    'timezone: must be an IANA name such as "Europe/Berlin" or "UTC"; ' +
      `${quoteForMessage(timezone)} is not known`,
  )
}

function invalid(problem: string): DomainError {
  return new DomainError('body_invalid', `The settings cannot be changed: ${problem}.`)
}
