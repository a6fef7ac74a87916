/**
 * The headers that make a write conditional, read into what the operations understand; and the tag that
 * answers carry.
 */
import type {IncomingHttpHeaders} from 'node:http'
import type {JobRecord} from '../core/job.ts'
import type {RevisionMatch} from '../ports/job-store.ts'

export function entityTag(job: Pick<JobRecord, 'revision'>): string {
  return `"${job.revision}"`
}

/**
 * Tags that are not ours match nothing, so they make an empty list. A weak one is taken as ours: proxies that
 * compress weaken the tag they pass on, and a revision means the same either way.
 */
export function readIfMatch(headers: IncomingHttpHeaders): RevisionMatch {
  const value = headers['if-match']
  if (value === undefined) return null
  if (value.trim() === '*') return '*'
  return [...value.matchAll(/(?:^|,)\s*(?:W\/)?"([1-9]\d{0,14})"\s*(?=,|$)/g)].map((match) =>
    Number(match[1]),
  )
}

export function readCreateOnly(headers: IncomingHttpHeaders): boolean {
  return headers['if-none-match']?.trim() === '*'
}

export function readIdempotencyKey(headers: IncomingHttpHeaders): string | null {
  const value = headers['idempotency-key']
  if (value === undefined) return null
  return Array.isArray(value) ? value.join(', ') : value
}
