/**
 * The history of the schema: numbered migrations, forward only, each applied in one transaction by the first
 * process that opens the store. A released migration is never edited. A change is a new migration, additive
 * for one release, so that servers one release apart work together; CONTRIBUTING.md has the rules.
 * docs/reference/schema.md describes every table and column.
 */
import type {Dialect} from './query.ts'
import type {WriteQueueOptions} from './write-queue.ts'

export interface Migration {
  readonly version: number
  statements(dialect: Dialect): readonly string[]
}

const first: Migration = {
  version: 1,
  statements: (dialect) => [...jobTables(dialect), ...runTables(dialect), ...otherTables(dialect)],
}

/** Retention finds the deleted jobs that are due for removal, and reads no others. */
const deletedJobs: Migration = {
  version: 2,
  statements: () => [
    `CREATE INDEX jobs_deleted ON jobs (id) WHERE deleted_at IS NOT NULL AND kept_group IS NULL`,
    `CREATE INDEX jobs_kept ON jobs (deleted_at, id) WHERE kept_group IS NOT NULL`,
  ],
}

const access: Migration = {
  version: 3,
  statements: (dialect) => [
    ...tokenTables(dialect),
    ...auditTables(dialect),
    ...secretTables(dialect),
  ],
}

const operations: Migration = {
  version: 4,
  statements: (dialect) => [
    ...pauseTables(dialect),
    ...memberColumns(dialect),
    // Metrics count disabled jobs at every scrape. Enabled jobs, which launches update, are not in it.
    `CREATE INDEX jobs_disabled ON jobs (id) WHERE disabled = 1 AND deleted_at IS NULL`,
  ],
}

const repairs: Migration = {
  version: 5,
  statements: (dialect) => [...executionColumns(dialect)],
}

const night: Migration = {
  version: 6,
  statements: (dialect) => [
    ...launchColumns(dialect),
    ...jobColumns(dialect),
    // A server of schema 5 does not write it.
    `ALTER TABLE members ADD COLUMN knows_schema ${dialect.columns.text}`,
    ...eventTables(dialect),
    ...noticeTables(dialect),
    ...incidentTables(dialect),
  ],
}

export const MIGRATIONS: readonly Migration[] = [
  first,
  deletedJobs,
  access,
  operations,
  repairs,
  night,
]
export const SCHEMA_VERSION = MIGRATIONS.at(-1)!.version

/** Reports a change of the schema of a store that has one: `began` may be called again, `ended` after it. */
export function schemaReport({clock, events}: WriteQueueOptions): {
  readonly began: () => void
  readonly ended: () => void
} {
  let beganAt: number | null = null
  return {
    began: () => {
      if (beganAt !== null) return
      beganAt = clock.monotonicMs()
      events?.emit('schema_change_began', {schema: SCHEMA_VERSION})
    },
    ended: () => {
      if (beganAt === null) return
      const durationMs = Math.round(clock.monotonicMs() - beganAt)
      events?.emit('schema_changed', {schema: SCHEMA_VERSION, duration_ms: durationMs})
    },
  }
}

/** Releases a server may be behind the schema: the next migration only adds, later ones may remove. */
const RELEASES_BEHIND_MAX = 1

/**
 * Why a release that knows `migrations` cannot use a schema of this version, as a sentence without its
 * subject; `null` = it can.
 */
export function whyTooNew(version: number, migrations = MIGRATIONS): string | null {
  const known = migrations.at(-1)!.version
  if (version <= known + RELEASES_BEHIND_MAX) return null
  const range = `this one knows ${known} and works on ${known + RELEASES_BEHIND_MAX}`
  return `was written by a newer Belfry (schema ${version}, ${range}); start a newer version`
}

/** Rows of `jobs` are narrow, for filtering and sorting; the definition is in a table of its own. */
function jobTables(dialect: Dialect): string[] {
  const {
    columns: {integer, text},
    createSequence,
  } = dialect
  return [
    createSequence('job'),
    createSequence('launch'),
    `CREATE TABLE jobs (
      id ${integer} PRIMARY KEY,
      name ${text} NOT NULL,
      displayname ${text} NOT NULL,
      search_text ${text} NOT NULL,
      schedule ${text} NOT NULL,
      parent ${text} NOT NULL,
      ephemeral ${integer} NOT NULL,
      retries ${integer} NOT NULL,
      disabled ${integer} NOT NULL,
      revision ${integer} NOT NULL,
      next_at ${integer},
      decided_until ${integer},
      anchor_at ${integer} NOT NULL,
      success_count ${integer} NOT NULL,
      error_count ${integer} NOT NULL,
      last_success ${integer},
      last_error ${integer},
      status ${text} NOT NULL,
      status_group ${integer} NOT NULL,
      created_at ${integer} NOT NULL,
      updated_at ${integer} NOT NULL,
      deleted_at ${integer},
      deleted_why ${text} NOT NULL,
      kept_group ${integer}
    )`,
    `CREATE UNIQUE INDEX jobs_live_name ON jobs (name) WHERE deleted_at IS NULL`,
    `CREATE INDEX jobs_due ON jobs (next_at, id) WHERE next_at IS NOT NULL`,
    `CREATE INDEX jobs_parent ON jobs (parent, name) WHERE deleted_at IS NULL AND parent <> ''`,
    `CREATE INDEX jobs_gone ON jobs (name, id) WHERE deleted_at IS NOT NULL`,
    `CREATE TABLE definitions (job_id ${integer} PRIMARY KEY, definition ${text} NOT NULL)`,
    ...metadataTable(dialect),
  ]
}

/** Keys may be long. SQLite's indexes hold any length; PostgreSQL's do not, so its index is a hash. */
function metadataTable({engine, columns: {integer, text}, keyOrganised}: Dialect): string[] {
  const columns = `job_id ${integer} NOT NULL, key ${text} NOT NULL, value ${text} NOT NULL`
  return engine === 'sqlite'
    ? [
        `CREATE TABLE job_metadata (${columns}, PRIMARY KEY (job_id, key))${keyOrganised}`,
        `CREATE INDEX job_metadata_key ON job_metadata (key, job_id)`,
      ]
    : [
        `CREATE TABLE job_metadata (${columns})`,
        `CREATE INDEX job_metadata_job ON job_metadata (job_id)`,
        `CREATE INDEX job_metadata_key ON job_metadata USING hash (key)`,
      ]
}

/** Partial indexes find live rows, so that the cost does not grow with the history. */
function runTables({columns: {integer, text, bytes}, keyOrganised}: Dialect): string[] {
  return [
    `CREATE TABLE launches (
      group_id ${integer} PRIMARY KEY,
      job_id ${integer} NOT NULL,
      job_name ${text} NOT NULL,
      cause ${text} NOT NULL,
      decision ${text} NOT NULL,
      reason ${text} NOT NULL,
      scheduled_at ${integer} NOT NULL,
      scheduled_until ${integer} NOT NULL,
      planned_count ${integer} NOT NULL,
      stored_at ${integer} NOT NULL,
      decided_at ${integer},
      term ${integer},
      forced ${integer} NOT NULL,
      parent_group ${integer},
      open ${integer} NOT NULL,
      retries_ended ${integer} NOT NULL,
      node_deaths ${integer} NOT NULL
    )`,
    `CREATE UNIQUE INDEX launches_planned ON launches (job_id, scheduled_at) WHERE cause = 'schedule'`,
    `CREATE UNIQUE INDEX launches_follow ON launches (parent_group, job_id)
      WHERE parent_group IS NOT NULL`,
    `CREATE INDEX launches_of_job ON launches (job_id, group_id, decision)`,
    `CREATE INDEX launches_open ON launches (job_name, group_id) WHERE open = 1`,
    `CREATE INDEX launches_pending ON launches (group_id) WHERE decision = 'pending'`,
    `CREATE TABLE executions (
      group_id ${integer} NOT NULL,
      node_name ${text} NOT NULL,
      attempt ${integer} NOT NULL,
      job_id ${integer} NOT NULL,
      job_name ${text} NOT NULL,
      node_id ${text} NOT NULL,
      slot ${integer} NOT NULL,
      status ${text} NOT NULL,
      revision ${integer} NOT NULL,
      created_at ${integer} NOT NULL,
      not_before ${integer} NOT NULL,
      started_at ${integer},
      finished_at ${integer},
      cancel_requested_at ${integer},
      exit_code ${integer},
      reason ${text} NOT NULL,
      output_head ${text} NOT NULL,
      output_foot ${text} NOT NULL,
      output_bytes ${integer} NOT NULL,
      late_result ${text} NOT NULL,
      claim_token ${text} NOT NULL,
      incarnation ${text} NOT NULL,
      PRIMARY KEY (group_id, node_name, attempt)
    )${keyOrganised}`,
    `CREATE INDEX executions_of_job ON executions (job_id, group_id, attempt, node_name)`,
    // Claim order: a claim reads only the rows it takes.
    `CREATE INDEX executions_waiting ON executions (node_id, not_before, group_id, slot, attempt)
      WHERE status = 'pending'`,
    // Order of the reassigner's pages, so that they read no history.
    `CREATE INDEX executions_pending ON executions (group_id, slot, attempt) WHERE status = 'pending'`,
    `CREATE INDEX executions_running ON executions (node_id, started_at) WHERE status = 'running'`,
    `CREATE TABLE output (
      group_id ${integer} NOT NULL,
      node_name ${text} NOT NULL,
      attempt ${integer} NOT NULL,
      at_byte ${integer} NOT NULL,
      bytes ${bytes} NOT NULL,
      PRIMARY KEY (group_id, node_name, attempt, at_byte)
    )`,
    `CREATE TABLE output_sizes (bytes ${integer} NOT NULL)`,
    `CREATE TABLE node_claims (
      node_id ${text} PRIMARY KEY, token ${text} NOT NULL
    )${keyOrganised}`,
  ]
}

function otherTables({columns: {integer, text}, keyOrganised}: Dialect): string[] {
  return [
    `CREATE TABLE meta (key ${text} PRIMARY KEY, value ${text} NOT NULL)${keyOrganised}`,
    `CREATE TABLE leader (
      term ${integer} PRIMARY KEY, holder ${text} NOT NULL, node_id ${text} NOT NULL,
      expires_at ${integer} NOT NULL
    )`,
    `INSERT INTO leader (term, holder, node_id, expires_at) VALUES (0, '', '', 0)`,
    `CREATE TABLE members (
      id ${text} PRIMARY KEY,
      name ${text} NOT NULL,
      incarnation ${text} NOT NULL,
      address ${text} NOT NULL,
      port ${integer} NOT NULL,
      tags ${text} NOT NULL,
      server ${integer} NOT NULL,
      runs ${integer} NOT NULL,
      version ${text} NOT NULL,
      slots ${integer} NOT NULL,
      status ${text} NOT NULL,
      started_at ${integer} NOT NULL,
      heartbeat_at ${integer} NOT NULL
    )${keyOrganised}`,
    // Makes the incarnation part of a key: heartbeats do not conflict with a claim's key-share lock.
    `CREATE UNIQUE INDEX members_life ON members (id, incarnation)`,
    `CREATE TABLE statistics (
      day ${integer} PRIMARY KEY, success_count ${integer} NOT NULL, failed_count ${integer} NOT NULL
    )`,
    `CREATE TABLE policies (name ${text} PRIMARY KEY, rules ${text} NOT NULL)${keyOrganised}`,
    `CREATE TABLE idempotency (
      scope ${text} NOT NULL, key ${text} NOT NULL, fingerprint ${text} NOT NULL,
      answer ${text} NOT NULL, created_at ${integer} NOT NULL,
      PRIMARY KEY (scope, key)
    )`,
    `CREATE INDEX idempotency_age ON idempotency (created_at)`,
  ]
}

/** Servers of schema 3 ignore them: they give work to a cordoned node. */
function memberColumns({columns: {integer}}: Dialect): string[] {
  return [
    `ALTER TABLE members ADD COLUMN cordoned_at ${integer}`,
    `ALTER TABLE members ADD COLUMN drain_until ${integer}`,
  ]
}

/** A server of schema 4 does not write it: then the deadline of the node's drain decides. */
function executionColumns({columns: {text}}: Dialect): string[] {
  return [`ALTER TABLE executions ADD COLUMN cancel_reason ${text}`]
}

/**
 * A server of schema 5 does not write them: the status of a launch that it closed follows from its ends.
 * Columns that nothing writes yet are for pools, reruns, backfills and retry rules: large tables change once.
 */
function launchColumns({columns: {integer, text}}: Dialect): string[] {
  return [
    `ALTER TABLE launches ADD COLUMN launch_status ${text}`,
    `ALTER TABLE launches ADD COLUMN closed_at ${integer}`,
    `ALTER TABLE launches ADD COLUMN root_group ${integer}`,
    `ALTER TABLE launches ADD COLUMN rerun_of ${integer}`,
    `ALTER TABLE launches ADD COLUMN backfill_id ${integer}`,
    `ALTER TABLE launches ADD COLUMN pool_name ${text}`,
    `ALTER TABLE launches ADD COLUMN pool_slots ${integer}`,
    `ALTER TABLE executions ADD COLUMN retry_reason ${text}`,
    // Entries only of launches in chains, of those that did not run, and of those that ended badly.
    `CREATE INDEX launches_root ON launches (root_group, group_id) WHERE root_group IS NOT NULL`,
    `CREATE INDEX launches_not_run ON launches (decided_at, group_id)
      WHERE decision IN ('skipped', 'missed')`,
    `CREATE INDEX launches_ended_badly ON launches (closed_at, group_id)
      WHERE launch_status IN ('failed', 'partially_failed')`,
    `CREATE INDEX launches_open_spans ON launches (job_id) WHERE planned_count = 0`,
    // Every claim and end evaluates the condition. SQLite builds a list of more than two values each time.
    `CREATE INDEX executions_ended_badly ON executions (finished_at, group_id, node_name, attempt)
      WHERE finished_at IS NOT NULL AND status <> 'succeeded'`,
  ]
}

/** A server of schema 5 does not write them: its ends count neither towards streaks nor typical durations. */
function jobColumns({columns: {integer, text}}: Dialect): string[] {
  return [
    `ALTER TABLE jobs ADD COLUMN fail_streak ${integer}`,
    `ALTER TABLE jobs ADD COLUMN failing_since ${integer}`,
    `ALTER TABLE jobs ADD COLUMN typical_ms ${integer}`,
    `ALTER TABLE jobs ADD COLUMN reset_at ${integer}`,
    `ALTER TABLE jobs ADD COLUMN managed_by ${text}`,
    `ALTER TABLE jobs ADD COLUMN watched ${integer}`,
  ]
}

/** Events of the cluster, written in the transaction of each change. */
function eventTables({columns: {integer, text, growingKey}}: Dialect): string[] {
  return [
    `CREATE TABLE cluster_events (
      id ${growingKey},
      began_at ${integer} NOT NULL,
      event_kind ${text} NOT NULL,
      subject ${text} NOT NULL,
      detail ${text} NOT NULL,
      over_at ${integer}
    )`,
    `CREATE INDEX cluster_events_began ON cluster_events (began_at, id)`,
    `CREATE INDEX cluster_events_open ON cluster_events (event_kind, subject) WHERE over_at IS NULL`,
  ]
}

/** Channels of notices. A server of schema 5 does not know them, and sends nothing. */
function noticeTables({columns: {integer, text}, keyOrganised}: Dialect): string[] {
  return [
    `CREATE TABLE notice_channels (
      channel_name ${text} PRIMARY KEY,
      channel_kind ${text} NOT NULL,
      channel_config ${text} NOT NULL,
      channel_enabled ${integer} NOT NULL,
      channel_revision ${integer} NOT NULL,
      author_name ${text} NOT NULL,
      author_kind ${text} NOT NULL,
      author_policies ${text} NOT NULL,
      changed_at ${integer} NOT NULL,
      last_ok_at ${integer},
      channel_failing_since ${integer},
      last_error_text ${text} NOT NULL
    )${keyOrganised}`,
  ]
}

/** Rules of notices, facts about jobs, and the incidents and messages that follow from them. */
function incidentTables({columns: {integer, text, growingKey}, keyOrganised}: Dialect): string[] {
  return [
    `CREATE TABLE notice_rules (
      rule_name ${text} PRIMARY KEY,
      rule_definition ${text} NOT NULL,
      rule_revision ${integer} NOT NULL,
      rule_author ${text} NOT NULL,
      rule_author_kind ${text} NOT NULL,
      rule_author_policies ${text} NOT NULL,
      rule_changed_at ${integer} NOT NULL
    )${keyOrganised}`,
    `CREATE TABLE notice_mutes (
      mute_id ${growingKey},
      mute_rule ${text} NOT NULL,
      jobs_glob ${text} NOT NULL,
      mute_reason ${text} NOT NULL,
      muted_at ${integer} NOT NULL,
      muted_by ${text} NOT NULL,
      muted_until ${integer} NOT NULL
    )`,
    `CREATE TABLE notice_facts (
      fact_id ${growingKey},
      fact_at ${integer} NOT NULL,
      fact_kind ${text} NOT NULL,
      fact_job_id ${integer} NOT NULL,
      fact_job_name ${text} NOT NULL,
      fact_data ${text} NOT NULL
    )`,
    `CREATE TABLE notice_incidents (
      incident_key ${text} PRIMARY KEY,
      incident_rule ${text} NOT NULL,
      incident_subject ${text} NOT NULL,
      incident_state ${text} NOT NULL,
      opened_at ${integer} NOT NULL,
      wake_at ${integer},
      has_message ${integer} NOT NULL,
      incident_data ${text} NOT NULL
    )`,
    `CREATE INDEX notice_incidents_wake ON notice_incidents (wake_at) WHERE wake_at IS NOT NULL`,
    `CREATE INDEX notice_incidents_message ON notice_incidents (has_message) WHERE has_message = 1`,
    `CREATE INDEX notice_incidents_subject ON notice_incidents (incident_subject)`,
    `CREATE INDEX notice_incidents_open ON notice_incidents (incident_subject)
      WHERE incident_state = 'open'`,
    `CREATE INDEX notice_incidents_opened ON notice_incidents (opened_at, incident_key)`,
    `CREATE TABLE notice_messages (
      message_number ${growingKey},
      message_id ${text} NOT NULL,
      message_channel ${text} NOT NULL,
      message_rule ${text} NOT NULL,
      message_kind ${text} NOT NULL,
      message_data ${text} NOT NULL,
      message_state ${text} NOT NULL,
      message_attempt ${integer} NOT NULL,
      made_at ${integer} NOT NULL,
      send_at ${integer} NOT NULL,
      holds_others ${integer} NOT NULL,
      sender ${text} NOT NULL,
      claim_until ${integer},
      ended_at ${integer},
      failure ${text} NOT NULL
    )`,
    `CREATE UNIQUE INDEX notice_messages_id ON notice_messages (message_id)`,
    `CREATE INDEX notice_messages_waiting ON notice_messages (message_channel, message_number)
      WHERE message_state = 'waiting'`,
    `CREATE INDEX notice_messages_ended ON notice_messages (ended_at) WHERE ended_at IS NOT NULL`,
  ]
}

/** Every server holds all tokens in memory and finds them there: an index of the digests has no use. */
function tokenTables({columns: {integer, text}, keyOrganised}: Dialect): string[] {
  return [
    `CREATE TABLE tokens (
      accessor ${text} PRIMARY KEY,
      digest ${text} NOT NULL,
      name ${text} NOT NULL,
      kind ${text} NOT NULL,
      policies ${text} NOT NULL,
      created_at ${integer} NOT NULL,
      expires_at ${integer},
      last_used_at ${integer},
      agent_limits ${text},
      bound_node_id ${text},
      bound_node_name ${text},
      uses_left ${integer},
      issued_by ${text},
      session_of ${text},
      idle_ms ${integer},
      ends_at ${integer}
    )${keyOrganised}`,
    `CREATE UNIQUE INDEX tokens_digest ON tokens (digest)`,
  ]
}

/** `job_id` and the revisions are of a changed definition only: those rows are the history of the job. */
function auditTables({columns: {integer, text, growingKey}}: Dialect): string[] {
  return [
    `CREATE TABLE audit (
      id ${growingKey},
      at ${integer} NOT NULL,
      actor ${text} NOT NULL,
      accessor ${text} NOT NULL,
      token_kind ${text} NOT NULL,
      address ${text} NOT NULL,
      action ${text} NOT NULL,
      result ${text} NOT NULL,
      target_kind ${text} NOT NULL,
      target ${text} NOT NULL,
      detail ${text} NOT NULL,
      job_id ${integer},
      revision_before ${integer},
      revision_after ${integer},
      replaced ${text},
      replaced_bytes ${integer}
    )`,
    `CREATE INDEX audit_of_job ON audit (job_id, revision_after) WHERE job_id IS NOT NULL`,
    `CREATE INDEX audit_target ON audit (target, id)`,
    `CREATE INDEX audit_refused ON audit (id) WHERE result = 'refused'`,
    `CREATE INDEX audit_size ON audit (id, replaced_bytes) WHERE replaced_bytes IS NOT NULL`,
  ]
}

function secretTables({columns: {integer, text}, keyOrganised}: Dialect): string[] {
  return [
    `CREATE TABLE secrets (
      name ${text} PRIMARY KEY,
      ciphertext ${text} NOT NULL,
      set_at ${integer} NOT NULL,
      set_by ${text} NOT NULL
    )${keyOrganised}`,
  ]
}

/** Pauses of firing, one a glob. A server of schema 3 does not know them, and fires. */
function pauseTables({columns: {integer, text}, keyOrganised}: Dialect): string[] {
  return [
    `CREATE TABLE firing_pauses (
      jobs_glob ${text} PRIMARY KEY,
      pause_reason ${text} NOT NULL,
      paused_at ${integer} NOT NULL,
      paused_by ${text} NOT NULL,
      paused_until ${integer},
      ended_at ${integer}
    )${keyOrganised}`,
  ]
}
