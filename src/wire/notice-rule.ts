/** Rules of notices and mutes in JSON. Faults of a rule are named all at once, by field. */
import {type Static, Type} from 'typebox'
import {jobsGlobProblem, normalGlob, PAUSE_GLOB_LENGTH_MAX} from '../core/firing.ts'
import {MUTE_REASON_LENGTH_MAX} from '../core/notice-mute.ts'
import {
  checkRule,
  CONDITION_ROWS,
  type ConditionParameters,
  DAYS,
  RULE_DEFAULTS,
  type RuleDefinition,
} from '../core/notice-rule.ts'
import {SEVERITIES} from '../core/notice-message.ts'
import {parseLength} from '../lib/duration.ts'
import {formatTime, parseTime} from '../lib/rfc3339.ts'
import type {MuteRecord, MuteRequest, RuleRecord} from '../ports/notice-store.ts'
import {type BodyRefusal, decodeBody, fieldFaults, readFields, requireNone} from './body.ts'
import {isObject} from './json.ts'
import {Checked, MayBeUnset, schemaRef, TextForm, TextMap, Time} from './shapes.ts'

const Quiet = Type.Object({
  days: MayBeUnset(
    Type.Array(Type.String(), {description: `Among ${DAYS.join(', ')}; empty = every day.`}),
  ),
  from: Type.String({description: 'Time of day, such as `22:00`.'}),
  to: Type.String({description: 'Time of day; at or before `from` = on the next day.'}),
  timezone: Type.String({description: 'IANA name of a time zone.'}),
  except: MayBeUnset(Type.String({description: 'Rules of this severity are sent at once.'})),
})

const isQuiet = (value: unknown) => isObject(value) && fieldFaults(Quiet, value).length === 0

const FIELDS = {
  jobs: Type.String({description: 'The jobs: a name, in which `*` is any text.'}),
  metadata: TextMap('Pairs that a job must have in its metadata.'),
  owner: Type.String({description: 'Owner of the job; empty = any.'}),
  severity: Type.String({description: `One of ${SEVERITIES.join(', ')}.`}),
  to: Type.Array(Type.String(), {description: 'Names of channels.'}),
  when: Checked(
    Type.Record(Type.String(), Type.Record(Type.String(), Type.Unknown()), {
      description: '[Conditions](notice-rules.md) with their parameters.',
    }),
    () => null,
    'must be a JSON object of conditions, such as {"failed": {}}',
  ),
  recovered: Type.Boolean({description: 'Send also when it is over.'}),
  group_wait: Type.String({description: 'How long incidents are gathered into one message.'}),
  repeat: Type.String({description: 'A message repeats while the incident is open; or `never`.'}),
  quiet: Checked(
    Type.Array(Quiet, {description: 'Hours in which messages wait.'}),
    (hours) => (hours.every(isQuiet) ? null : QUIET),
    'must be a list of objects with from, to and timezone',
  ),
  output_lines: Type.Integer({description: 'Last lines of the output in a message.'}),
}
const QUIET = 'must be a list of objects with from, to and timezone'

export const NewRule = Type.Object(
  {
    name: MayBeUnset(Type.String({description: 'The same as in the path, or empty.'})),
    jobs: MayBeUnset(FIELDS.jobs),
    metadata: MayBeUnset(FIELDS.metadata),
    owner: MayBeUnset(FIELDS.owner),
    severity: MayBeUnset(FIELDS.severity),
    to: FIELDS.to,
    when: FIELDS.when,
    recovered: MayBeUnset(FIELDS.recovered),
    group_wait: MayBeUnset(FIELDS.group_wait),
    repeat: MayBeUnset(FIELDS.repeat),
    quiet: MayBeUnset(FIELDS.quiet),
    output_lines: MayBeUnset(FIELDS.output_lines),
  },
  {
    $id: 'NewNoticeRule',
    description: 'A rule of notices to store. Fields that are left out have their defaults.',
    examples: [{to: ['mail'], when: {failed: {}}}],
  },
)

export const Rule = Type.Object(
  {
    name: Type.String({description: 'Name of the rule.'}),
    ...FIELDS,
    revision: Type.Integer({description: 'Grows with each change.'}),
    updated_at: Time('When it was stored.'),
    updated_by: Type.String({description: 'Name of the token that stored it.'}),
    stopped: Type.Optional(
      Type.String({description: 'Why it sends nothing, although it is stored; absent if it acts.'}),
    ),
  },
  {$id: 'NoticeRule', description: 'A rule of notices.'},
)
export type RuleJson = Static<typeof Rule>

export const Rules = Type.Object(
  {rules: Type.Array(schemaRef(Rule), {description: 'Sorted by name.'})},
  {$id: 'NoticeRules', description: 'Rules of notices.'},
)
export type RulesJson = Static<typeof Rules>

const INVALID: BodyRefusal = {code: 'rule_invalid', sentence: 'The rule is invalid'}

/** Name of a rule that is only tried. */
const UNNAMED = 'preview'

/**
 * The definition is valid by `checkRule`. `path`: its name there; `null` = that of the body. Throws
 * `payload_unparsable`, `rule_invalid` with all faults.
 */
export function decodeRule(bytes: Uint8Array, path: string | null): RuleDefinition {
  const body = readFields(NewRule, bytes, INVALID)
  const own = typeof body['name'] === 'string' && body['name'] !== '' ? body['name'] : UNNAMED
  const name = path ?? own
  const faults = [...fieldFaults(NewRule, body)]
  const wrong = new Set(faults.map(({field}) => field))
  if (typeof body['name'] === 'string' && body['name'] !== '' && body['name'] !== name)
    faults.push({field: 'name', problem: `must be "${name}", as in the path, or be left out`})
  // Fields of a wrong type are checked as their defaults, so that the faults of all others are found too.
  const given = Object.fromEntries(
    Object.entries(body).filter(([field, value]) => !wrong.has(field) && value !== null),
  )
  const rule = definitionOf({...SOME_RULE, ...(given as Partial<Static<typeof NewRule>>)}, name)
  faults.push(...checkRule(rule).filter(({field}) => !wrong.has(rootOf(field))))
  requireNone(faults, INVALID)
  return rule
}

/** Values for fields that are missing, whose fault is known. */
const SOME_RULE = {to: ['x'], when: {failed: {}}}

function rootOf(field: string): string {
  return /^\w*/.exec(field)![0]
}

function definitionOf(given: Static<typeof NewRule>, name: string): RuleDefinition {
  const {quiet, when, ...others} = given
  return {
    ...RULE_DEFAULTS,
    ...(others as Partial<RuleDefinition>),
    name,
    to: given.to,
    when: withNumbers(when),
    quiet: (quiet ?? []).map((hours) => {
      return {...hours, days: hours.days ?? [], except: hours.except ?? ''}
    }),
  }
}

/** Counts as numbers: JSON is read with inner numbers as their text. `checkRule` checks each parameter. */
function withNumbers(when: Static<typeof NewRule>['when']): RuleDefinition['when'] {
  const counts = new Map(
    CONDITION_ROWS.flatMap(([name, {parameters}]) =>
      Object.entries(parameters).map(([key, {kind}]) => [`${name}.${key}`, kind === 'count']),
    ),
  )
  return Object.fromEntries(
    Object.entries(when).map(([name, given]) => {
      const entries = Object.entries(given).map(([key, value]) => {
        const isCount = counts.get(`${name}.${key}`) === true && /^\d{1,9}$/.test(String(value))
        return [key, isCount ? Number(value) : value]
      })
      return [name, Object.fromEntries(entries) as ConditionParameters]
    }),
  )
}

export function encodeRule({
  definition,
  revision,
  author,
  updatedAt,
  stopped = '',
}: RuleRecord & {readonly stopped?: string}): RuleJson {
  return {
    ...(definition as unknown as RuleJson), // the same fields; the type of parameters is wider
    revision,
    updated_at: formatTime(updatedAt),
    updated_by: author.name,
    ...(stopped === '' ? {} : {stopped}),
  }
}

export const Mute = Type.Object(
  {
    id: Type.Integer({description: 'What ends it: `DELETE /v1/notices/mutes/{id}`.'}),
    rule: Type.String({description: 'Name of a rule; empty = all rules.'}),
    jobs: Type.String({description: 'The jobs: a name, in which `*` is any text.'}),
    reason: Type.String({description: 'Why, in the words of the caller; empty = not said.'}),
    muted_at: Time('When it began.'),
    muted_by: Type.String({description: 'Name of the token.'}),
    until: Time('When it ends.'),
  },
  {$id: 'NoticeMute', description: 'Nothing is sent about these jobs; incidents continue.'},
)
export type MuteJson = Static<typeof Mute>

export const Mutes = Type.Object(
  {mutes: Type.Array(schemaRef(Mute), {description: 'Those in force, the oldest first.'})},
  {$id: 'NoticeMutes', description: 'Mutes of notices.'},
)
export type MutesJson = Static<typeof Mutes>

// oxlint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x1f\x7f-\x9f]/

export const NewMute = Type.Object(
  {
    rule: MayBeUnset(Type.String({description: 'Name of a rule; absent = all rules.'})),
    jobs: MayBeUnset(
      Checked(
        Type.String({
          description: 'The jobs: a name, in which `*` is any text. Absent = `*`, all jobs.',
          maxLength: PAUSE_GLOB_LENGTH_MAX,
        }),
        jobsGlobProblem,
      ),
    ),
    until: Checked(
      TextForm(
        'A time, or a duration from now such as `4h`, by the clock of the store; at most 30 days.',
        'must be a time such as "2026-05-01T08:30:00Z", or a duration such as "4h"',
        (text) => parseTime(text) !== null || parseLength(text) !== null,
      ),
      (text) => (text === '' ? 'must not be empty: a mute ends by itself' : null),
    ),
    reason: MayBeUnset(
      Checked(
        Type.String({description: 'Why, on one line.', maxLength: MUTE_REASON_LENGTH_MAX}),
        (text) => (CONTROL.test(text) ? 'must be a text on one line' : null),
      ),
    ),
  },
  {
    $id: 'NewNoticeMute',
    description: 'A mute of notices.',
    examples: [{jobs: 'etl-*', until: '4h', reason: 'warehouse move'}],
  },
)

/** Throws `payload_unparsable`, `body_invalid`. */
export function decodeMute(bytes: Uint8Array): MuteRequest {
  const {rule, jobs, until, reason} = decodeBody(NewMute, bytes, 'The mute is invalid')
  const at = parseTime(until)
  return {
    rule: rule ?? '',
    jobs: normalGlob(jobs ?? '*'),
    reason: reason ?? '',
    until: at === null ? {afterMs: parseLength(until)!} : {at},
  }
}

export function encodeMute({
  id,
  rule,
  jobs,
  reason,
  mutedAt,
  mutedBy,
  until,
}: MuteRecord): MuteJson {
  return {
    id,
    rule,
    jobs,
    reason,
    muted_at: formatTime(mutedAt),
    muted_by: mutedBy,
    until: formatTime(until),
  }
}
