/** The audit log: changes, refused accesses, and who asked for them. */
import type {Actor, AuditResult, AuditTarget, Change} from '../core/audit.ts'
import type {NameFilter} from '../core/access/authorization.ts'
import type {JobSpec} from '../core/job.ts'
import type {Page, Slice} from './page.ts'

export interface AuditEntry {
  /** Grows with time. */
  readonly id: number
  readonly at: number
  readonly actor: Actor
  /** May be of a newer release. */
  readonly action: string
  readonly result: AuditResult
  readonly targetType: AuditTarget
  readonly target: string
  readonly detail: string
  /** Revision of a changed definition; `null` = there was none, or none is left. */
  readonly revisionBefore: number | null
  readonly revisionAfter: number | null
  /** Definition of a job as JSON of a `JobSpec`, or rules of a policy; `null` = none, or too long. */
  readonly before: string | null
  readonly after: string | null
}

/** `''` and `null` = all. */
export interface AuditQuery extends Slice {
  /** Name or accessor. */
  readonly actor: string
  /** An action, or the part before its `.`. */
  readonly action: string
  readonly targetType: AuditTarget | null
  readonly target: string
  readonly result: AuditResult | null
  /** Inclusive; ms since the epoch. */
  readonly from: number | null
  /** Exclusive. */
  readonly to: number | null
  /** Only entries of these jobs, with the definitions of live ones only; `null` = all of all entries. */
  readonly names: NameFilter
}

/** A revision of a job's definition, and the change that made it. */
export interface Revision {
  readonly revision: number
  /** `null` = its entry is deleted, or an earlier release made it. */
  readonly change: Pick<AuditEntry, 'at' | 'actor' | 'action' | 'detail'> | null
}

export interface PruneAuditRequest {
  readonly term: number
  /** Older entries are deleted. */
  readonly keepMs: number
  /** Entries kept; the oldest are deleted first. */
  readonly keepEntries: number
  /** Limit among these for entries of refused accesses. */
  readonly keepRefused: number
  /** Size of all earlier definitions. Beyond it entries lose their definition, the oldest first. */
  readonly keepBytes: number
  /** Earlier definitions of each live job, whose entries stay in any case. */
  readonly keepRevisions: number
  /** Cursor: entries after this one are visited. */
  readonly after: number
  /** Entries visited in this call. */
  readonly limit: number
}

export interface PruneAuditResult {
  /** `after` of the next call of this round. */
  readonly next: number
  readonly isRoundOver: boolean
  readonly rowsDeleted: number
}

export interface AuditStore {
  /** Newest first. */
  audit(query: AuditQuery): Promise<Page<AuditEntry>>
  /** Revisions of a live job, newest first. `null` = no such job. */
  revisions(name: string, slice: Slice): Promise<Page<Revision> | null>
  /** `null` = no such job, or the definition of this revision is not kept. */
  revision(
    name: string,
    revision: number,
  ): Promise<{readonly revision: Revision; readonly spec: JobSpec} | null>
  /** Retention. Throws `TermOver`. */
  pruneAudit(request: PruneAuditRequest): Promise<PruneAuditResult>
  /** Records changes that no other method of the store makes. All of them or none. */
  recordAudit(changes: readonly Change[]): Promise<void>
}
