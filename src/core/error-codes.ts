/**
 * The table of error codes: one row is everything about a code. A `DomainError` carries the code, `http` adds
 * title and status. docs/reference/errors.md is written from the table.
 */

interface ErrorRow {
  /** The HTTP status of its reply. */
  readonly status: number
  /** The same for every error with this code. */
  readonly title: string
  /** When a caller receives it: Markdown, with links as in docs/reference/errors.md. */
  readonly when: string
  /** Advice to the caller; `''` = none. */
  readonly fix: string
}

/**
 * Every error code, as docs/reference/errors.md lists it. A released code keeps its meaning. The status is
 * for `http` only: no decision depends on it.
 */
export const ERROR_CODES = {
  payload_unparsable: {
    status: 400,
    title: 'The body is not JSON',
    when:
      'The body or the file is not JSON in UTF-8. The text begins with `Unable to parse ' +
      'payload`.',
    fix: 'Correct the JSON.',
  },
  job_invalid: {
    status: 400,
    title: 'The job definition is invalid',
    when:
      'Fields of the definition are invalid. The text begins with `Job validation failed:` and ' +
      'names the field. The member `errors` lists all faults, up to 50, as `{"field", ' +
      '"problem"}`; an empty `field` is the body as a whole.',
    fix: 'Correct the fields; [jobs.md](jobs.md) has the rules.',
  },
  body_invalid: {
    status: 400,
    title: 'The body does not hold what this operation needs',
    when: 'A field is unknown, missing or has an invalid value; or a restore has no part `file`.',
    fix:
      'Correct the field that the error names. A restore is `multipart/form-data` with a part ' +
      'of that name.',
  },
  query_invalid: {
    status: 400,
    title: 'A query parameter is invalid',
    when: 'A query parameter is not a number, or not one of its allowed values.',
    fix: 'The detail names the parameter and its allowed values.',
  },
  cursor_invalid: {
    status: 400,
    title: 'The position of a page is invalid',
    when: '`after` is not the `next` of a page of this list.',
    fix: 'Read the list from its beginning, without `after`.',
  },
  parameter_unknown: {
    status: 400,
    title: 'The route has no such query parameter',
    when:
      'The route has no query parameter of this name. Routes that existing clients call accept ' +
      'it, and name it in `X-Warnings`.',
    fix: 'Correct the name; `known` lists those that the route has.',
  },
  schedule_invalid: {
    status: 400,
    title: 'The schedule is invalid',
    when: 'The schedule or time zone of a preview is invalid.',
    fix: 'The detail says where; see [schedules.md](schedules.md).',
  },
  policy_invalid: {
    status: 400,
    title: 'The policy is invalid',
    when:
      'The body of a policy has no `Rules` text, `Rules` over 64 KiB, a name different from ' +
      'its path, or a name with invalid characters.',
    fix: 'Correct it. Rules that only make no sense are stored, with a warning.',
  },
  token_invalid: {
    status: 400,
    title: 'The token cannot be created as described',
    when: 'The name, type, policies, expiry, limits or uses of a new token are invalid.',
    fix: 'The detail names the field.',
  },
  secret_invalid: {
    status: 400,
    title: 'The secret cannot be set as described',
    when: 'The name or the value of a secret is invalid. The detail does not repeat the value.',
    fix: 'The detail says what is allowed.',
  },
  channel_invalid: {
    status: 400,
    title: 'The channel of notices is invalid',
    when:
      'The name, kind or configuration of a channel is invalid, or it names a secret that does not ' +
      'exist. The detail repeats no value.',
    fix: 'The detail names the fields; [channels](notice-channels.md) have the rules.',
  },
  feature_not_ready: {
    status: 409,
    title: 'A server of the previous release does not know this yet',
    when:
      'A [rule of notices](notice-rules.md) is stored while a server of an earlier release is a member. ' +
      'The detail names the server.',
    fix: 'Upgrade the server, or stop it, and repeat the request.',
  },
  rule_invalid: {
    status: 400,
    title: 'The rule of notices is invalid',
    when:
      'The definition of a rule is invalid, or names a channel that does not exist. The detail names all ' +
      'faults, by field.',
    fix: 'Correct the fields.',
  },
  restore_invalid: {
    status: 400,
    title: 'The file cannot be restored; nothing was changed',
    when:
      'A file contains jobs that cannot be restored; nothing was changed. The member `errors` ' +
      'lists up to 100 faults as `{"name", "field", "problem"}`; `field` is absent if the ' +
      'fault is not of one field.',
    fix: 'Correct the file.',
  },
  request_malformed: {
    status: 400,
    title: 'The request is not well formed',
    when:
      'The request is not valid HTTP: its URL, a header, no `Host` or several, or a body that ' +
      'ends too early.',
    fix: 'Correct the client.',
  },
  token_required: {
    status: 401,
    title: 'A valid token is required',
    when:
      'There is a token, in the configuration or stored, and the request has no valid one. It ' +
      'may have expired or been revoked.',
    fix: 'Send it as `X-Service-Token`.',
  },
  not_allowed: {
    status: 403,
    title: 'The token does not allow this',
    when:
      'The type or the policies of the token do not allow the request. The detail names the ' +
      'rule that decides. For a restore, the member `errors` lists up to 100 jobs as `{"name", ' +
      '"problem"}`; nothing was changed.',
    fix: '`belfry policy test`; see [access](../how-to/access.md#how-policies-decide).',
  },
  session_refused: {
    status: 403,
    title: 'A session cannot be opened by this caller',
    when: 'The request has no token to sign in with, or it was revoked.',
    fix: 'Send a token in `X-Service-Token`.',
  },
  token_not_configured: {
    status: 403,
    title: 'This caller is not served while no token is set',
    when: 'There is no token, and the request comes from another machine or through a proxy.',
    fix: 'Start the server with `--token`, or create a token on its machine.',
  },
  origin_refused: {
    status: 403,
    title: 'Requests from other web sites are refused',
    when: 'A page of another web site made a browser send the request.',
    fix: 'Send the request from a program, or start the server with `--cors-origin` for that site.',
  },
  route_unknown: {
    status: 404,
    title: 'There is nothing at this path',
    when: 'Nothing exists at this path.',
    fix: 'See [api.md](api.md).',
  },
  job_unknown: {
    status: 404,
    title: 'There is no such job',
    when: 'No job has this name.',
    fix: '',
  },
  parent_unknown: {
    status: 404,
    title: 'The parent job does not exist',
    when:
      '`parent_job` names a job that does not exist. The text begins with `specified parent ' +
      'job not found`.',
    fix: 'Create the parent first.',
  },
  execution_unknown: {
    status: 404,
    title: 'There is no such execution',
    when: 'The job has no execution with this id, or no longer has it.',
    fix: '',
  },
  revision_unknown: {
    status: 404,
    title: 'There is no such revision',
    when: 'The job has no revision with this number, or no longer has it.',
    fix: '',
  },
  launch_unknown: {
    status: 404,
    title: 'There is no such launch',
    when: 'There is no launch with this number, or no longer, or you may not read its job.',
    fix: '',
  },
  policy_unknown: {
    status: 404,
    title: 'There is no such policy',
    when: 'No policy has this name.',
    fix: '',
  },
  session_unknown: {
    status: 404,
    title: 'The request has no session',
    when: 'The caller has no session to end.',
    fix: 'Revoke a token with `DELETE /v1/acl/tokens/{accessor}`.',
  },
  token_unknown: {
    status: 404,
    title: 'There is no such token',
    when: 'No token has this accessor.',
    fix: 'See `GET /v1/acl/tokens`.',
  },
  secret_unknown: {
    status: 404,
    title: 'There is no such secret',
    when: 'No secret has this name.',
    fix: 'See `GET /v1/secrets`.',
  },
  channel_unknown: {
    status: 404,
    title: 'There is no such channel of notices',
    when: 'No channel of notices has this name.',
    fix: 'See `GET /v1/notices/channels`.',
  },
  rule_unknown: {
    status: 404,
    title: 'There is no such rule of notices',
    when: 'No rule of notices has this name.',
    fix: 'See `GET /v1/notices/rules`.',
  },
  message_unknown: {
    status: 404,
    title: 'There is no such message of a notice',
    when: 'No message has this id, or it is about jobs that the token may not read.',
    fix: 'See `GET /v1/notices/messages`.',
  },
  mute_unknown: {
    status: 404,
    title: 'There is no such mute',
    when: 'No mute in force has this id.',
    fix: 'See `GET /v1/notices/mutes`.',
  },
  member_unknown: {
    status: 404,
    title: 'There is no such member',
    when: 'No member has this id or name, or no longer has it.',
    fix: 'See `GET /v1/members`.',
  },
  method_not_allowed: {
    status: 405,
    title: 'This path does not answer this method',
    when: 'The path does not support this method. `Allow` lists those it supports.',
    fix: '',
  },
  request_timeout: {
    status: 408,
    title: 'The request took too long to arrive',
    when: 'The request did not arrive in time.',
    fix: 'Send it faster, or in parts.',
  },
  launch_open: {
    status: 409,
    title: 'A launch of this job is still open',
    when:
      "The job's `concurrency` is `forbid` and one of its launches is open: the member " +
      '`group`, and `location` to read it. Both are absent while processes of a deleted job ' +
      'with this name are still ending.',
    fix: 'Wait, cancel it, or add `?force=true`.',
  },
  no_target: {
    status: 409,
    title: 'No alive node matches the tags of the job',
    when: "No alive node that takes work matches the job's tags.",
    fix: 'Check the tags against `GET /v1/members`. If a matching node is cordoned, uncordon it.',
  },
  job_has_dependents: {
    status: 409,
    title: 'Other jobs depend on this one',
    when: 'Other jobs name this job as their parent: the member `dependent_jobs`.',
    fix: 'Delete or change them first.',
  },
  execution_over: {
    status: 409,
    title: 'The execution is already over',
    when: 'The execution to cancel has already ended: the member `execution_status`.',
    fix: '',
  },
  member_present: {
    status: 409,
    title: 'The member is alive or leaving',
    when: 'The member to remove is alive or leaving: the member `member_status`.',
    fix: 'Stop the node, or wait until it is `failed`.',
  },
  member_ambiguous: {
    status: 409,
    title: 'Several members have this name',
    when: 'Several members with this name have left or failed: the member `ids`, up to 10.',
    fix: 'Use the id of one of them.',
  },
  token_not_first: {
    status: 409,
    title: 'There is a management token already',
    when: 'There is a management token.',
    fix: 'Create further ones with it.',
  },
  too_many_tokens: {
    status: 409,
    title: 'There are as many tokens or policies as can be',
    when: 'There are 10,000 tokens, or 1,000 policies.',
    fix: 'Revoke or delete some.',
  },
  secret_key_unusable: {
    status: 409,
    title: 'This server has no key for secrets, or another one',
    when:
      'This server has no key for secrets, or another one than the stored secrets are ' +
      'encrypted with.',
    fix: 'Start it with [`--secret-key-file`](../how-to/secrets.md#make-a-key).',
  },
  too_many_pauses: {
    status: 409,
    title: 'There are as many pauses of firing as can be',
    when: 'There are 100 pauses of firing.',
    fix: 'End some, or use one glob for several jobs.',
  },
  channel_in_use: {
    status: 409,
    title: 'Rules send over this channel',
    when: 'A channel cannot be deleted while rules of notices name it.',
    fix: 'Change or delete the rules that the detail names.',
  },
  too_many_rules: {
    status: 409,
    title: 'There are as many rules of notices as can be',
    when: 'There are 200 rules of notices.',
    fix: 'Delete some, or use one glob for several jobs.',
  },
  too_many_mutes: {
    status: 409,
    title: 'There are as many mutes as can be',
    when: 'There are 100 mutes in force.',
    fix: 'End some, or use one glob for several jobs.',
  },
  too_many_channels: {
    status: 409,
    title: 'There are as many channels of notices as can be',
    when: 'There are 100 channels of notices.',
    fix: 'Delete some.',
  },
  too_many_secrets: {
    status: 409,
    title: 'There are as many secrets as can be',
    when: 'There are 1,000 secrets.',
    fix: 'Delete some.',
  },
  backup_running: {
    status: 409,
    title: 'A backup is already being made',
    when: 'Another backup is being made.',
    fix: 'Retry when it is done.',
  },
  restore_running: {
    status: 409,
    title: 'A restore is already in progress',
    when:
      'This server restores another file, of an administrator or, for a `client` token, of ' +
      'such a token.',
    fix: 'Retry when it is done.',
  },
  idempotency_in_progress: {
    status: 409,
    title: 'The first request with this key is in progress',
    when: 'The first request with this `Idempotency-Key` is not finished.',
    fix: 'Retry in a moment.',
  },
  precondition_failed: {
    status: 412,
    title: 'The job is not in the state the request expects',
    when:
      '`If-Match` or `If-None-Match` does not hold. The member `revision` is the current ' +
      'revision of the job, or `null` if there is no such job.',
    fix: 'Read the job again and decide anew.',
  },
  body_too_large: {
    status: 413,
    title: 'The body is too large',
    when:
      'The body is larger than 1 MiB, or a restore file is larger than 256 MiB or has more ' +
      'than 250,000 jobs.',
    fix: 'Send less, or use several files.',
  },
  encoding_unsupported: {
    status: 415,
    title: 'The encoding of the body is not supported',
    when: 'The body has a `Content-Encoding`.',
    fix: 'Send it uncompressed.',
  },
  expectation_unsupported: {
    status: 417,
    title: 'The expectation of the request is not supported',
    when: 'The header `Expect` is not `100-continue`.',
    fix: 'Leave it out.',
  },
  host_not_served: {
    status: 421,
    title: 'This server does not answer under that host name',
    when:
      'The `Host` header is not an address, not `localhost`, and not a name of this server, ' +
      'and the request has no valid token.',
    fix: 'Start the server with `--allow-host`.',
  },
  idempotency_mismatch: {
    status: 422,
    title: 'This key was used for another request',
    when: 'The `Idempotency-Key` was used for a different request within 24 hours.',
    fix: 'Use a new key.',
  },
  too_many_sessions: {
    status: 429,
    title: 'Too many sign-ins of one owner',
    when: 'More than 30 sign-ins of one token or person in a minute.',
    fix: 'Keep the session that was opened.',
  },
  too_many_runs: {
    status: 429,
    title: 'Too many runs of a job were requested',
    when:
      'Rate limit: the token requested more runs of the job than `--run-rate` per minute, or ' +
      'those of ten seconds at once, with `run` or `runoncreate`. The response has ' +
      '`Retry-After`.',
    fix: 'Wait for runs before you request more.',
  },
  too_many_tests: {
    status: 429,
    title: 'Too many tests of channels are in progress',
    when: 'This server is sending ten test messages over channels of notices.',
    fix: 'Retry in a few seconds.',
  },
  too_many_failures: {
    status: 429,
    title: 'Too many requests without a valid token',
    when:
      'Rate limit: more than 200 requests with a wrong token came from this address within 10 ' +
      's. Requests with a valid token, or without any, are answered as before.',
    fix: 'Wait, see `Retry-After`.',
  },
  headers_too_large: {
    status: 431,
    title: 'The headers are too large',
    when: 'The headers are larger than 16 KiB.',
    fix: 'Send fewer headers.',
  },
  internal: {
    status: 500,
    title: 'Internal error',
    when: 'An error in the server. The member `id` is in its log, with all details.',
    fix: 'Retry later; report the id.',
  },
  submissions_paused: {
    status: 503,
    title: 'Submissions are paused',
    when: 'Submissions are paused: no job can be created, replaced, restored or reverted.',
    fix: 'Wait, or `POST /v1/unpause`.',
  },
  store_unavailable: {
    status: 503,
    title: 'The store does not answer',
    when:
      'The store did not answer, or rejected the work; nothing was changed. Also for a stored ' +
      'token if the store did not answer for 15 minutes.',
    fix: 'Retry, see `Retry-After`.',
  },
  outcome_unknown: {
    status: 503,
    title: 'Whether the change was made is unknown',
    when: 'The store did not say whether the change was made.',
    fix: 'Read the object, or repeat the request with the same `Idempotency-Key`.',
  },
  no_leader: {
    status: 503,
    title: 'No server leads at the moment',
    when: 'No server is the leader at the moment.',
    fix: 'Retry; an election takes seconds.',
  },
  too_many_streams: {
    status: 503,
    title: 'Too many open event streams',
    when:
      '200 event streams are open on this server, or 50 of this token and its sessions, or it ' +
      'is shutting down. Management tokens have no share.',
    fix: 'Close some, or use another server.',
  },
  too_many_lists: {
    status: 503,
    title: 'Too many long lists in progress',
    when:
      'Four lists of jobs or running executions without `_end` are in progress on this server. ' +
      'The request waited for 10 s, or 100 others wait.',
    fix: 'Retry, see `Retry-After`, or request pages.',
  },
  too_many_agents: {
    status: 503,
    title: 'Too many connected agents',
    when:
      '2,000 agents are connected to this server, as many with this token as it may have (8 of ' +
      'type `agent`, 200 of type `join`), this token connects again and again, or it is shutting down.',
    fix: 'Nothing: the agent connects to another server, or tries again.',
  },
} as const satisfies Record<string, ErrorRow>

export type ErrorCode = keyof typeof ERROR_CODES
