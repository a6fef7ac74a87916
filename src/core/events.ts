/**
 * The table of events: one row is everything about an event. Logs, metrics, the event stream and tests
 * subscribe; no decision depends on an event. Names are past tense. Payloads are plain data, because
 * `GET /v1/events` sends them. docs/reference/events.md is written from the table.
 */
import type {Capability} from './access/policy.ts'
import type {ExecutionStatus, FinalStatus} from './execution.ts'
import type {LaunchCause, LaunchDecision} from './launch-record.ts'
import type {Scheduling} from './node.ts'
import type {MessageKind} from './notice-message.ts'
import type {Step} from './steps.ts'
import {formatDuration} from '../lib/duration.ts'

/** debug: normal operation. info: events that an operator may look for later. warn: may need intervention. */
export type EventLevel = 'debug' | 'info' | 'warn' | 'error'

/**
 * Callers that receive an event in `GET /v1/events`; management tokens receive all but `null`.
 * `job`: may read the job of the event. `all_jobs`: may read all jobs; its text may name anything. `any`: it
 * names no job and no node. A capability on a path: what the event says is also in the reply of that route.
 * `null`: in no stream.
 */
type Audience = 'job' | 'all_jobs' | 'any' | readonly [Capability, path: string] | null

export interface EventRow<Payload> {
  /** `null` = not logged. */
  readonly log: EventLevel | ((data: Payload) => EventLevel) | null
  /** Log level for the documentation, if `log` does not say it. */
  readonly logged?: string
  /** Message of the log; default = the name. */
  readonly message?: string | ((data: Payload) => string)
  readonly shownTo: Audience
  /** Markdown, with links as in docs/reference/events.md. */
  readonly when: string
}

/** The type parameter is the payload; its fields are in the documentation. */
function event<Payload>(row: EventRow<Payload>): EventRow<Payload> {
  return row
}

const OF_MEMBERS = ['list', '/v1/members'] as const
const OF_CHANNELS = ['list', '/v1/notices/channels'] as const
const OF_RULES = ['list', '/v1/notices/rules'] as const
/** Their keys have names of jobs. */
const OF_INCIDENTS = ['list', '/v1/notices/incidents'] as const

export const EVENTS = {
  job_stored: event<{job: string; revision: number; created: boolean}>({
    log: 'info',
    message: ({created}) => (created ? 'job created' : 'job changed'),
    shownTo: 'job',
    when:
      'A definition was created or changed, or a job was enabled or disabled by a user. Not emitted ' +
      'by a restore',
  }),
  job_deleted: event<{job: string}>({
    log: 'info',
    shownTo: 'job',
    when: 'A job was deleted, by a user or because it was ephemeral',
  }),
  job_disabled: event<{job: string; reason: string}>({
    log: 'warn',
    message: 'job disabled by Belfry',
    shownTo: 'job',
    when: 'Belfry disabled a job itself; `reason` is `quarantined`',
  }),
  job_undecided: event<{job: string; reason: string}>({
    log: 'error',
    message: 'the planned times of a job cannot be decided',
    shownTo: 'job',
    when:
      'The leader cannot decide a job, such as one whose stored schedule it cannot read. Its planned ' +
      'times stay undecided, and the other jobs are decided. Once for each revision of the job and ' +
      'term',
  }),
  launch_decided: event<{
    job: string
    group: number
    cause: LaunchCause
    decision: LaunchDecision
    reason: string
    scheduled_at: number
    decided_at: number
    /** Number of planned times that the row covers. */
    count: number
  }>({
    // `LaunchLines` raises some to info.
    log: 'debug',
    logged:
      'info when missed, and when a job [begins or ends](process.md#log) to be late or without a ' +
      'node; else debug',
    shownTo: 'job',
    when:
      'A planned time or a request was decided, or begins to wait (`pending`); see [its ' +
      'fields](jobs.md#launch-history)',
  }),
  execution_started: event<{job: string; execution: string; node: string; attempt: number}>({
    log: 'debug',
    shownTo: 'job',
    when: 'An execution starts to run',
  }),
  execution_output: event<{job: string; execution: string; total_bytes: number}>({
    log: null,
    shownTo: 'job',
    when: 'More of its output was stored',
  }),
  execution_finished: event<{
    job: string
    execution: string
    node: string
    status: FinalStatus
    attempt: number
    duration_ms: number
    /** Absent on an agent, which does not know. */
    retried?: boolean
  }>({
    log: ({status}) => (status === 'succeeded' ? 'debug' : 'info'),
    logged: 'debug when succeeded, else info',
    message: ({status}) => `execution ended: ${status}`,
    shownTo: 'job',
    when:
      'An execution ended. `retried` is true if another attempt follows. An agent has this event, without ' +
      '`retried`, in its own log too',
  }),
  execution_abandoned: event<{
    job: string
    execution: string
    reason: 'disconnected' | 'claim_revoked'
  }>({
    log: 'warn',
    message: 'execution ended by its node without a request',
    shownTo: 'job',
    when:
      'A node ends an execution although no cancel was requested. `disconnected`: the node has not reached ' +
      'the store for 12 s and the job has `on_disconnect` = `stop`. `claim_revoked`: the execution was ' +
      'declared lost and must not continue, see [jobs.md](jobs.md#disconnected-nodes). An agent has ' +
      'this event only in its own log',
  }),
  execution_changed: event<{job: string; execution: string; status: ExecutionStatus}>({
    log: null,
    shownTo: 'job',
    when:
      'An execution was cancelled, or a cancel was requested. Or it is `pending` again, because its ' +
      'node was killed before starting it',
  }),
  submissions_paused: event<{paused: boolean}>({
    log: 'info',
    message: ({paused}) => (paused ? 'submissions paused' : 'submissions resumed'),
    shownTo: ['read', '/v1/pause'],
    when: 'Submissions were paused or resumed',
  }),
  timezone_changed: event<{timezone: string; was: string}>({
    log: 'info',
    shownTo: 'any',
    when: 'The default time zone was changed',
  }),
  firing_paused: event<{jobs: string; until: string; reason: string}>({
    log: 'info',
    shownTo: 'all_jobs',
    when:
      'Planned times of the jobs that match the glob `jobs` are skipped. `until` is empty if the ' +
      'pause does not end by itself',
  }),
  firing_resumed: event<{jobs: string; by: 'request' | 'until'}>({
    log: 'info',
    shownTo: 'all_jobs',
    when: 'A pause ended: `request` (by a caller), `until` (its time is over; on the leader)',
  }),
  term_began: event<{term: number; node: string}>({
    log: 'info',
    message: 'this server leads now',
    shownTo: OF_MEMBERS,
    when: 'This server became the leader',
  }),
  term_ended: event<{term: number; node: string; reason: string}>({
    log: 'info',
    message: 'this server leads no longer',
    shownTo: OF_MEMBERS,
    when: 'This server is no longer the leader',
  }),
  member_changed: event<{node: string; status: string}>({
    log: 'info',
    message: ({node, status}) =>
      `node ${node} ${status === 'left' || status === 'failed' ? 'has' : 'is'} ${status}`,
    shownTo: OF_MEMBERS,
    when:
      'A node became `alive`, `leaving`, `left` or `failed`. Or it was `forgotten` when its retention ' +
      'time ended, or `removed` by a user',
  }),
  scheduling_changed: event<{node: string; scheduling: Scheduling}>({
    log: 'info',
    shownTo: OF_MEMBERS,
    when:
      'A user cordoned, drained or uncordoned a node. `scheduling` is `active`, `cordoned`, ' +
      '`draining`, or `drained` if nothing ran on it',
  }),
  clock_stepped: event<{by_ms: number}>({
    log: 'warn',
    message: 'the clock of this machine jumped',
    shownTo: 'any',
    when: 'The wall clock jumped relative to the monotonic clock',
  }),
  clock_differs: event<{by_ms: number}>({
    log: 'warn',
    message: ({by_ms: byMs}) =>
      `the clock of this machine is ${formatDuration(Math.round(Math.abs(byMs) / 1_000) * 1_000)} ` +
      `${byMs > 0 ? 'ahead of' : 'behind'} that of the store. Set it by a time service`,
    shownTo: 'any',
    when:
      "The clock of this machine is more than a minute ahead of the store's, or behind it (negative); " +
      "agents compare theirs with the server's. Jobs run by the store's clock, so nothing is early or " +
      'late. Certificates and the times in this log are wrong',
  }),
  clock_held: event<{by_ms: number; for_ms: number}>({
    log: 'warn',
    message: 'the clock of the store jumped ahead; later planned times wait',
    shownTo: 'any',
    when:
      'The clock of the store is suddenly more than an hour ahead. Planned times beyond the time ' +
      'before the step wait until it has stood for `for_ms`',
  }),
  clock_was_wrong: event<{jobs: number; until: number}>({
    log: 'warn',
    message: 'a wrong clock has decided planned times in the future; those jobs wait',
    shownTo: 'any',
    when:
      'A new leader found jobs whose planned times were decided up to `until` in the future, by a ' +
      'clock that was ahead then. At most a thousand are counted. They [do not fire before ' +
      'it](schedules.md#a-clock-that-was-wrong): disable and enable them',
  }),
  certificate_expires: event<{setting: string; expires_at: number; days_left: number}>({
    log: 'warn',
    message: ({setting, days_left: days}) =>
      days < 0
        ? `the certificate of ${setting} has expired`
        : `the certificate of ${setting} expires soon`,
    shownTo: 'any',
    when:
      'The TLS certificate of `setting` (`--tls-cert`, or `--metrics-tls-cert` of an agent) ends ' +
      'within 14 days; `days_left` is negative if it has ended. At the start, when it is [read ' +
      'again](process.md#reload), and once a day',
  }),
  /** `file`: path on this server. */
  backup_made: event<{file: string; bytes: number; duration_ms: number}>({
    log: 'info',
    message: 'scheduled backup made',
    shownTo: 'all_jobs',
    when:
      'The leader made a [scheduled backup](../how-to/back-up-and-restore.md#schedule-backups) and ' +
      'checked it',
  }),
  backup_failed: event<{message: string}>({
    log: 'error',
    message: 'scheduled backup failed; it is tried again in 10 minutes',
    shownTo: 'all_jobs',
    when: 'The leader made no scheduled backup; it tries again in 10 minutes',
  }),
  incident_opened: event<{key: string; rule: string}>({
    log: 'info',
    message: ({key}) => `incident ${key} opened`,
    shownTo: OF_INCIDENTS,
    when: 'A condition of a rule of notices holds for a job or the cluster',
  }),
  incident_closed: event<{key: string; rule: string}>({
    log: 'info',
    message: ({key}) => `incident ${key} closed`,
    shownTo: OF_INCIDENTS,
    when: 'It no longer holds',
  }),
  notice_rule_stopped: event<{rule: string; author: string}>({
    log: 'warn',
    message: ({rule}) => `the rule ${rule} stopped: the policies of its author are deleted`,
    shownTo: OF_RULES,
    when:
      'The last policy of the author of a rule of notices was deleted, so the rule sees no job and sends ' +
      'nothing',
  }),
  notice_rule_resumed: event<{rule: string; author: string}>({
    log: 'info',
    message: ({rule}) => `the rule ${rule} acts again`,
    shownTo: OF_RULES,
    when: 'It was stored again by an author with policies, or one of these policies was',
  }),
  notice_facts_dropped: event<{count: number}>({
    log: 'error',
    message: ({count}) => `${count} facts for notices were dropped: too many waited`,
    shownTo: OF_CHANNELS,
    when: 'More than 100,000 facts waited for their evaluation; the oldest were dropped',
  }),
  notice_sent: event<{channel: string; message: string; kind: MessageKind; attempt: number}>({
    log: ({kind}) => (kind === 'alive' ? 'debug' : 'info'),
    logged: 'debug when a ping for the cluster, else info',
    message: ({channel}) => `notice delivered over ${channel}`,
    shownTo: OF_CHANNELS,
    when: 'A [notice](notice-channels.md) was delivered over a channel, also a test',
  }),
  notice_failed: event<{
    channel: string
    message: string
    kind: MessageKind
    attempt: number
    cause: string
  }>({
    log: 'warn',
    message: ({channel}) => `notice not delivered over ${channel}`,
    shownTo: OF_CHANNELS,
    when: 'An attempt to deliver a notice failed, also a test; `cause` says why',
  }),
  launch_pass_done: event<{due: number; requests: number; duration_ms: number}>({
    log: null,
    shownTo: null,
    when: 'The leader checked what is due',
  }),
  store_committed: event<{items: number; duration_ms: number}>({
    log: null,
    shownTo: null,
    when: 'The store committed a batch',
  }),
  schema_change_began: event<{schema: number}>({
    log: 'info',
    message: 'changing the schema of the store; with millions of launches this takes minutes',
    shownTo: 'any',
    when:
      'A server of a new release changes the schema of a store to the version `schema`, or builds ' +
      'indexes that are missing. It serves no requests until `schema_changed`; on PostgreSQL the other ' +
      'servers work on',
  }),
  schema_changed: event<{schema: number; duration_ms: number}>({
    log: 'info',
    message: 'schema of the store changed',
    shownTo: 'any',
    when: 'The schema of the store has the version `schema`',
  }),
  /** `changed`: names of the settings, separated by commas. */
  settings_reloaded: event<{changed: string}>({
    log: 'info',
    shownTo: 'any',
    when:
      '`SIGHUP`: the settings were read again, and those named in `changed` took effect. See ' +
      '[reload](process.md#reload)',
  }),
  reload_failed: event<{message: string}>({
    log: 'error',
    shownTo: 'all_jobs',
    when:
      '`SIGHUP`: the settings cannot be used, such as a certificate without its key. All stay as they ' +
      'were',
  }),
  step_failed: event<{step: Step; message: string}>({
    log: 'error',
    logged: 'error, at most once in 10 s for each step; `left_out` counts the others',
    shownTo: 'all_jobs',
    when: 'An internal step failed and will be retried; see [the steps](metrics.md#steps)',
  }),
} as const

export type EventName = keyof typeof EVENTS
export type EventPayloads = {
  [Name in EventName]: (typeof EVENTS)[Name] extends EventRow<infer Payload> ? Payload : never
}
export type BelfryEvent = {
  [Name in EventName]: {
    readonly name: Name
    readonly at: number
    readonly data: EventPayloads[Name]
  }
}[EventName]
