/**
 * Whether a definition can be accepted on this server: the pure rules of the core, and what the executors and
 * processors known here say about their parameters. Shared by submitting and restoring, so that a file is
 * held to the same rules.
 */
import type {JobSpec, StringMap} from '../core/job.ts'
import {validateSpec, type Findings} from '../core/validate.ts'
import type {OperationsDependencies} from './context.ts'

export type JudgeDependencies = Pick<
  OperationsDependencies,
  'clock' | 'executors' | 'processors' | 'settings'
>

/** Problems and warnings are sentences that begin with the field's name. */
export function judge(dependencies: JudgeDependencies, spec: JobSpec): Findings {
  const own = validateSpec(spec, {
    defaultTimezone: dependencies.settings.defaultTimezone(),
    now: dependencies.clock.now(),
  })
  const executor = judgeExecutor(dependencies, spec)
  return {
    problems: [...own.problems, ...executor.problems, ...judgeProcessors(dependencies, spec)],
    warnings: [...own.warnings, ...executor.warnings],
  }
}

function judgeExecutor({executors}: JudgeDependencies, spec: JobSpec): Findings {
  if (spec.executor === '') {
    const warning = 'executor: is not set, so every run of this job will fail'
    return {problems: [], warnings: [warning]}
  }
  const executor = executors.get(spec.executor)
  if (executor === null) {
    const known = executors.names().join(', ')
    const problem = `executor: "${spec.executor}" is not known; known are ${known}`
    return {problems: [problem], warnings: []}
  }
  const found = executor.check(spec.executorConfig)
  const named = (sentence: string) => `executor_config: ${sentence}`
  return {problems: found.problems.map(named), warnings: found.warnings.map(named)}
}

function judgeProcessors({processors}: JudgeDependencies, spec: JobSpec): string[] {
  return Object.entries(spec.processors).flatMap(([name, parameters]) => {
    const processor = processors.get(name)
    if (processor === null) {
      const known = processors.names().join(', ')
      return [`processors: "${name.slice(0, 64)}" is not known; known are ${known}`]
    }
    return processor
      .check(withoutType(parameters))
      .map((sentence) => `processors.${name}: ${sentence}`)
  })
}

/** Some clients send the processor's name once more as `type`; it is kept and means nothing. */
function withoutType(parameters: StringMap): StringMap {
  const {type: _type, ...rest} = parameters
  return rest
}
