/** Settings that are stored in the cluster: the default time zone, with the pauses of `firing.ts`. */
import type {Actor} from '../core/audit.ts'
import {DomainError} from '../core/errors.ts'
import {isKnownZone} from '../core/schedule/zone.ts'
import {isObject, readJsonBytes} from '../wire/json.ts'
import type {OperationsContext} from './context.ts'
import type {Firing} from './firing.ts'

export interface Settings {
  readonly timezone: string
  readonly submissionsPaused: boolean
  readonly firing: Firing
}

export function createSettings(
  {store, events, wakeup}: OperationsContext,
  firing: () => Promise<Firing>,
) {
  async function settings(): Promise<Settings> {
    const [timezone, submissionsPaused, paused] = await Promise.all([
      store.defaultTimezone(),
      store.paused(),
      firing(),
    ])
    return {timezone, submissionsPaused, firing: paused}
  }

  /** Jobs without a zone of their own are planned anew. Throws `payload_unparsable`, `body_invalid`. */
  async function changeSettings(body: Uint8Array, actor: Actor): Promise<Settings> {
    const zone = readTimezone(body)
    const was = await store.setTimezone(zone, actor)
    if (was !== zone) {
      events.emit('timezone_changed', {timezone: zone, was})
      wakeup.notify('launch')
    }
    return settings()
  }

  return {settings, changeSettings}
}

function readTimezone(body: Uint8Array): string {
  const json = readJsonBytes(body)
  if (json.kind === 'syntax')
    throw new DomainError('payload_unparsable', `Unable to parse payload: ${json.problem}`)
  if (json.kind === 'content') throw invalid(json.problem)
  if (!isObject(json.value)) throw invalid('the body must be a JSON object')
  const {timezone, ...others} = json.value
  const [other] = Object.keys(others)
  if (other !== undefined)
    throw invalid(`${other.slice(0, 100)}: cannot be changed here. Only timezone can`)
  if (typeof timezone !== 'string' || !isKnownZone(timezone)) {
    const shown = typeof timezone === 'string' ? JSON.stringify(timezone.slice(0, 64)) : 'this'
    throw invalid(
      `timezone: must be an IANA name such as "Europe/Berlin" or "UTC"; ${shown} is not known`,
    )
  }
  return timezone
}

function invalid(problem: string): DomainError {
  return new DomainError('body_invalid', `The settings cannot be changed: ${problem}.`)
}
