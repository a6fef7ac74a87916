/** What all executors do alike with their parameters. */
import type {StringMap} from '../core/job.ts'
import type {Parameter} from '../ports/executor.ts'

/** One sentence for parameters nobody reads, or none. */
export function unknownParameters(
  config: StringMap,
  known: readonly Parameter[],
  executor: string,
): string[] {
  const names = known.map((parameter) => parameter.name)
  const unknown = Object.keys(config).filter((name) => !names.includes(name))
  if (unknown.length === 0) return []
  const list = unknown.map((name) => JSON.stringify(name)).join(', ')
  return [
    `executor_config ${list} means nothing to the ${executor} executor, which knows ${names.join(', ')}`,
  ]
}
