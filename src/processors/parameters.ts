/** Parameters and checks shared by all processors. */
import type {StringMap} from '../core/job.ts'
import {quoteForMessage} from '../lib/quote.ts'

/** Some clients repeat the processor's name under this key. */
const TOLERATED = 'type'

/** Checks `forward` and reports unknown parameters. */
export function checkCommon(names: readonly string[], config: StringMap): string[] {
  const problems: string[] = []
  for (const key of Object.keys(config)) {
    if (key === TOLERATED || names.includes(key)) continue
    problems.push(
      `has no parameter ${quoteForMessage(key)}; its parameters are ${names.join(', ')}`,
    )
  }
  const forward = config['forward'] ?? ''
  if (!['', 'true', 'false'].includes(forward.toLowerCase())) {
    problems.push(`forward must be "true" or "false", not ${quoteForMessage(forward)}`)
  }
  return problems
}
