/** Problems over all jobs that the caller may read, folded by cause. */
import {
  decide,
  isShown,
  type Principal,
  readableExecutions,
  readableJobs,
} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {lastLineOf} from '../core/explain/explain.ts'
import type {Problem, Problems} from '../core/problems/facts.ts'
import {problemsOf} from '../core/problems/problems.ts'
import type {ProblemQuery} from '../ports/history-store.ts'
import type {KeysetSlice, Position} from '../ports/page.ts'
import {decodeOutput} from '../wire/output.ts'
import type {OperationsContext} from './context.ts'

export interface ProblemsCall
  extends Omit<ProblemQuery, 'names' | 'firstUntil' | 'keepLaunches'>, KeysetSlice {
  /** Only what is not over. */
  readonly open: boolean
}

/** Problems on a page whose last line of output is read. */
const OUTPUTS_MAX = 20
const OUTPUT_END_BYTES = 1_024
const RANGE_MAX_MS = 90 * 86_400_000
/** Four lost heartbeats. A read must not write, so the store is not probed. */
const SILENT_MS = 8_000

export function createProblems({store, node, clock, settings}: OperationsContext) {
  async function problems(
    {open, after, limit, ...call}: ProblemsCall,
    caller: Principal,
  ): Promise<Omit<Problems, 'next'> & {readonly next: Position | null}> {
    // A later page is about the same range as the first.
    const firstUntil = after === null ? null : Number(after[0])
    const names = readableJobs(caller)
    const seesNodes = decide(caller, 'list', '/v1/members').allowed
    checkRange(call.since, firstUntil ?? call.until ?? clock.now())
    const [facts, members] = await Promise.all([
      store.problemFacts({...call, firstUntil, names, keepLaunches: settings.keepLaunches}),
      store.members(),
    ])
    // This server answers, so its heartbeats are missing because the store takes no writes.
    const isStoreDown = members.some(
      ({id, status, heartbeatAt}) =>
        id === node.id && status === 'alive' && facts.now - heartbeatAt > SILENT_MS,
    )
    const seesChannels = decide(caller, 'list', '/v1/notices/channels').allowed
    const found = problemsOf(
      {...facts, silentChannels: seesChannels ? facts.silentChannels : []},
      {
        defaultTarget: settings.targets.defaultTarget,
        seesNodes,
        isFiltered: call.job !== null || call.metadata.length > 0,
        isStoreDown: isStoreDown && facts.to === facts.now,
      },
      {open, after: after?.slice(1) ?? null, limit},
    )
    return {
      ...found,
      problems: await withOutput(found.problems, caller),
      next: found.next === null ? null : [found.to, ...found.next],
    }
  }

  /** Adds the last line of output to the first failures that are not over. */
  async function withOutput(page: readonly Problem[], caller: Principal): Promise<Problem[]> {
    const names = readableExecutions(caller)
    const shown = page
      .filter(({isOver, output}) => !isOver && output !== null && isShown(names, output.jobName))
      .slice(0, OUTPUTS_MAX)
    const wanted = shown.map(({output}) => {
      const {jobName, ...key} = output!
      return {jobName, key}
    })
    const views = wanted.length === 0 ? [] : await store.executionOfEach(wanted, OUTPUT_END_BYTES)
    // A line is absent if the command wrote nothing, or its output is not kept.
    const byKey = new Map(
      shown.map(({key}, index) => {
        const view = views[index] ?? null
        return [key, view === null ? undefined : lastLineOf(decodeOutput(view.output))]
      }),
    )
    return page.map((problem) => {
      const line = byKey.get(problem.key)
      return line === undefined ? problem : {...problem, cause: {...problem.cause, last_line: line}}
    })
  }

  return {problems}
}

function checkRange(since: ProblemsCall['since'], to: number): void {
  const lengthMs = 'at' in since ? to - since.at : since.agoMs
  if (lengthMs <= 0)
    throw new DomainError('query_invalid', 'since: must be before the end of the range')
  if (lengthMs > RANGE_MAX_MS)
    throw new DomainError(
      'query_invalid',
      'since: must be at most 90 days before the end of the range',
    )
}
