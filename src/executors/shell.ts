/**
 * shell executor: runs a command on this node through the process helper, and translates its end into an
 * outcome and messages. It never starts a process itself and never inserts values into a shell command line.
 */
import type {StringMap} from '../core/job.ts'
import {unreachable} from '../lib/assert.ts'
import type {Executor, OutputSink, Run, RunEnd, RunHandle} from '../ports/executor.ts'
import {PROGRAM_PREFIX} from './process/orphans.ts'
import type {CommandEnd, StartRequest} from './process/protocol.ts'
import type {CommandHandle, ProcessHelper} from './process/supervisor.ts'
import {
  readShell,
  SHELL_PARAMETERS,
  SHELL_SECRETS,
  type ShellLimits,
  type ShellPlan,
  shellWarnings,
} from './shell-parameters.ts'

export interface ShellOptions extends ShellLimits {
  /** Starts a command in the process helper. */
  readonly run: (request: StartRequest, output: OutputSink) => CommandHandle
}

const NO_COMMAND = 'command is missing, so every run fails'

export function createShellExecutor(options: ShellOptions): Executor {
  return {
    name: 'shell',
    runsCommands: true,
    takesAccount: true,
    fileParameters: [],
    parameters: SHELL_PARAMETERS,
    secretParameters: SHELL_SECRETS,
    check: (config) => check(config, options),
    start: (run, output) => start(run, output, options),
  }
}

function check(config: StringMap, limits: ShellLimits): {problems: string[]; warnings: string[]} {
  const {plan, problems} = readShell(config, limits)
  const isEmpty = plan.argv.length === 0 && problems.length === 0
  return {problems, warnings: isEmpty ? [NO_COMMAND] : shellWarnings(config)}
}

function start(run: Run, output: OutputSink, options: ShellOptions): RunHandle {
  const {plan, problems} = readShell(run.config, options, run.secrets)
  const problem = problems[0] ?? (plan.argv.length === 0 ? NO_COMMAND : null)
  if (problem !== null) return alreadyFailed(problem)
  const command = options.run(toRequest(run, plan), output)
  return {
    cancel: command.cancel,
    kill: command.kill,
    ended: command.ended.then((end) => describeEnd(end, run.config)),
  }
}

function alreadyFailed(problem: string): RunHandle {
  const foot = `${problem}\n`
  const end: RunEnd = {outcome: 'failed', exitCode: null, head: '', foot, reason: 'not_started'}
  return {cancel: () => undefined, kill: () => undefined, ended: Promise.resolve(end)}
}

function toRequest(run: Run, plan: ShellPlan): StartRequest {
  return {
    executionId: run.executionId,
    argv: plan.argv,
    environment: {
      ...plan.environment,
      BELFRY_JOB: run.jobName,
      BELFRY_SCHEDULED_AT: new Date(run.scheduledAt).toISOString(),
      BELFRY_ATTEMPT: String(run.attempt),
      BELFRY_NODE: run.nodeName,
      ENV_JOB_NAME: run.jobName,
    },
    cwd: plan.cwd,
    payload: plan.payload,
    user: plan.user,
    timeoutMs: plan.timeoutMs,
    memoryBytesMax: plan.memoryBytesMax,
  }
}

function describeEnd(end: CommandEnd, config: StringMap): RunEnd {
  const {exitCode, ending} = end
  const failedByCode = exitCode !== null && exitCode !== 0
  const head = failedByCode && ending === null ? `exit status ${exitCode}\n` : ''
  const foot = footLines(end, config).map((line) => `${line}\n`)
  const why = end.failure !== '' && end.ranMs === 0 ? {reason: startFailure(end)} : {}
  return {outcome: outcomeOf(end), exitCode, head, foot: foot.join(''), ranMs: end.ranMs, ...why}
}

function startFailure({failure}: CommandEnd): string {
  return failure.startsWith('command not found') ? 'command_not_found' : 'not_started'
}

function footLines(end: CommandEnd, config: StringMap): string[] {
  const lines = [end.failure, endingLine(end, config)]
  if (end.cut)
    lines.push('output closed here: a process that the command left behind still held it open')
  return lines.filter((line) => line !== '')
}

function endingLine(end: CommandEnd, config: StringMap): string {
  switch (end.ending) {
    case 'timeout':
      return `timed out after ${config['timeout']}`
    case 'cancel':
      return 'cancelled'
    case 'kill':
      return 'killed'
    case 'memory':
      return `killed: ${end.memoryBytes} bytes of resident memory, over mem_limit ${config['mem_limit']}`
    case null:
      return end.signal === '' ? '' : `killed by signal ${end.signal}`
    default:
      return unreachable(end.ending)
  }
}

function outcomeOf(end: CommandEnd): RunEnd['outcome'] {
  if (end.ending === 'timeout') return 'timed_out'
  if (end.ending === 'cancel' || end.ending === 'kill') return 'cancelled'
  return end.exitCode === 0 && end.failure === '' && end.ending === null ? 'succeeded' : 'failed'
}

/** Timeout of a program. */
const PROGRAM_MS = 20_000

/** Characters of the program's output in an error message. */
const TEXT_MAX = 200

let next = 1

/**
 * Runs a program of Belfry itself, such as logger(1), through the helper: the node must not fork. There is no
 * execution, and the output only serves error messages. Resolves to `''` or to why it failed; never rejects.
 */
export async function runProgram(
  helper: ProcessHelper,
  argv: readonly string[],
  input: Uint8Array,
): Promise<string> {
  let printed = ''
  const output = {
    write: (bytes: Uint8Array): boolean => {
      printed = `${printed}${Buffer.from(bytes).toString('utf8')}`.slice(-TEXT_MAX)
      return true
    },
    drained: (callback: () => void): void => callback(),
  }
  const request = {
    executionId: `${PROGRAM_PREFIX}${next++}`,
    argv,
    environment: {},
    cwd: '',
    payload: Buffer.from(input).toString('base64'),
    user: '',
    timeoutMs: PROGRAM_MS,
    memoryBytesMax: 0,
  }
  const end = await helper.run(request, output).ended
  if (end.exitCode === 0 && end.failure === '' && end.ending === null) return ''
  if (end.failure !== '') return end.failure
  const how = end.exitCode === null ? `ended by ${end.signal}` : `exit status ${end.exitCode}`
  return `${how} ${printed.trim()}`.trim()
}
