/** What all processors do alike with their parameters. */
import type {StringMap} from '../core/job.ts'
import type {Parameter} from '../ports/executor.ts'

export const FORWARD: Parameter = {
  name: 'forward',
  summary: 'true: hand the output on to the next processor and keep it; false: end the chain here.',
  required: false,
  fallback: 'false',
}

/** Clients send the processor's own name along under this key; it says nothing new. */
const TOLERATED = 'type'

/** Problems with `forward` and with parameters nobody reads. */
export function checkCommon(
  name: string,
  known: readonly Parameter[],
  config: StringMap,
): string[] {
  const problems: string[] = []
  const names = known.map((parameter) => parameter.name)
  for (const key of Object.keys(config)) {
    if (key === TOLERATED || names.includes(key)) continue
    problems.push(
      `processor ${name} has no parameter ${JSON.stringify(key)}; it knows ${names.join(', ')}`,
    )
  }
  const forward = config['forward'] ?? ''
  if (!['', 'true', 'false'].includes(forward.toLowerCase())) {
    problems.push(
      `processor ${name}: forward must be "true" or "false", not ${JSON.stringify(forward)}`,
    )
  }
  return problems
}
