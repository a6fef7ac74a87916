/**
 * Incidents and messages of notices as callers see them: only what is about jobs that they may read. A
 * preview says what a rule would have sent.
 */
import type {Actor} from '../core/audit.ts'
import {
  check,
  decide,
  isShown,
  type NameFilter,
  type Principal,
  readableJobs,
  refusalSentence,
} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {matchesText} from '../core/access/glob.ts'
import {channelPath} from '../core/notice-channel.ts'
import {evaluateNotices, type NewNotice} from '../core/notice-evaluation.ts'
import type {Incident} from '../core/notice-incidents.ts'
import type {NoticeMessage} from '../core/notice-message.ts'
import {compileRule, type Condition, type RuleDefinition} from '../core/notice-rule.ts'
import type {IncidentQuery, MessageQuery, MessageRecord} from '../ports/notice-store.ts'
import type {KeysetPage} from '../ports/page.ts'
import type {OperationsContext} from './context.ts'
import {requireChannel} from './channels.ts'

export const PREVIEW_DAYS = 7
const PREVIEW_MS = PREVIEW_DAYS * 24 * 60 * 60_000

/** Conditions that the launch history tells. */
const PREVIEWED: readonly Condition[] = ['failed', 'failed_times', 'skipped', 'missed', 'lost']

export interface NoticePreview {
  /** The first by name; `jobsTotal` counts all. */
  readonly jobs: readonly string[]
  readonly jobsTotal: number
  readonly from: number
  readonly to: number
  /** The newest last. */
  readonly messages: readonly NewNotice[]
  /** The number of messages is a lower bound: more happened than is read. */
  readonly isPartial: boolean
  /** Conditions that are not counted. */
  readonly leftOut: readonly Condition[]
}

export function createNotices({store, wakeup}: OperationsContext) {
  /** Newest first. Incidents of the cluster need `list` on the members. */
  function incidents(
    query: Omit<IncidentQuery, 'names' | 'seesNodes'>,
    caller: Principal,
  ): Promise<KeysetPage<Incident>> {
    const seesNodes = decide(caller, 'list', '/v1/members').allowed
    return store.incidents({...query, names: readableJobs(caller), seesNodes})
  }

  /** Newest first, without output. A page may be short. */
  async function messages(
    query: MessageQuery,
    caller: Principal,
  ): Promise<KeysetPage<MessageRecord>> {
    const {items, next} = await store.messages(query)
    const shown = items.flatMap((record) => {
      const message = shownTo(record.message, caller)
      return message === null || !isAbout(message, query.job) ? [] : [{...record, message}]
    })
    return {items: shown, next}
  }

  /** Throws `message_unknown`, `channel_unknown`, `not_allowed`. */
  async function resendMessage(
    id: string,
    caller: Principal,
    actor: Actor,
  ): Promise<MessageRecord> {
    const known = await store.noticeMessage(id)
    const message = known === null ? null : shownTo(known.message, caller)
    if (known === null || message === null) throw messageUnknown(id)
    const may = check(caller, 'update', channelPath(known.channel))
    if (!may.allowed) throw new DomainError('not_allowed', refusalSentence(caller, may))
    requireChannel(known.channel, await store.channel(known.channel))
    const sent = await store.resendMessage(id, actor)
    if (sent === null) throw messageUnknown(id)
    wakeup.notify('notices')
    return {...sent, message: {...message, repeat: sent.message.repeat}}
  }

  /** The jobs that the rule covers for the caller, and what it would have sent in the last days. */
  async function previewRule(rule: RuleDefinition, caller: Principal): Promise<NoticePreview> {
    const names = readableJobs(caller)
    const history = await store.noticeHistory({rule, names, lastMs: PREVIEW_MS})
    const {now, jobs, jobsTotal, facts, isPartial} = history
    const evaluated = evaluateNotices({
      now,
      rules: [compileRule(rule)],
      mutes: [],
      incidents: [],
      newest: new Map(),
      facts,
      sweeps: [],
    })
    const leftOut = Object.keys(rule.when).filter((name) => !isPreviewed(name)) as Condition[]
    const {messages: sent} = evaluated
    const from = now - PREVIEW_MS
    return {jobs, jobsTotal, from, to: now, messages: sent, isPartial, leftOut}
  }

  return {incidents, messages, resendMessage, previewRule}
}

function isPreviewed(name: string): boolean {
  return (PREVIEWED as readonly string[]).includes(name)
}

function messageUnknown(id: string): DomainError {
  return new DomainError(
    'message_unknown',
    `There is no message "${id.slice(0, 100)}" that you may read.`,
  )
}

/** The message without output, and without jobs that the caller may not read; `null` = nothing is left. */
function shownTo(message: NoticeMessage, caller: Principal): NoticeMessage | null {
  const names: NameFilter = readableJobs(caller)
  const seesNodes = decide(caller, 'list', '/v1/members').allowed
  const isVisible = (job: string) => (job === '' ? seesNodes : isShown(names, job))
  const incidents = message.incidents
    .filter(({job}) => isVisible(job))
    .map((incident) => ({...incident, outputTail: ''}))
  const hidden = message.incidents.length - incidents.length
  if (hidden === 0 && names === null) return {...message, incidents}
  if (incidents.length === 0) return null
  // The summary, and what is counted in `more`, may be about other jobs.
  const [{job}] = incidents as [NoticeMessage['incidents'][0]]
  const others = incidents.length - 1
  const subject = job === '' ? 'the cluster' : job
  const summary = others === 0 ? subject : `${subject} and ${others} more`
  return {...message, incidents, summary, more: 0}
}

function isAbout({incidents}: NoticeMessage, job: string | null): boolean {
  return job === null || incidents.some((each) => matchesText(job, each.job))
}
