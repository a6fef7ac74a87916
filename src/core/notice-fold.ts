/** Folds the incidents of one message: dependents that did not run belong to the failure above them. Pure. */
import {type Incident, OF_DEPENDENTS} from './notice-incidents.ts'

/** A row of a chain that did not run because of its parent. */
export interface SkippedDependent {
  readonly group: number
  readonly parentGroup: number | null
  readonly jobName: string
}

export interface FoldedIncident {
  readonly incident: Incident
  /** Names of the dependents that did not run because of it. */
  readonly dependents: readonly string[]
}

/** Dependents below a launch, in the order of their numbers. `rows`: of its whole chain, in that order. */
export function dependentsBelow(
  rows: readonly SkippedDependent[],
  group: number,
): readonly SkippedDependent[] {
  const below = new Set([group])
  return rows.filter((row) => {
    if (row.parentGroup === null || !below.has(row.parentGroup)) return false
    below.add(row.group)
    return true
  })
}

/** `dependents`: those below the launch of each incident, by its key. `isReadable`: their names are shown. */
export function foldIncidents(
  incidents: readonly Incident[],
  dependents: ReadonlyMap<string, readonly SkippedDependent[]>,
  isReadable: (job: string) => boolean,
): readonly FoldedIncident[] {
  const below = new Set([...dependents.values()].flat().map(({group}) => group))
  const isFolded = ({condition, cause, launch}: Incident) =>
    condition === 'skipped' && OF_DEPENDENTS.has(cause) && launch !== null && below.has(launch)
  return incidents
    .filter((incident) => !isFolded(incident))
    .map((incident) => {
      const names = (dependents.get(incident.key) ?? []).map(({jobName}) => jobName)
      return {incident, dependents: [...new Set(names)].filter(isReadable)}
    })
}
