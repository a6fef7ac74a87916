/**
 * Validation of definitions for this server: the rules of the core, its executors and processors, and whether
 * a member has the tags. Submit and restore share it.
 */
import {DomainError} from '../core/errors.ts'
import type {JobSpec, StringMap} from '../core/job.ts'
import {systemTags} from '../core/node.ts'
import {
  hasReference,
  SECRET_NAME,
  secretsIn,
  secretsOf,
  SECRETS_PER_JOB_MAX,
} from '../core/secret.ts'
import {matchTargets} from '../core/target.ts'
import {type Findings, validateSpec} from '../core/validate.ts'
import type {OperationsContext} from './context.ts'

export type ValidationContext = Pick<
  OperationsContext,
  'clock' | 'executors' | 'processors' | 'settings'
>

/** Names that servers with this interface are known to have and that no node of Belfry has. */
const EXECUTORS_ELSEWHERE: readonly string[] = ['gcppubsub', 'grpc', 'kafka', 'nats', 'rabbitmq']
const PROCESSORS_ELSEWHERE: readonly string[] = ['elasticsearch', 'email', 'fluent', 'slack']

/**
 * Validates a definition for this server: the rules of the core, and the parameter checks of its executors
 * and processors. Problems and warnings are sentences that start with the field's name.
 */
export function validateDefinition(context: ValidationContext, spec: JobSpec): Findings {
  const rules = validateSpec(spec, {
    defaultTimezone: context.settings.defaultTimezone(),
    now: context.clock.now(),
  })
  const all = [
    rules,
    validateExecutor(context, spec),
    ...Object.entries(spec.processors).map(([name, parameters]) =>
      validateProcessor(context, name, parameters),
    ),
  ]
  return {
    problems: all.flatMap(({problems}) => problems),
    warnings: all.flatMap(({warnings}) => warnings),
  }
}

function validateExecutor({executors}: ValidationContext, spec: JobSpec): Findings {
  if (spec.executor === '') return warns('executor: is not set, so every run of this job will fail')
  const executor = executors.get(spec.executor)
  if (executor === null) {
    const name = `executor: "${spec.executor}"`
    const known = executors.names().join(', ')
    return EXECUTORS_ELSEWHERE.includes(spec.executor)
      ? warns(`${name} is on no node, so every run of this job will fail; known are ${known}`)
      : rejects(`${name} is not known; known are ${known}`)
  }
  const findings = executor.check(spec.executorConfig)
  const withField = (sentence: string) => `executor_config: ${sentence}`
  const problems = [
    ...misplacedSecrets(spec, executor.secretParameters ?? []),
    ...findings.problems,
  ]
  return {
    problems: problems.map(withField),
    warnings: [...findings.warnings, ...mistypedSecrets(spec)].map(withField),
  }
}

/** What looks like a reference to a secret, and is passed on as it is. */
function mistypedSecrets({executorConfig}: JobSpec): readonly string[] {
  return Object.entries(executorConfig).flatMap(([parameter, text]) => {
    const found = text.match(/\$\{\s*secrets?\s*:/gi)?.find((start) => !hasReference(start))
    const why = 'is no reference to a secret, so it stays as it is. Write ${secret:NAME}'
    return found === undefined ? [] : [`${parameter}: ${JSON.stringify(found)} ${why}`]
  })
}

/** `allowed`: parameters that may name secrets. */
function misplacedSecrets(spec: JobSpec, allowed: readonly string[]): readonly string[] {
  const places = allowed.length === 0 ? 'this executor takes none' : `use ${allowed.join(', ')}`
  const problems = Object.entries(spec.executorConfig).flatMap(([parameter, text]) => {
    const names = secretsIn(text)
    if (names.length === 0) return []
    if (!allowed.includes(parameter)) return `${parameter} cannot name a secret: ${places}`
    const wrong = names.find((name) => !SECRET_NAME.test(name))
    const shown = JSON.stringify(wrong?.slice(0, 64))
    return wrong === undefined ? [] : `${parameter} names a secret, and ${shown} is no name of one`
  })
  if (secretsOf(spec).length > SECRETS_PER_JOB_MAX)
    problems.push(`a job can name at most ${SECRETS_PER_JOB_MAX} secrets`)
  return problems
}

function validateProcessor(
  {processors}: ValidationContext,
  name: string,
  parameters: StringMap,
): Findings {
  const processor = processors.get(name)
  if (processor === null) {
    const known = processors.names().join(', ')
    return PROCESSORS_ELSEWHERE.includes(name)
      ? warns(`processors: "${name}" is on no node, so runs will skip it; known are ${known}`)
      : rejects(`processors: "${name.slice(0, 64)}" is not known; known are ${known}`)
  }
  const problems = [...processor.check(withoutType(parameters))]
  for (const [parameter, text] of Object.entries(parameters))
    if (hasReference(text)) problems.push(`${parameter} cannot name a secret: processors take none`)
  return {problems: problems.map((sentence) => `processors.${name}: ${sentence}`), warnings: []}
}

function warns(warning: string): Findings {
  return {problems: [], warnings: [warning]}
}

function rejects(problem: string): Findings {
  return {problems: [problem], warnings: []}
}

/** Some clients repeat the processor's name as the parameter `type`. It is stored and ignored. */
function withoutType(parameters: StringMap): StringMap {
  const {type: _type, ...rest} = parameters
  return rest
}

/** Warnings about the tags of a definition. */
export type TagCheck = (tags: StringMap) => readonly string[]

/** Different tags that one check compares with the members. Bounds the time for a large restore. */
const CHECKED_MAX = 1_000
const SHOWN_LENGTH_MAX = 200

/**
 * Reads the members, and checks that one has the tags of a job. Members that left or failed count too: they
 * may come back. Never rejects because of the store: a warning is not worth an error.
 */
export async function openTagCheck(members: ReadMembers): Promise<TagCheck> {
  const nodes = await nodesOf(members)
  const checked = new Map<string, boolean>()
  return (tags) => {
    const shown = Object.entries(tags)
      .map(([key, value]) => `${key}=${value}`)
      .join(', ')
    if (shown === '' || nodes === null) return []
    if (!checked.has(shown) && checked.size < CHECKED_MAX)
      checked.set(shown, matchTargets(tags, nodes, 'one').nodes.length > 0)
    if (checked.get(shown) !== false) return []
    const missing = shown.slice(0, SHOWN_LENGTH_MAX)
    return [`tags: no node has ${missing}, so runs wait for one and are then skipped`]
  }
}

type ReadMembers = OperationsContext['store']['members']

/** `null` = unknown. */
async function nodesOf(read: ReadMembers) {
  try {
    const members = await read()
    return members
      .filter(({runs}) => runs)
      .map((member) => ({tags: {...systemTags(member), ...member.tags}}))
  } catch (error) {
    if (error instanceof DomainError) return null
    throw error
  }
}
