/** Sentences for attempts of a launch, and for a launch that ran. Never shows a code. */
import {roughDuration} from '../../lib/duration.ts'

import {endReasonClause, executionId} from '../execution.ts'
import type {LaunchStatus} from '../launch-record.ts'
import type {Around, ExecutionFacts, LaunchFacts, Told} from './facts.ts'
import {lengthFrom, listed, type Words} from './words.ts'

/** How a launch ended, as a verb. */
export const END_WORDS: Readonly<Record<LaunchStatus, string>> = {
  success: 'succeeded',
  failed: 'failed',
  partially_failed: 'failed on some of its nodes',
  cancelled: 'was cancelled',
}

/** The exit code of a failure, or the cause of another bad end; `''` = the status says all. */
export function endCause({
  status,
  reason,
  exitCode,
}: Pick<ExecutionFacts, 'status' | 'reason' | 'exitCode'>): string {
  if (reason !== '' || status === 'lost') return endReasonClause(reason)
  return exitCode === null || exitCode === 0 ? '' : `exit code ${exitCode}`
}

/** An attempt as a sentence. */
export function executionSentence(
  execution: ExecutionFacts,
  words: Words,
  {cancelledBy, timeout = ''}: {cancelledBy?: string | undefined; timeout?: string} = {},
): string {
  const {node, attempt, status, startedAt, finishedAt, notBefore, lateResult} = execution
  const subject = `Attempt ${attempt} on ${node}`
  const ran = lengthFrom(startedAt, finishedAt)
  const after = ran === null ? '' : ` after ${ran}`
  const cause = endCause(execution)
  const because = cause === '' ? '' : `: ${cause}`
  const late = lateResult === '' ? '' : ` Its result came later: ${words.text(lateResult)}.`
  switch (status) {
    case 'pending':
      return attempt > 1
        ? `${subject} starts at ${words.time(notBefore)} or later.`
        : `${subject} waits for a free slot.`
    case 'running':
      return `${subject} runs since ${words.time(startedAt ?? notBefore)}.`
    case 'succeeded':
      return `${subject} succeeded${after}.${late}`
    case 'failed':
      return `${subject} failed${after}${because}.${late}`
    case 'timed_out': {
      const limit = timeout === '' ? '' : ` of ${timeout}`
      return `${subject} was stopped${after}: its time-out${limit} was over.${late}`
    }
    case 'cancelled': {
      const by = cancelledBy === undefined ? '' : ` by ${cancelledBy}`
      return `${subject} was cancelled${by}${after}.${late}`
    }
    case 'lost': {
      const at = finishedAt === null ? '' : ` at ${words.time(finishedAt)}`
      return `${subject} was lost${at}${because}.${late}`
    }
  }
}

/** Further attempts are only counted. */
const ATTEMPTS_SHOWN = 5

/** A launch that ran, or runs. */
export function launchedTold(
  launch: LaunchFacts,
  executions: readonly ExecutionFacts[],
  end: LaunchStatus | null,
  {typicalMs, cancels, spec, lastLine}: Around,
  words: Words,
): Told {
  const nodes = [...new Set(executions.map(({node}) => node))]
  const delay =
    launch.cause === 'schedule' ? lengthFrom(launch.scheduledAt, launch.decidedAt) : null
  const begin = BEGIN[launch.cause](words.time(launch.scheduledAt))
  const place = nodes.length === 0 ? '' : ` on ${listed(nodes)}`
  const launched = `${begin}, launched${delay === null ? '' : ` ${delay} later`}${place}`
  const lengthMs = end === null ? null : lengthOf(executions)
  const times = lengthMs !== null && typicalMs !== undefined ? lengthMs / typicalMs : 1
  const typical = times >= TIMES_MIN ? ` (${Math.round(times)}× typical)` : ''
  const took = lengthMs === null ? '' : ` after ${roughDuration(lengthMs)}${typical}`
  const outcome = end === null ? 'has not ended' : `${END_WORDS[end]}${took}`
  const notable = executions.filter(({status}) => executions.length > 1 || status !== 'succeeded')
  const hidden = notable.length - ATTEMPTS_SHOWN
  const bad = executions.findLast(({status}) => isBad(status))
  return {
    sentences: [
      `${launched}, and ${outcome}.`,
      ...notable.slice(-ATTEMPTS_SHOWN).map((each) =>
        executionSentence(each, words, {
          cancelledBy: cancels?.get(executionId({...each, group: launch.group})),
          timeout: spec?.executorConfig['timeout'] ?? '',
        }),
      ),
      ...(hidden > 0 ? [`${hidden} earlier attempts are left out.`] : []),
      ...(lastLine === undefined ? [] : [`The last line of its output: ${lastLine}`]),
    ],
    ...(bad === undefined || end === null || end === 'success' || end === 'cancelled'
      ? {}
      : badEndTold(launch, bad)),
    facts: {
      launch: launch.group,
      nodes,
      attempts: executions.length,
      ...(delay === null ? {} : {late_ms: launch.decidedAt! - launch.scheduledAt}),
      ...(lengthMs === null ? {} : {duration_ms: lengthMs}),
      ...(typicalMs === undefined ? {} : {typical_ms: typicalMs}),
    },
  }
}

/** A run is longer than usual from here on. */
const TIMES_MIN = 2

const BEGIN: Readonly<Record<LaunchFacts['cause'], (at: string) => string>> = {
  schedule: (at) => `It was planned for ${at}`,
  manual: (at) => `It was requested at ${at}`,
  create: (at) => `It was requested at ${at} with the creation of the job`,
  parent: (at) => `It was due at ${at}, when its parent succeeded`,
}

/** Time from the first start to the last end; `null` = it never started, or runs. */
function lengthOf(executions: readonly ExecutionFacts[]): number | null {
  const starts = executions.flatMap(({startedAt}) => (startedAt === null ? [] : [startedAt]))
  const ends = executions.flatMap(({finishedAt}) => (finishedAt === null ? [] : [finishedAt]))
  if (starts.length === 0 || ends.length === 0) return null
  return Math.max(0, Math.max(...ends) - Math.min(...starts))
}

export function isBad(status: ExecutionFacts['status']): boolean {
  return status === 'failed' || status === 'timed_out' || status === 'lost'
}

/** Advice after a bad end, by its reason; else the output says more. */
const ADVICE: Readonly<Record<string, string>> = {
  no_executor: 'Run the job on nodes whose release has its executor.',
  command_not_found: 'Install the command on the node, or correct its path.',
  no_secret: 'Set the secret again.',
  node_drained: 'Give the drain a longer deadline.',
  node_restarted: 'Look at the logs of the node.',
  node_outage: 'Look at the network and the power of the nodes.',
  node_lost: 'Look at the node and its network.',
  no_target: 'Start a node with the tags of the job.',
  cut_off: 'Look at the network of the node.',
}

/** Advice after a bad end. */
export function endAdvice({status, reason}: Pick<ExecutionFacts, 'status' | 'reason'>): string {
  if (status === 'timed_out') return 'Raise timeout of the job if it needs longer.'
  return ADVICE[reason] ?? 'Read its output.'
}

function badEndTold(
  {jobName, group}: LaunchFacts,
  bad: ExecutionFacts,
): Pick<Told, 'advice' | 'commands'> {
  const advice = endAdvice(bad)
  const output = `belfry runs output ${jobName} ${executionId({...bad, group})}`
  return {advice, commands: [bad.reason === 'no_secret' ? 'belfry secret list' : output]}
}
