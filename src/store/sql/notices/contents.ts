/**
 * Contents of messages: the sentences of `belfry explain`, the end of the output and the owner, for each
 * incident. They are read in the transaction that makes the message, and stored with it: each attempt and
 * repetition sends the same. An author sees only what its policies let it read.
 */
import {
  incidentTold,
  type IncidentView,
  launchOfIncident,
  subjectOfIncident,
} from '../../../core/explain/incident.ts'
import type {ExplainFacts} from '../../../core/explain/facts.ts'
import type {ExplainContext} from '../../../core/explain/explain.ts'
import {executionId} from '../../../core/execution.ts'
import type {NewNotice} from '../../../core/notice-evaluation.ts'
import {
  dependentsBelow,
  type FoldedIncident,
  foldIncidents,
  type SkippedDependent,
} from '../../../core/notice-fold.ts'
import type {Incident} from '../../../core/notice-incidents.ts'
import type {NoticeIncident} from '../../../core/notice-message.ts'
import {lastLines, OUTPUT_BYTES_MAX, OUTPUT_LENGTH_MAX} from '../../../core/notice-output.ts'
import type {RuleReader} from './authors.ts'
import type {NoticeReport} from '../../../ports/notice-engine-store.ts'
import {decodeOutput} from '../../../wire/output.ts'
import {readOutput} from '../executions/output.ts'
import {explainFacts} from '../launches/explain.ts'
import {each, oneEach, type Query, type Transaction} from '../query.ts'
import {jobOf, type JobRow, SELECT_JOB} from '../rows.ts'

/**
 * Incidents of one evaluation that are explained: each takes twelve reads, about 2 ms in which SQLite stores
 * nothing else. Others have a short text.
 */
const EXPLAINED_MAX = 40
/** Failures of a message whose dependents are folded. */
const FOLDED_MAX = 100
/** Rows of a chain that are read for its dependents. */
const CHAIN_MAX = 1_000

/** A message without its id and channel. */
export interface ToldNotice {
  readonly notice: NewNotice
  readonly incidents: readonly NoticeIncident[]
  /** Incidents without those that belong to another one. */
  readonly folded: readonly FoldedIncident[]
}

export interface Telling {
  readonly report: NoticeReport
  readonly reader: (rule: string) => RuleReader
  /** Lines of output of a rule. */
  readonly outputLines: (rule: string) => number
}

export function* tellNotices(
  tx: Transaction,
  notices: readonly NewNotice[],
  telling: Telling,
): Query<readonly ToldNotice[]> {
  const told: ToldNotice[] = []
  let left = EXPLAINED_MAX
  for (const notice of notices) {
    const reader = telling.reader(notice.rule)
    const below = yield* dependentsOf(notice)
    const folded = foldIncidents(notice.incidents, below, (job) => reader.mayRead(job))
    const owners = yield* ownersOf(folded.slice(Math.max(0, left)))
    const incidents: NoticeIncident[] = []
    let outputLeft = OUTPUT_LENGTH_MAX
    for (const each of folded) {
      const isExplained = left > 0
      left -= 1
      const content = yield* tellIncident(tx, each, viewOf(notice), telling, {
        reader,
        isExplained,
        lines: outputLeft > 0 ? telling.outputLines(notice.rule) : 0,
      })
      outputLeft -= content.outputTail.length
      const owner = owners.get(content.job)
      incidents.push(owner === undefined ? content : {...content, ownerEmail: owner})
    }
    told.push({notice, incidents, folded})
  }
  return told
}

/** Addresses of the owners, for incidents that are not explained. */
function* ownersOf(folded: readonly FoldedIncident[]): Query<ReadonlyMap<string, string>> {
  const names = [...new Set(folded.map(({incident}) => incident.job))].filter(Boolean)
  const rows = yield* oneEach<JobRow>(
    `${SELECT_JOB} WHERE j.name = ? AND j.deleted_at IS NULL`,
    names.map((name) => [name]),
  )
  return new Map(
    rows.flatMap((row) => (row === null ? [] : [[row.name, jobOf(row).spec.ownerEmail]])),
  )
}

/** A digest shows what closed meanwhile as closed; every other message shows openings. */
function viewOf({kind}: NewNotice): (incident: Incident) => IncidentView {
  const isClosing = kind === 'closed'
  return ({state}) => (isClosing || (kind === 'digest' && state === 'closed') ? 'closed' : 'opened')
}

/** Dependents that did not run because of the failures of a message, by the key of the incident. */
function* dependentsOf({
  kind,
  incidents,
}: NewNotice): Query<ReadonlyMap<string, readonly SkippedDependent[]>> {
  const failures = incidents
    .filter(({condition, launch}) => MAKES_SKIP.has(condition) && launch !== null)
    .slice(0, FOLDED_MAX)
  if (kind === 'closed' || failures.length === 0) return new Map()
  const roots = yield* oneEach<{root: number}>(
    `SELECT coalesce(root_group, group_id) AS root FROM launches WHERE group_id = ?`,
    failures.map(({launch}) => [launch]),
  )
  const chains = yield* each<{group: number; parent: number | null; job: string}>(
    `SELECT group_id AS "group", parent_group AS parent, job_name AS job FROM launches
      WHERE root_group = ? AND decision = 'skipped' ORDER BY group_id LIMIT ${CHAIN_MAX}`,
    roots.map((row) => [row?.root ?? 0]),
  )
  return new Map(
    failures.map(({key, launch}, index) => {
      const rows = chains[index]!.map(({group, parent, job}) => {
        return {group, parentGroup: parent, jobName: job}
      })
      return [key, dependentsBelow(rows, launch!)]
    }),
  )
}

/** Conditions whose launch may have dependents that did not run. */
const MAKES_SKIP: ReadonlySet<string> = new Set([
  'failed',
  'failed_times',
  'lost',
  'skipped',
  'missed',
])

interface TellOne {
  readonly reader: RuleReader
  readonly isExplained: boolean
  readonly lines: number
}

function* tellIncident(
  tx: Transaction,
  {incident, dependents}: FoldedIncident,
  viewAs: (incident: Incident) => IncidentView,
  {report}: Telling,
  {reader, isExplained, lines}: TellOne,
): Query<NoticeIncident> {
  const view = viewAs(incident)
  const subject = isExplained ? subjectOfIncident(incident, view) : null
  const facts = subject === null ? null : yield* explainFacts(tx, incident.job, subject)
  const {publicUrl, ...settings} = report
  const context: ExplainContext = {
    ...settings,
    seesNodes: reader.seesNodes,
    // The end of the output follows the sentences.
    seesOutput: false,
    mayRead: (job) => reader.mayRead(job),
  }
  const {key, job, openedAt, closedAt, state, count} = incident
  const about = launchOfIncident(incident, view)
  const mayShow = lines > 0 && reader.seesOutput(job) && view === 'opened'
  return {
    key,
    job,
    openedAt,
    closedAt: state === 'closed' ? closedAt : null,
    count,
    ...about,
    ...incidentTold(incident, view, facts, dependents, context),
    outputTail: mayShow ? yield* outputTailOf(facts, about.execution, lines) : '',
    url: publicUrl === '' ? '' : new URL('/ui/', publicUrl).href,
    ownerEmail: facts?.job.spec.ownerEmail ?? '',
  }
}

/** The last lines of what the execution wrote; `''` = none is kept. */
function* outputTailOf(
  facts: ExplainFacts | null,
  execution: string,
  lines: number,
): Query<string> {
  const found = facts?.chosen?.executions.find((each) => executionId(each) === execution)
  if (found === undefined || found.outputBytes === 0) return ''
  const from = Math.max(0, found.outputBytes - OUTPUT_BYTES_MAX)
  const {bytes} = yield* readOutput(found, from, OUTPUT_BYTES_MAX)
  return lastLines(decodeOutput(bytes), lines, from > 0)
}
