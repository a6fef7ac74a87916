/**
 * Problems: what failed, did not run, waits or was late, folded by cause, and whether it is over. Pure; they
 * are computed at each read from the rows of a range of time, and never stored.
 */
import {clusterProblems, dueProblem, spanGroups} from './cluster.ts'
import type {Draft, Folding, ProblemContext} from './draft.ts'
import {attemptProblems, failedRows, lostProblems} from './ended.ts'
import type {ProblemFacts, ProblemPage, Problems} from './facts.ts'
import {foldedRow, notRunRow, pendingRow} from './not-run.ts'
import type {LaunchRecord} from '../launch-record.ts'
import {wordsIn} from '../explain/words.ts'

export function problemsOf(
  facts: ProblemFacts,
  context: ProblemContext,
  {open, after, limit}: ProblemPage,
): Problems {
  const folding: Folding = {
    facts,
    context,
    words: wordsIn(facts.zone, facts.now),
    spans: spanGroups(facts),
    drafts: new Map(),
    byGroup: new Map(),
    toldEvents: new Set(),
  }
  lostProblems(folding)
  failedRows(folding)
  const dependents: LaunchRecord[] = []
  for (const row of facts.notRun) if (!notRunRow(folding, row)) dependents.push(row)
  // Rows of dependents follow: the rows that they fold under are known by then.
  const byGroup = new Map(dependents.map((row) => [row.group, row]))
  for (const row of dependents.toReversed()) foldedRow(folding, row, byGroup)
  for (const row of facts.pending) pendingRow(folding, row)
  attemptProblems(folding)
  dueProblem(folding)
  clusterProblems(folding)
  const drafts = [...folding.drafts.values()].map((draft) => ({draft, place: draft.place(facts)}))
  drafts.sort((one, other) => comparePlaces(one.place, other.place))
  const isShown = ({kind, code, jobs, isOver}: Draft) =>
    kind !== 'cluster' || !context.isFiltered || jobs.length > 0 || (!isOver && STOPS_ALL.has(code))
  const found = drafts.filter(({draft}) => draft.kind !== 'on_purpose' && isShown(draft))
  const rest = found.filter(
    ({draft, place}) =>
      !(open && draft.isOver) && (after === null || comparePlaces(place, after) > 0),
  )
  const shown = rest.slice(0, limit)
  const onPurpose =
    open || after !== null ? [] : drafts.filter(({draft}) => draft.kind === 'on_purpose')
  const tell = ({draft}: {readonly draft: Draft}) => draft.problem(folding)
  return {
    from: facts.from,
    to: facts.to,
    isPartial: facts.isPartial,
    oldest: Math.max(facts.from, ...facts.keptFrom.values()),
    notOver: found.filter(({draft}) => !draft.isOver).length,
    problems: shown.map(tell),
    onPurpose: onPurpose.slice(0, ON_PURPOSE_MAX).map(tell),
    next: rest.length > shown.length ? (shown.at(-1)?.place ?? null) : null,
  }
}

/** Rows that were on purpose are folded by person and text: there are few. */
const ON_PURPOSE_MAX = 100
const STOPS_ALL: ReadonlySet<string> = new Set([
  'no_leader',
  'clock_held',
  'store_restored',
  'store',
])

function comparePlaces(
  one: readonly (string | number)[],
  other: readonly (string | number)[],
): number {
  for (const [at, value] of one.entries()) {
    const against = other[at]!
    if (value !== against) return value < against ? -1 : 1
  }
  return 0
}
