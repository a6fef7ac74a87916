/** Parameters of executors that a job does not set. */
import type {StringMap} from '../core/job.ts'

/** Values of all parameters. An empty text counts as not set. */
export function withDefaults<Name extends string>(
  defaults: Readonly<Record<Name, string>>,
  config: StringMap,
): Readonly<Record<Name, string>> {
  const values: Record<Name, string> = {...defaults}
  for (const name in values) values[name] = config[name] || values[name]
  return values
}
