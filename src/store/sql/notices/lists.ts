/**
 * Lists of incidents and messages, newest first, page by page, and sending a message again. A page reads a
 * bounded number of rows.
 */
import {type Actor, BELFRY} from '../../../core/audit.ts'
import type {Incident} from '../../../core/notice-incidents.ts'
import type {NoticeMessage} from '../../../core/notice-message.ts'
import type {KeysetPage} from '../../../ports/page.ts'
import type {IncidentQuery, MessageQuery, MessageRecord} from '../../../ports/notice-store.ts'
import {recordChange} from '../access/audit.ts'
import {isShownName, likePattern} from '../jobs/name-filter.ts'
import {keysetPage} from '../keyset.ts'
import {all, one, type Query, type Transaction, type Value} from '../query.ts'

/** Rows of a page at most: each is a JSON text of some hundred bytes. */
const VISITED_MAX = 20_000
/** Rows with a message are larger. */
const VISITED_MESSAGES_MAX = 5_000

/** Parts of the JSON of an incident; texts in it have other quotes. A row without facts never opened. */
const NEVER_OPENED = `incident_state = 'closed' AND incident_data LIKE '%"count":0,%'`
const OF_CLUSTER = `incident_data LIKE '%"job":""%'`

export function* incidents(
  _tx: Transaction,
  {state, rule, job, names, seesNodes, ...slice}: IncidentQuery,
): Query<KeysetPage<Incident>> {
  const shown = isShownName('incident_subject', names)
  const named = isShownName('incident_subject', job === null ? null : [{pattern: job, shown: true}])
  const ofJobs = `(NOT (${OF_CLUSTER}) AND ${shown.sql} AND ${named.sql})`
  const where = [
    seesNodes && job === null ? `(${OF_CLUSTER} OR ${ofJobs})` : ofJobs,
    ...(state === null ? [] : ['incident_state = ?']),
    ...(rule === null ? [] : ['incident_rule = ?']),
  ].join(' AND ')
  const values: Value[] = [...shown.values, ...named.values]
  if (state !== null) values.push(state)
  if (rule !== null) values.push(rule)
  const page = yield* keysetPage<{incident_data: string}>(
    {
      columns: 'incident_data, opened_at, incident_key',
      from: 'notice_incidents',
      where: '1 = 1',
      filter: {
        where: `${where} AND NOT (${NEVER_OPENED})`,
        values,
        visitedMax: VISITED_MAX,
      },
      key: ['opened_at', 'incident_key'],
      order: 'desc',
    },
    slice,
  )
  return {...page, items: page.items.map((row) => JSON.parse(row.incident_data) as Incident)}
}

interface MessageRow {
  readonly message_number: number
  readonly message_id: string
  readonly message_channel: string
  readonly message_data: string
  readonly message_state: MessageRecord['state']
  readonly message_attempt: number
  readonly made_at: number
  readonly send_at: number
  readonly ended_at: number | null
  readonly failure: string
}

const COLUMNS = `message_number, message_id, message_channel, message_data, message_state,
  message_attempt, made_at, send_at, ended_at, failure`

function messageOf(row: MessageRow): MessageRecord {
  return {
    message: JSON.parse(row.message_data) as NoticeMessage,
    channel: row.message_channel,
    state: row.message_state,
    attempts: row.message_attempt,
    madeAt: row.made_at,
    sendAt: row.message_state === 'waiting' ? row.send_at : null,
    endedAt: row.ended_at,
    error: row.failure,
  }
}

export function* messages(
  _tx: Transaction,
  {state, rule, channel, job, ...slice}: MessageQuery,
): Query<KeysetPage<MessageRecord>> {
  const wanted: readonly (readonly [sql: string, value: Value | null])[] = [
    ['message_state = ?', state],
    ['message_rule = ?', rule],
    ['message_channel = ?', channel],
    // The operation compares the whole name.
    [`message_data LIKE ? ESCAPE '\\'`, job === null ? null : `%"job":"${likePattern(job)}"%`],
  ]
  const given = wanted.filter(([, value]) => value !== null)
  const page = yield* keysetPage<MessageRow>(
    {
      columns: COLUMNS,
      from: 'notice_messages',
      where: '1 = 1',
      filter: {
        where: ['1 = 1', ...given.map(([sql]) => sql)].join(' AND '),
        values: given.map(([, value]) => value!),
        visitedMax: VISITED_MESSAGES_MAX,
      },
      key: ['message_number'],
      order: 'desc',
    },
    slice,
  )
  return {...page, items: page.items.map(messageOf)}
}

/** `null` = no such message. */
export function* noticeMessage(_tx: Transaction, id: string): Query<MessageRecord | null> {
  const row = yield* one<MessageRow>(
    `SELECT ${COLUMNS} FROM notice_messages WHERE message_id = ?`,
    [id],
  )
  return row === null ? null : messageOf(row)
}

/**
 * Sends a message at the next look for messages, also if it was sent or is dead, and for 24 hours again if
 * the receiver is away. It keeps its id. A message that is being sent is left alone.
 */
export function* resendMessage(
  tx: Transaction,
  id: string,
  actor: Actor = BELFRY,
): Query<MessageRecord | null> {
  const row = yield* one<MessageRow>(
    `SELECT ${COLUMNS} FROM notice_messages WHERE message_id = ?${tx.dialect.forUpdate}`,
    [id],
  )
  if (row === null) return null
  const message = {...(JSON.parse(row.message_data) as NoticeMessage), repeat: true}
  yield* all(
    `UPDATE notice_messages SET message_data = ?, message_state = 'waiting', message_attempt = 0,
      made_at = ?, send_at = ?, holds_others = 0, sender = '', claim_until = NULL, ended_at = NULL,
      failure = '' WHERE message_id = ? AND (claim_until IS NULL OR claim_until <= ?)`,
    [JSON.stringify(message), tx.now, tx.now, id, tx.now],
  )
  yield* recordChange(tx, {
    actor,
    action: 'message.resend',
    targetType: 'message',
    target: id,
    detail: `over ${row.message_channel}, ${row.message_state}`,
  })
  return yield* noticeMessage(tx, id)
}
