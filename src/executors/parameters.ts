/** Parameters of executors that a job does not set. */
import type {StringMap} from '../core/job.ts'

/** Values of all parameters. An empty text counts as not set. */
export function withDefaults<Name extends string>(
  defaults: Readonly<Record<Name, string>>,
  config: StringMap,
): Readonly<Record<Name, string>> {
  const names = Object.keys(defaults) as Name[]
  const pairs = names.map((name) => [name, config[name] || defaults[name]])
  return Object.fromEntries(pairs) as Record<Name, string>
}
