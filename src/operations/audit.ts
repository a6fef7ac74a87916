/** The audit log. */
import {type Principal, readableJobs} from '../core/authorization.ts'
import type {AuditEntry, AuditQuery} from '../ports/audit-store.ts'
import type {Page} from '../ports/page.ts'
import type {OperationsContext} from './context.ts'

export function createAudit({store}: OperationsContext) {
  /** Newest first. A client token sees the entries of the jobs that it may read, and no others. */
  function audit(query: Omit<AuditQuery, 'names'>, caller: Principal): Promise<Page<AuditEntry>> {
    return store.audit({...query, names: readableJobs(caller)})
  }

  return {audit}
}
