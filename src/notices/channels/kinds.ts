/**
 * Table of the kinds of channels. A new kind needs one file, one line here and a section in the
 * reference.
 */
import {discord} from './discord.ts'
import type {Kind} from './kind.ts'
import {mail} from './mail.ts'
import {ntfy} from './ntfy.ts'
import {pagerduty} from './pagerduty.ts'
import {ping} from './ping.ts'
import {slack} from './slack.ts'
import {teams} from './teams.ts'
import {webhook} from './webhook.ts'

export const CHANNEL_KINDS: readonly Kind[] = [
  webhook,
  mail,
  slack,
  discord,
  teams,
  ntfy,
  pagerduty,
  ping,
]

/** `undefined` = no such kind. */
export function findKind(name: string): Kind | undefined {
  return CHANNEL_KINDS.find((kind) => kind.name === name)
}

/** Kinds whose receivers have a state of each incident. */
export const PER_INCIDENT_KINDS = CHANNEL_KINDS.filter(({perIncident}) => perIncident).map(
  ({name}) => name,
)
