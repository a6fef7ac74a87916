/**
 * The audit log: the words for who did what. Each change is recorded in its own transaction. The row of a
 * changed job holds the replaced definition, so the same rows are the job's history.
 */
import type {Principal} from './access/authorization.ts'
import type {JobRecord} from './job.ts'
import {definitionText} from './job-fields.ts'

/** Author of a change. Never has a secret. */
export interface Actor {
  /** Name of the token; `local` without one, `configured` for that of the configuration, and its sessions. */
  readonly name: string
  /** Public id of the token; `''` for the others. */
  readonly accessor: string
  /** Kind of the token; `''` = Belfry itself. */
  readonly kind: string
  /** Peer address of the connection; `''` = none. */
  readonly address: string
}

/** The actor of a change that no caller has asked for. */
export const BELFRY: Actor = {name: 'belfry', accessor: '', kind: '', address: ''}

/** `isLocal`: a caller on this machine, without a token. */
export function actorOf({name, accessor, kind}: Principal, isLocal: boolean, address = ''): Actor {
  const unnamed = isLocal ? 'local' : 'configured'
  return {name: name === '' ? unnamed : name, accessor, kind, address}
}

/** Every action, and what was done: Markdown, with links as in docs/how-to/access.md, written from it. */
export const AUDIT_ROWS = {
  'job.create': 'A job was created',
  'job.update': 'A definition was replaced, or changed by a merge patch',
  'job.revert': 'A definition was replaced by an earlier revision',
  'job.toggle':
    'A job was enabled or disabled. Belfry itself disables a job whose launches kill nodes',
  'job.restore':
    'A definition was created or replaced by the restore of a file; one entry for each job',
  'job.delete': 'A job and its history were deleted',
  'job.run': 'A run was requested',
  'job.reset': 'The history of a job was deleted, and its counters reset',
  'execution.cancel': 'An execution was cancelled',
  'member.remove': 'A member was removed',
  'member.leave': 'A member was asked to leave',
  'member.cordon': 'A node was [cordoned](maintain-a-node.md)',
  'member.uncordon': 'A node was uncordoned',
  'member.drain': 'A node was drained, or its drain got a new deadline',
  'submissions.pause': 'Submissions were paused',
  'submissions.resume': 'Submissions were resumed',
  'settings.update': 'The default time zone was changed',
  'firing.pause': 'Firing was paused for some jobs or all',
  'firing.resume':
    'A pause of firing was ended, or firing was resumed in a store that was put back',
  'policy.set': 'A policy was created or replaced',
  'policy.delete': 'A policy was deleted',
  'token.create': 'A token was created',
  'token.bind': 'The first join of an agent bound its token to the node',
  'token.issue': 'An agent got a token of its own for a join token',
  'token.revoke': 'A token was revoked',
  'secret.set': 'The value of a secret was set or replaced',
  'secret.delete': 'A secret was deleted',
  'channel.set': 'A [channel of notices](notices.md) was created or replaced',
  'channel.delete': 'A channel of notices was deleted',
  'channel.test': 'A test message was sent over a channel of notices',
  'message.resend': 'A message of a notice was sent again',
  'rule.set': 'A [rule of notices](notices.md) was created or replaced',
  'rule.delete': 'A rule of notices was deleted',
  'mute.set': 'Notices about some jobs were muted',
  'mute.end': 'A mute was ended by a request',
  'session.open': 'A browser signed in',
  'session.end': 'A session of a browser was ended',
  'access.refused':
    'Requests got 401 or 403, or 429 for too many without a token; or an agent may not join',
} as const

export type AuditAction = keyof typeof AUDIT_ROWS
export const AUDIT_ACTIONS = Object.keys(AUDIT_ROWS) as AuditAction[]

export const AUDIT_TARGETS = [
  'job',
  'member',
  'cluster',
  'policy',
  'token',
  'session',
  'secret',
  'channel',
  'rule',
  'mute',
  'message',
  'path',
] as const
export type AuditTarget = (typeof AUDIT_TARGETS)[number]

export type AuditResult = 'done' | 'refused'

/** A change, or a refused access, to record. */
export interface Change {
  /** Absent = Belfry itself. */
  readonly actor?: Actor | undefined
  readonly action: AuditAction
  /** Absent = `done`. */
  readonly result?: AuditResult
  readonly targetType: AuditTarget
  /** Name of the target. */
  readonly target: string
  /** Text that tells the change from others, for people. Never a secret. */
  readonly detail?: string
  /** A change of a definition: internal id of the job, and its revisions; `null` = there is none. */
  readonly job?: {
    readonly id: number
    readonly before: number | null
    readonly after: number | null
  }
  /** Text that the change replaced: the definition of the job, or the rules of the policy. */
  readonly replaced?: string
}

/** Effect of a change on the definition of a stored job. `after` `null` = the job was deleted. */
export function replacedBy(
  {id, revision, spec}: JobRecord,
  after: number | null,
): Pick<Change, 'job' | 'replaced'> {
  return {job: {id, before: revision, after}, replaced: definitionText(spec)}
}
