/**
 * Notices of a trial: rules about its jobs and its cluster, a receiver outside of the cluster, and the
 * comparison of what arrived with what happened, as the launch history has it. The receiver refuses some
 * requests, as a busy one does.
 */
import {startHttp} from '../../test/notices/receivers.ts'
import {checkNotices, type CheckedNotices} from '../../test/support/received-notices.ts'
import type {Answer, Owner, ServerProcess} from '../../test/support/server-process.ts'
import {until} from '../../test/support/waiting.ts'
import type {Fault} from './faults.ts'

type Json = Answer['json']

/** Groups of jobs that are small enough for a message to list all of them. */
const PLACES = ['any', 'agent', 'server']
const OF_JOBS = {
  failed: {},
  skipped: {},
  disabled: {},
  late: {by: '30s'},
  no_success_for: {for: '1m'},
}
const OF_CLUSTER = {no_leader: {for: '10s'}, node_failed: {}, firing_paused: {for: '1m'}}
/** Requests of which the receiver refuses one. */
const REFUSES_EVERY = 5
/** Openings of a rule are at least a minute apart; the rest is `group_wait`, and the times of two clocks. */
const TOLD_WITHIN_MS = 63_000
const CLOCKS_MS = 1_000
const SKIPPED = new Set(['forbid', 'behind', 'no_target', 'undecidable', 'schedule_unreadable'])
const TELLS_OPEN = new Set(['opened', 'reminder'])

/** A message as the API and webhooks have it. */
export interface Told {
  readonly id: string
  readonly kind: string
  readonly repeat: boolean
  readonly summary: string
  readonly more: number
  readonly incidents: readonly {
    readonly key: string
    readonly opened_at: string
    readonly closed_at?: string
    readonly launch?: number
  }[]
}

/** Events of a trial, as the launch history and the harness know them. */
export interface History {
  /** Launches of all jobs with a schedule. */
  readonly rows: readonly Json[]
  /** Names of these jobs. All are disabled at the end. */
  readonly jobs: readonly string[]
  readonly faults: readonly Pick<Fault, 'node' | 'from'>[]
}

export interface NoticeAudit extends Pick<CheckedNotices<Told>, 'repeated' | 'doubled'> {
  /** Messages, and those about openings and closings. */
  readonly sent: number
  readonly opened: number
  readonly closed: number
  readonly missing: readonly string[]
  /** Messages about what did not happen, and messages that were not delivered. */
  readonly problems: readonly string[]
}

export class TrialNotices {
  readonly #received: Told[] = []

  /** Stores the rules; resolves when they act. */
  static async start(owner: Owner, server: ServerProcess): Promise<TrialNotices> {
    const notices = new TrialNotices()
    let requests = 0
    const {url} = await startHttp(owner, (response, {body}) => {
      requests += 1
      if (requests % REFUSES_EVERY === 0) return void response.writeHead(503).end()
      notices.#received.push(JSON.parse(body) as Told)
      response.writeHead(200).end()
    })
    await put(server, 'channels/hook', {kind: 'webhook', config: {url}})
    const rule = {to: ['hook'], group_wait: '1s'}
    for (const place of PLACES)
      for (const [condition, parameters] of Object.entries(OF_JOBS)) {
        const when = {[condition]: parameters}
        await put(server, `rules/${place}-${condition}`, {...rule, jobs: `${place}-*`, when})
      }
    await put(server, 'rules/cluster', {...rule, when: OF_CLUSTER})
    return notices
  }

  /** Waits until the messages have caught up, and compares them with what happened. */
  async audit(server: ServerProcess, history: History, withinMs: number): Promise<NoticeAudit> {
    let untold: readonly string[] = []
    await until(
      'the messages have caught up',
      async () => {
        untold = await this.#untold(server)
        return untold.length === 0
      },
      withinMs,
    ).catch((error: unknown) => {
      untold = [String(error), ...untold]
    })
    const audit = auditNotices(this.#received, history)
    const dead = await listed(server, 'messages', 'dead')
    return {
      ...audit,
      missing: [...audit.missing, ...untold],
      problems: [
        ...audit.problems,
        ...dead.map(({message, error}) => `${message.id} was not delivered: ${error}`),
      ],
    }
  }

  /** Messages that wait, and incidents whose newest message says something else than the store. */
  async #untold(server: ServerProcess): Promise<string[]> {
    const waiting = await listed(server, 'messages', 'waiting')
    const incidents = await listed(server, 'incidents')
    const {firsts} = checkNotices(this.#received)
    const untold = incidents.filter(({key, state}) => {
      const told = lastTold(key, firsts)
      return told !== 'flapping' && told !== (state === 'open' ? 'opened' : 'closed')
    })
    return [
      ...waiting.map(({message, error}) => `${message.id} waits: ${error}`),
      ...untold.map(({key, state}) => `${key} is ${state}, told ${lastTold(key, firsts)}`),
    ]
  }
}

/** Compares the messages that arrived with what happened. */
export function auditNotices(
  received: readonly Told[],
  {rows, jobs, faults}: History,
): NoticeAudit {
  const {firsts, repeated, doubled} = checkNotices(received)
  const missing: string[] = []
  const problems = firsts.flatMap(({id, more}) => (more > 0 ? [`${id} has ${more} more`] : []))
  for (const name of jobs) {
    const own = rows.filter(({job_name: job}) => job === name)
    for (const [condition, changes] of [
      ['failed', endsOf(own)],
      ['skipped', decisionsOf(own)],
    ] as const) {
      const key = `${placeOf(name)}-${condition}/${name}/${condition}`
      missing.push(...missingOf(key, changes, firsts))
      problems.push(...unexplained(key, changes, firsts))
    }
    const key = `${placeOf(name)}-disabled/${name}/disabled`
    if (lastTold(key, firsts) !== 'opened') missing.push(`${key}: the end of the run disabled it`)
  }
  for (const {key, openedAt} of openingsOf('cluster/', firsts)) {
    const [, node] = key.split('/')
    const isOfNode = key.endsWith('/node_failed')
    const isExplained = faults.some(({node: of, from}) => {
      return from < openedAt && (!isOfNode || of === null || of === node)
    })
    if (!isExplained) problems.push(`${key} opened without a fault`)
  }
  const count = (wanted: string) => firsts.filter(({kind}) => kind === wanted).length
  const [opened, closed] = [count('opened'), count('closed')]
  return {sent: firsts.length, opened, closed, repeated, doubled, missing, problems}
}

/** Event that opens or closes an incident, at the time of its transaction. */
interface Change {
  readonly at: number
  readonly opens: boolean
  readonly launch: number
}

function endsOf(rows: readonly Json[]): readonly Change[] {
  return rows.flatMap(({status, ended_at: at, group: launch}) => {
    const opens = status === 'failed' || status === 'partially_failed'
    return opens || status === 'success' ? [{at: Date.parse(at), opens, launch}] : []
  })
}

function decisionsOf(rows: readonly Json[]): readonly Change[] {
  return rows.flatMap(({decision, reason, decided_at: at, group: launch}) => {
    const opens = decision === 'skipped' && SKIPPED.has(reason.split(':')[0])
    return opens || decision === 'launched' ? [{at: Date.parse(at), opens, launch}] : []
  })
}

/** Spans in which the incident was open that no message tells, and a wrong message about its end. */
function missingOf(key: string, changes: readonly Change[], firsts: readonly Told[]): string[] {
  const spans: {readonly from: number; to: number; launch: number}[] = []
  let open: (typeof spans)[number] | null = null
  for (const {at, opens, launch} of changes.toSorted(
    (a, b) => a.at - b.at || a.launch - b.launch,
  )) {
    if (opens && open === null) spans.push((open = {from: at, to: Infinity, launch}))
    else if (opens) open!.launch = launch
    // A success of a launch that began before the failure does not end it.
    else if (open !== null && launch >= open.launch) {
      open.to = at
      open = null
    }
  }
  const told = toldOf(key, firsts)
  const isTold = ({from}: {readonly from: number}) =>
    told.some(({kind, openedAt}, index) => {
      if (openedAt > from + TOLD_WITHIN_MS) return false
      if (kind === 'flapping' || (TELLS_OPEN.has(kind) && openedAt >= from - CLOCKS_MS)) return true
      // The message about an earlier opening holds until that about its closing.
      const closing = told.slice(index + 1).find((other) => other.kind === 'closed')
      return TELLS_OPEN.has(kind) && (closing?.closedAt ?? Infinity) >= from
    })
  const missing = spans
    .filter((span) => !isTold(span))
    .map(({from}) => `${key} opened at ${new Date(from).toISOString()}, untold`)
  const last = lastTold(key, firsts)
  const expected = open === null ? 'closed' : 'opened'
  if (spans.length > 0 && last !== 'flapping' && last !== expected)
    missing.push(`${key} is ${expected} at the end, told ${last}`)
  return missing
}

/** Openings that name a launch that was none. */
function unexplained(key: string, changes: readonly Change[], firsts: readonly Told[]): string[] {
  const launches = new Set(changes.flatMap(({opens, launch}) => (opens ? [launch] : [])))
  return openingsOf(key, firsts)
    .filter(({launch}) => !launches.has(launch ?? 0))
    .map(({launch}) => `${key} opened by launch ${launch}, which did not`)
}

function openingsOf(prefix: string, firsts: readonly Told[]) {
  return firsts
    .filter(({kind}) => kind === 'opened')
    .flatMap(({incidents}) => incidents.filter(({key}) => key.startsWith(prefix)))
    .map((incident) => ({...incident, openedAt: Date.parse(incident.opened_at)}))
}

function toldOf(key: string, firsts: readonly Told[]) {
  return firsts.flatMap(({kind, incidents}) => {
    const incident = incidents.find((each) => each.key === key)
    if (incident === undefined) return []
    const {opened_at: openedAt, closed_at: closedAt} = incident
    return [{kind, openedAt: Date.parse(openedAt), closedAt: Date.parse(closedAt ?? '')}]
  })
}

/** Kind of the newest message about the incident; `closed` without one, `flapping` after such a message. */
function lastTold(key: string, firsts: readonly Told[]): string {
  const kinds = toldOf(key, firsts).map(({kind}) => (kind === 'reminder' ? 'opened' : kind))
  return kinds.includes('flapping') ? 'flapping' : (kinds.at(-1) ?? 'closed')
}

function placeOf(job: string): string {
  return job.split('-')[0]!
}

async function put(server: ServerProcess, path: string, body: unknown): Promise<void> {
  const {status, text} = await server.ask('PUT', `/notices/${path}`, body)
  if (status !== 200) throw new Error(`${path}: ${status} ${text}`)
}

/** All pages of a list. */
async function listed(
  server: ServerProcess,
  list: 'messages' | 'incidents',
  state?: string,
): Promise<Json[]> {
  const rows: Json[] = []
  const filter = state === undefined ? '' : `state=${state}&`
  let after = ''
  for (;;) {
    const {status, text, json} = await server.get(`/notices/${list}?${filter}limit=100${after}`)
    if (status !== 200) throw new Error(`${list}: ${status} ${text}`)
    rows.push(...json[list])
    if (json.next === null) return rows
    after = `&after=${encodeURIComponent(json.next)}`
  }
}
