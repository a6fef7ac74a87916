/** The audit log and the history of jobs in JSON. */
import {type Static, Type} from 'typebox'
import {type Actor, AUDIT_TARGETS, type AuditTarget} from '../core/audit.ts'
import {type JobSpec, specOf} from '../core/job-fields.ts'
import type {
  AuditEntry as AuditEntryRecord,
  Revision as RevisionRecord,
} from '../ports/audit-store.ts'
import {encodeDefinition} from './job.ts'
import {isObject} from './json.ts'
import {PageQuery, type Query, PAGE_ROWS_MAX, readSlice, readTime} from './query.ts'
import {formatOptionalTime, formatTime} from '../lib/rfc3339.ts'
import {OptionalTime, Time} from './shapes.ts'

export const RESULTS = ['done', 'refused'] as const

const Fields = (description: string) =>
  Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()], {description})
const OptionalRevision = (description: string) =>
  Type.Union([Type.Integer(), Type.Null()], {description})

const ACTOR_FIELDS = {
  actor: Type.String({
    description:
      'Name of the token; `local` without one, `configured` for that of the configuration, `belfry` for ' +
      'Belfry itself.',
  }),
  accessor: Type.String({description: 'Public id of the token; empty = it is not a stored one.'}),
  token_type: Type.String({description: 'Type of the token; empty = Belfry itself.'}),
  address: Type.String({description: 'Peer address of the connection; empty = none.'}),
}

export const AuditEntry = Type.Object(
  {
    id: Type.Integer({description: 'Grows with time.'}),
    at: Time('When it was stored.'),
    ...ACTOR_FIELDS,
    action: Type.String({description: 'What was done, such as `job.update`.'}),
    result: Type.Enum([...RESULTS]),
    target_type: Type.Enum([...AUDIT_TARGETS], {description: 'What it was done to.'}),
    target: Type.String({description: 'Name of the target; empty = the cluster.'}),
    detail: Type.String({description: 'More about it, for people.'}),
    revision_before: OptionalRevision('Revision of a changed job; `null` = it was created.'),
    revision_after: OptionalRevision('Revision of a changed job; `null` = it was deleted.'),
    before: Fields(
      'Fields of the definition of a job, or of a policy, that the change replaced, as they were; `null` = ' +
        'there was none, or it is longer than a list may have: read the revision.',
    ),
    after: Fields('The same fields as they are after the change.'),
  },
  {$id: 'AuditEntry', description: 'A change or a refused access, and who asked for it.'},
)
export type AuditEntryJson = Static<typeof AuditEntry>

/** The change that made a revision. Empty and `null` = it is not known any more. */
const REVISION_FIELDS = {
  revision: Type.Integer({
    description: 'Number of the revision; that of the newest one is the first part of the `ETag`.',
  }),
  at: OptionalTime('When it was stored.'),
  ...ACTOR_FIELDS,
  action: Type.String({description: 'What was done, such as `job.update`.'}),
  detail: Type.String({description: 'More about it, for people.'}),
}

export const Revision = Type.Object(REVISION_FIELDS, {
  $id: 'Revision',
  description:
    'A revision of a job, and who made it. That is empty or `null` if it is not known any more.',
})
export type RevisionJson = Static<typeof Revision>

export const RevisionDefinition = Type.Object(
  {
    ...REVISION_FIELDS,
    definition: Type.Record(Type.String(), Type.Unknown(), {
      description: 'The definition, as a request has it.',
    }),
  },
  {$id: 'RevisionDefinition', description: 'A revision of a job with its definition.'},
)
export type RevisionDefinitionJson = Static<typeof RevisionDefinition>

export const RevisionDiff = Type.Object(
  {
    from: OptionalRevision('The earlier revision; `null` = the job did not exist.'),
    to: Type.Integer({description: 'The later revision.'}),
    before: Fields('The fields that differ, as they were; of maps, the entries that differ.'),
    after: Fields('The same fields as they are.'),
  },
  {$id: 'RevisionDiff', description: 'What differs between two revisions of a job.'},
)
export type RevisionDiffJson = Static<typeof RevisionDiff>

const text = (description: string) => Type.Optional(Type.String({description}))

export const AuditListQuery = Type.Object({
  actor: text('Only of this token: its name or accessor.'),
  action: text('Only this action, such as `job.update`, or all of a kind, such as `job`.'),
  job: text('Only of this job.'),
  target: text('Only of the target of this name, of any type.'),
  result: Type.Optional(Type.Enum([...RESULTS], {description: 'Only with this result.'})),
  from: text('Not before this time.'),
  to: text('Before this time.'),
  ...PageQuery.properties,
})

export function readAuditQuery(query: Query) {
  const job = query.text('job')
  return {
    ...readSlice(query, PAGE_ROWS_MAX),
    actor: query.first('actor') ?? '',
    action: query.first('action') ?? '',
    targetType: job === null ? null : ('job' as const),
    target: job ?? query.first('target') ?? '',
    result: query.choice('result', RESULTS),
    from: readTime(query, 'from'),
    to: readTime(query, 'to'),
  }
}

export function encodeAuditEntry(entry: AuditEntryRecord): AuditEntryJson {
  const {targetType, revisionBefore, revisionAfter} = entry
  const isLeftOut =
    (revisionBefore !== null && entry.before === null) ||
    (revisionAfter !== null && entry.after === null)
  const [before, after] = [entry.before, entry.after].map((stored) =>
    documentOf(targetType, stored),
  )
  return {
    id: entry.id,
    at: formatTime(entry.at),
    ...encodeActor(entry.actor),
    action: entry.action,
    result: entry.result,
    target_type: targetType,
    target: entry.target,
    detail: entry.detail,
    revision_before: revisionBefore,
    revision_after: revisionAfter,
    ...(isLeftOut ? {before: null, after: null} : changedFields(before ?? null, after ?? null)),
  }
}

const NOBODY: Actor = {name: '', accessor: '', kind: '', address: ''}

export function encodeRevision({revision, change}: RevisionRecord): RevisionJson {
  return {
    revision,
    at: formatOptionalTime(change?.at ?? null),
    ...encodeActor(change?.actor ?? NOBODY),
    action: change?.action ?? '',
    detail: change?.detail ?? '',
  }
}

export function encodeRevisionDefinition(found: {
  readonly revision: RevisionRecord
  readonly spec: JobSpec
}): RevisionDefinitionJson {
  return {...encodeRevision(found.revision), definition: encodeDefinition(found.spec)}
}

export function encodeDiff(diff: {
  readonly from: number | null
  readonly to: number
  readonly before: JobSpec | null
  readonly after: JobSpec
}): RevisionDiffJson {
  const {from, to, before, after} = diff
  const fields = changedFields(
    before === null ? null : encodeDefinition(before),
    encodeDefinition(after),
  )
  return {from, to, ...fields}
}

function encodeActor({name, accessor, kind, address}: Actor) {
  return {actor: name, accessor, token_type: kind, address}
}

type Fields = Readonly<Record<string, unknown>>

function documentOf(targetType: AuditTarget, stored: string | null): Fields | null {
  if (stored === null) return null
  return targetType === 'job' ? encodeDefinition(specOf(stored)) : {Rules: stored}
}

/**
 * The fields that differ, as they were and as they are; of maps only the entries that differ. If one of the
 * two is missing, all fields of the other.
 */
export function changedFields(
  before: Fields | null,
  after: Fields | null,
): {before: Record<string, unknown> | null; after: Record<string, unknown> | null} {
  if (before === null || after === null)
    return {before: before === null ? null : {...before}, after: after === null ? null : {...after}}
  const was: Record<string, unknown> = {}
  const is: Record<string, unknown> = {}
  for (const field of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [one, other] = [before[field], after[field]]
    if (JSON.stringify(one) === JSON.stringify(other)) continue
    const isMap = isObject(one) && isObject(other)
    const inner = isMap ? changedFields(one, other) : {before: one, after: other}
    // A map whose entries only have another order, which matters for processors.
    const isReordered = isMap && isEmpty(inner.before) && isEmpty(inner.after)
    if (field in before) was[field] = isReordered ? one : inner.before
    if (field in after) is[field] = isReordered ? other : inner.after
  }
  return {before: was, after: is}
}

function isEmpty(map: unknown): boolean {
  return isObject(map) && Object.keys(map).length === 0
}
