/**
 * Errors that a caller may see: one class, with codes from one table. Operations throw them; HTTP,
 * the command line and the docs present them. Internal faults are never a `DomainError`: they stay
 * plain errors.
 */

/**
 * Every error code with its title. Each is documented in docs/reference/errors.md. A released code keeps its
 * meaning. HTTP statuses are in http/api/errors.ts.
 */
export const REFUSAL_TITLES = {
  payload_unparsable: 'The body is not JSON',
  job_invalid: 'The job definition is invalid',
  body_invalid: 'The body does not hold what this operation needs',
  query_invalid: 'A query parameter is invalid',
  parameter_unknown: 'The route has no such query parameter',
  schedule_invalid: 'The schedule is invalid',
  policy_invalid: 'The policy is invalid',
  token_invalid: 'The token cannot be created as described',
  secret_invalid: 'The secret cannot be set as described',
  restore_invalid: 'The file cannot be restored; nothing was changed',
  request_malformed: 'The request is not well formed',
  token_required: 'A valid token is required',
  session_refused: 'A session cannot be opened by this caller',
  token_not_configured: 'This caller is not served while no token is set',
  not_allowed: 'The token does not allow this',
  origin_refused: 'Requests from other web sites are refused',
  route_unknown: 'There is nothing at this path',
  job_unknown: 'There is no such job',
  parent_unknown: 'The parent job does not exist',
  execution_unknown: 'There is no such execution',
  launch_unknown: 'There is no such launch',
  revision_unknown: 'There is no such revision',
  policy_unknown: 'There is no such policy',
  token_unknown: 'There is no such token',
  secret_unknown: 'There is no such secret',
  session_unknown: 'The request has no session',
  member_unknown: 'There is no such member',
  method_not_allowed: 'This path does not answer this method',
  request_timeout: 'The request took too long to arrive',
  launch_open: 'A launch of this job is still open',
  no_target: 'No alive node matches the tags of the job',
  job_has_dependents: 'Other jobs depend on this one',
  execution_over: 'The execution is already over',
  member_present: 'The member is alive or leaving',
  member_ambiguous: 'Several members have this name',
  token_not_first: 'There is a management token already',
  too_many_tokens: 'There are as many tokens or policies as can be',
  secret_key_unusable: 'This server has no key for secrets, or another one',
  too_many_secrets: 'There are as many secrets as can be',
  too_many_pauses: 'There are as many pauses of firing as can be',
  backup_running: 'A backup is already being made',
  restore_running: 'A restore is already in progress',
  idempotency_in_progress: 'The first request with this key is in progress',
  precondition_failed: 'The job is not in the state the request expects',
  body_too_large: 'The body is too large',
  encoding_unsupported: 'The encoding of the body is not supported',
  expectation_unsupported: 'The expectation of the request is not supported',
  host_not_served: 'This server does not answer under that host name',
  idempotency_mismatch: 'This key was used for another request',
  too_many_failures: 'Too many requests without a valid token',
  too_many_sessions: 'Too many sign-ins of one owner',
  too_many_runs: 'Too many runs of a job were requested',
  headers_too_large: 'The headers are too large',
  internal: 'Internal error',
  submissions_paused: 'Submissions are paused',
  store_unavailable: 'The store does not answer',
  outcome_unknown: 'Whether the change was made is unknown',
  no_leader: 'No server leads at the moment',
  too_many_streams: 'Too many open event streams',
  too_many_lists: 'Too many long lists in progress',
  too_many_agents: 'Too many connected agents',
} as const satisfies Record<string, string>

export type RefusalCode = keyof typeof REFUSAL_TITLES

interface DomainErrorOptions {
  /** Further members of the problem document, e.g. the open launch. Plain data. */
  readonly members?: Readonly<Record<string, unknown>>
  /** Name of the job that the caller asked for in its body, for the audit log. Not in the response. */
  readonly job?: string
  /** Seconds after which a retry makes sense; absent = the code's own rule. */
  readonly retryAfterSeconds?: number
  readonly cause?: unknown
}

/** `message` is one sentence for people: the cause and, where possible, the fix. */
export class DomainError extends Error {
  override readonly name = 'DomainError'
  readonly code: RefusalCode
  readonly members: Readonly<Record<string, unknown>>
  readonly job: string | null
  readonly retryAfterSeconds: number | null

  constructor(code: RefusalCode, message: string, options: DomainErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : {cause: options.cause})
    this.code = code
    this.members = options.members ?? {}
    this.job = options.job ?? null
    this.retryAfterSeconds = options.retryAfterSeconds ?? null
  }
}
