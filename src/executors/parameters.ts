/** Parameter checks shared by all executors. */
import type {StringMap} from '../core/job.ts'
import type {Parameter} from '../ports/executor.ts'

/** One warning that names all unknown parameters, or none. */
export function unknownParameters(
  config: StringMap,
  known: readonly Parameter[],
  executor: string,
): string[] {
  const names = known.map((parameter) => parameter.name)
  const unknown = Object.keys(config).filter((name) => !names.includes(name))
  if (unknown.length === 0) return []
  const list = unknown.map((name) => JSON.stringify(name)).join(', ')
  return [`${list} is not used by the ${executor} executor; its parameters are ${names.join(', ')}`]
}
