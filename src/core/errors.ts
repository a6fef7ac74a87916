/**
 * Refusals to a caller: one error class, with codes from one table. It stands apart because everything that
 * refuses (operations) and everything that shows a refusal (HTTP, command line, docs) must mean the same by a
 * code. The HTTP status of a code is looked up here and nowhere else. Faults of our own are never refusals;
 * they stay plain errors.
 */

/** Every error code of the API, as listed in docs/reference/errors.md. A released code keeps its meaning. */
export const REFUSALS = {
  payload_unparsable: {status: 400, title: 'The body is not JSON'},
  job_invalid: {status: 400, title: 'The job definition is invalid'},
  body_invalid: {status: 400, title: 'The body does not hold what this operation needs'},
  query_invalid: {status: 400, title: 'A query parameter is invalid'},
  schedule_invalid: {status: 400, title: 'The schedule is invalid'},
  policy_invalid: {status: 400, title: 'The policy is invalid'},
  restore_invalid: {status: 400, title: 'The file cannot be restored; nothing was changed'},
  request_malformed: {status: 400, title: 'The request is not well formed'},
  token_required: {status: 401, title: 'A valid token is required'},
  token_not_configured: {status: 403, title: 'This caller is not served while no token is set'},
  origin_refused: {status: 403, title: 'Requests from other web sites are refused'},
  route_unknown: {status: 404, title: 'There is nothing at this path'},
  job_unknown: {status: 404, title: 'There is no such job'},
  parent_unknown: {status: 404, title: 'The parent job does not exist'},
  execution_unknown: {status: 404, title: 'There is no such execution'},
  launch_unknown: {status: 404, title: 'There is no such launch'},
  policy_unknown: {status: 404, title: 'There is no such policy'},
  member_unknown: {status: 404, title: 'There is no such member'},
  method_not_allowed: {status: 405, title: 'This path does not answer this method'},
  request_timeout: {status: 408, title: 'The request took too long to arrive'},
  launch_open: {status: 409, title: 'A launch of this job is still open'},
  no_target: {status: 409, title: 'No alive node matches the tags of the job'},
  job_has_dependents: {status: 409, title: 'Other jobs depend on this one'},
  execution_over: {status: 409, title: 'The execution is already over'},
  member_present: {status: 409, title: 'The member is alive or leaving'},
  member_ambiguous: {status: 409, title: 'Several members have this name'},
  backup_running: {status: 409, title: 'A backup is already being made'},
  idempotency_in_progress: {status: 409, title: 'The first request with this key is in progress'},
  precondition_failed: {status: 412, title: 'The job is not in the state the request expects'},
  body_too_large: {status: 413, title: 'The body is too large'},
  encoding_unsupported: {status: 415, title: 'The encoding of the body is not supported'},
  host_not_served: {status: 421, title: 'This server does not answer under that host name'},
  idempotency_mismatch: {status: 422, title: 'This key was used for another request'},
  too_many_failures: {status: 429, title: 'Too many requests without a valid token'},
  headers_too_large: {status: 431, title: 'The headers are too large'},
  internal: {status: 500, title: 'Internal error'},
  submissions_paused: {status: 503, title: 'Submissions are paused'},
  store_unavailable: {status: 503, title: 'The store does not answer'},
  outcome_unknown: {status: 503, title: 'Whether the change was made is unknown'},
  no_leader: {status: 503, title: 'No server leads at the moment'},
  too_many_streams: {status: 503, title: 'Too many open event streams'},
  too_many_agents: {status: 503, title: 'Too many connected agents'},
} as const satisfies Record<string, {readonly status: number; readonly title: string}>

export type RefusalCode = keyof typeof REFUSALS

export interface RefusalMore {
  /** Further members of the problem document, e.g. the open launch. Plain data. */
  readonly members?: Readonly<Record<string, unknown>>
  /** After how many seconds trying again makes sense; absent = the code's own rule. */
  readonly retryAfterSeconds?: number
  readonly cause?: unknown
}

/**
 * A refusal. `message` is one sentence for people that says what is wrong and, where possible, what to do.
 */
export class DomainError extends Error {
  override readonly name = 'DomainError'
  readonly code: RefusalCode
  readonly members: Readonly<Record<string, unknown>>
  readonly retryAfterSeconds: number | null

  constructor(code: RefusalCode, message: string, more: RefusalMore = {}) {
    super(message, more.cause === undefined ? undefined : {cause: more.cause})
    this.code = code
    this.members = more.members ?? {}
    this.retryAfterSeconds = more.retryAfterSeconds ?? null
  }
}

/** The one place where a code becomes an HTTP status. */
export function statusOf(code: RefusalCode): number {
  return REFUSALS[code].status
}
