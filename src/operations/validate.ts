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
import {FAULTS_MAX, type Finding, type Findings, rootOf} from '../core/findings.ts'
import {validateSpec} from '../core/validate.ts'
import {didYouMean} from '../lib/nearest.ts'
import {escapeInvisible, quoteForMessage} from '../lib/quote.ts'
import type {Executor} from '../ports/executor.ts'
import {type DecodedJob, misspelt, unknownField} from '../wire/decode-job.ts'
import type {OperationsContext} from './context.ts'

export type ValidationContext = Pick<
  OperationsContext,
  'clock' | 'executors' | 'processors' | 'settings'
>

/** Names that servers with this interface are known to have and that no node of Belfry has. */
const EXECUTORS_ELSEWHERE: readonly string[] = ['gcppubsub', 'grpc', 'kafka', 'nats', 'rabbitmq']
const PROCESSORS_ELSEWHERE: readonly string[] = ['elasticsearch', 'email', 'fluent', 'slack']

export interface DefinitionFindings extends Findings {
  /** Unknown fields, which are ignored. They are not among the warnings. */
  readonly ignored: readonly Finding[]
}

/**
 * All faults and warnings of a decoded definition: of its decoding, of the rules of the core, and of its
 * executor and processors. With `strict`, an unknown field or parameter is a fault.
 */
export function validateDefinition(
  context: ValidationContext,
  {spec, faults, warnings, ignoredFields}: DecodedJob,
  strict: boolean,
): DefinitionFindings {
  const unknown = ignoredFields.map(unknownField)
  const faulty = new Set(faults.map(rootOf))
  const all = spec === null ? [] : findingsOf(context, spec, {faulty, ignoredFields, strict})
  const found = [...faults, ...(strict ? unknown : []), ...all.flatMap((each) => each.faults)]
  return {
    faults: found.slice(0, FAULTS_MAX),
    warnings: [...warnings, ...all.flatMap((each) => each.warnings)],
    ignored: strict ? [] : unknown,
  }
}

interface Decoding {
  readonly faulty: ReadonlySet<string>
  readonly ignoredFields: readonly string[]
  readonly strict: boolean
}

const NONE: Findings = {faults: [], warnings: []}

function findingsOf(
  context: ValidationContext,
  spec: JobSpec,
  {faulty, ignoredFields, strict}: Decoding,
): Findings[] {
  const rules = validateSpec(spec, {
    defaultTimezone: context.settings.defaultTimezone(),
    now: context.clock.now(),
    faulty,
    misspelt: (field) => misspelt(field, ignoredFields),
  })
  const ofExecutor = faulty.has('executor') ? NONE : validateExecutor(context, spec, strict)
  // A parameter that could not be decoded is not missing.
  const executor = faulty.has('executor_config') ? {...ofExecutor, warnings: []} : ofExecutor
  const processors = Object.entries(spec.processors).map(([name, parameters]) =>
    validateProcessor(context, name, parameters),
  )
  return [rules, executor, ...processors, withoutOutput(context, spec)]
}

/** A processor that does not forward ends the chain: those after it get nothing. */
function withoutOutput({processors}: ValidationContext, spec: JobSpec): Findings {
  const names = Object.keys(spec.processors).filter((name) => processors.get(name) !== null)
  const isLast = (name: string) => spec.processors[name]!['forward']?.toLowerCase() !== 'true'
  const end = names.findIndex(isLast)
  const after = end === -1 ? [] : names.slice(end + 1)
  const problem = `gets no output: set forward of ${names[end]} to "true"`
  return {faults: [], warnings: after.map((name) => ({field: `processors.${name}`, problem}))}
}

function validateExecutor(
  {executors}: ValidationContext,
  spec: JobSpec,
  strict: boolean,
): Findings {
  const {executor: name, executorConfig} = spec
  if (name === '') return warns('executor', 'is not set, so every run of this job will fail')
  const executor = executors.get(name)
  if (executor === null) {
    const known = executors.names()
    const list = `known are ${known.join(', ')}`
    return EXECUTORS_ELSEWHERE.includes(name)
      ? warns('executor', `"${name}" is on no node, so every run of this job will fail; ${list}`)
      : rejects(
          'executor',
          `${quoteForMessage(name)} is not known; ${list}${didYouMean(name, known)}`,
        )
  }
  const field = 'executor_config'
  const {problems, warnings} = executor.check(executorConfig)
  const unknown = unknownParameters(executor, executorConfig)
  const refused = [...misplacedSecrets(spec, executor.secretParameters ?? []), ...problems]
  const doubtful = [...warnings, ...mistypedSecrets(spec)]
  return {
    faults: [...refused.map((problem) => ({field, problem})), ...(strict ? unknown : [])],
    warnings: [...doubtful.map((problem) => ({field, problem})), ...(strict ? [] : unknown)],
  }
}

/** An executor that declares no parameters checks their names itself. */
function unknownParameters(
  {name, parameters}: Pick<Executor, 'name'> & Partial<Pick<Executor, 'parameters'>>,
  config: StringMap,
): readonly Finding[] {
  if (parameters === undefined) return []
  const known = Object.keys(parameters)
  return Object.keys(config)
    .filter((key) => !known.includes(key))
    .map((key) => {
      const meant = didYouMean(key, known) || `; its parameters are ${known.join(', ')}`
      const problem = `is not used by the ${name} executor${meant}`
      return {field: `executor_config.${escapeInvisible(key)}`, problem, code: 'field_unknown'}
    })
}

/** Parameters that look like a reference to a secret, and are passed on as they are. */
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
    return wrong === undefined
      ? []
      : `${parameter} names a secret, and ${quoteForMessage(wrong)} is no name of one`
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
    const known = processors.names()
    const list = `known are ${known.join(', ')}`
    return PROCESSORS_ELSEWHERE.includes(name)
      ? warns('processors', `"${name}" is on no node, so runs will skip it; ${list}`)
      : rejects(
          'processors',
          `${quoteForMessage(name)} is not known; ${list}${didYouMean(name, known)}`,
        )
  }
  const problems = [...processor.check(withoutType(parameters))]
  for (const [parameter, text] of Object.entries(parameters))
    if (hasReference(text)) problems.push(`${parameter} cannot name a secret: processors take none`)
  const field = `processors.${name}`
  return {faults: problems.map((problem) => ({field, problem})), warnings: []}
}

function warns(field: string, problem: string): Findings {
  return {faults: [], warnings: [{field, problem}]}
}

function rejects(field: string, problem: string): Findings {
  return {faults: [{field, problem}], warnings: []}
}

/** Some clients repeat the processor's name as the parameter `type`. It is stored and ignored. */
function withoutType(parameters: StringMap): StringMap {
  const {type: _type, ...rest} = parameters
  return rest
}

/** Warnings about the tags of a definition. */
export type TagCheck = (tags: StringMap) => readonly Finding[]

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
    const wanted = Object.entries(tags)
      .map(([key, value]) => `${key}=${value}`)
      .join(', ')
    if (wanted === '' || nodes === null) return []
    if (!checked.has(wanted) && checked.size < CHECKED_MAX)
      checked.set(wanted, matchTargets(tags, nodes, 'one').nodes.length > 0)
    if (checked.get(wanted) !== false) return []
    const missing = wanted.slice(0, SHOWN_LENGTH_MAX)
    const problem = `no node has ${missing}, so runs wait for one and are then skipped`
    return [{field: 'tags', problem}]
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
