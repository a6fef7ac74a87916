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

export const AUDIT_ACTIONS = [
  'job.create',
  'job.update',
  'job.revert',
  'job.toggle',
  'job.restore',
  'job.delete',
  'job.run',
  'job.reset',
  'execution.cancel',
  'member.remove',
  'member.leave',
  'member.cordon',
  'member.uncordon',
  'member.drain',
  'submissions.pause',
  'submissions.resume',
  'settings.update',
  'firing.pause',
  'firing.resume',
  'policy.set',
  'policy.delete',
  'token.create',
  'token.bind',
  'token.issue',
  'token.revoke',
  'secret.set',
  'secret.delete',
  'session.open',
  'session.end',
  'access.refused',
] as const
export type AuditAction = (typeof AUDIT_ACTIONS)[number]

export const AUDIT_TARGETS = [
  'job',
  'member',
  'cluster',
  'policy',
  'token',
  'session',
  'secret',
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
