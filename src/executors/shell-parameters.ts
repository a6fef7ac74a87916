/**
 * Parses the parameters of a shell job into the command to start, or into problems. Validation and start use
 * the same parser, so both accept the same jobs. It has no side effects.
 */
import {isAbsolute} from 'node:path'
import type {StringMap} from '../core/job.ts'
import {fillSecrets, hasReference} from '../core/secret.ts'
import {parseByteSize} from '../lib/byte-size.ts'
import {parseLength} from '../lib/duration.ts'
import {quoteForMessage} from '../lib/quote.ts'
import {withDefaults} from './parameters.ts'
import {shellSyntaxIn, splitWords} from './shell-words.ts'

export const SHELL_PARAMETERS = {
  command: '',
  shell: 'false',
  env: '',
  cwd: '',
  timeout: '',
  payload: '',
  su: '',
  mem_limit: '',
}

/** Permissions of a node for shell jobs. */
export interface ShellLimits {
  /** Accounts as `su` names them; `*` = any. */
  readonly suAllowed: readonly string[]
  /** Only root can run commands as another user. */
  readonly runsAsRoot: boolean
}

export interface ShellPlan {
  /** Empty when there is no command. */
  readonly argv: readonly string[]
  readonly environment: Readonly<Record<string, string>>
  readonly cwd: string
  /** 0 = none. */
  readonly timeoutMs: number
  /** Base64, `''` = none. */
  readonly payload: string
  readonly user: string
  /** 0 = none. */
  readonly memoryBytesMax: number
}

const TRUE_WORDS: readonly string[] = ['true', '1', 't', 'yes', 'on']
const FALSE_WORDS: readonly string[] = ['false', '0', 'f', 'no', 'off']

/** No leading dash: the name is an argument of id(1) and getent(1). */
const ACCOUNT = /^[A-Za-z0-9_.][A-Za-z0-9_.@-]*(:[A-Za-z0-9_.][A-Za-z0-9_.@-]*)?$/

/**
 * Parameters that may name secrets. Not the command: other users of the machine see the arguments of a
 * process, and not its environment.
 */
export const SHELL_SECRETS = ['env'] as const

/** Collects the problems of all parameters. A secret without a value stays a reference. */
export function readShell(
  config: StringMap,
  limits: ShellLimits,
  secrets: StringMap = {},
): {plan: ShellPlan; problems: string[]} {
  const problems: string[] = []
  const given = withDefaults(SHELL_PARAMETERS, config)
  const plan = {
    argv: readCommand(given.command, given.shell, problems),
    environment: readEnvironment(given.env, secrets, problems),
    cwd: readDirectory(given.cwd, problems),
    timeoutMs: readTimeout(given.timeout, problems),
    payload: readPayload(given.payload, problems),
    user: readUser(given.su, limits, problems),
    memoryBytesMax: readSize(given.mem_limit, problems),
  }
  return {plan, problems}
}

/**
 * Builtins and keywords of a shell. Some systems also have a program of such a name, without an effect beyond
 * itself: a `cd` of its own changes no directory of the next command.
 */
const SHELL_ONLY: readonly string[] = (
  '. : alias break case cd continue eval exec exit export for function if local read readonly return set ' +
  'shift source trap ulimit umask unalias unset until wait while { (( [[ !'
).split(' ')

/** Warnings about a valid command that probably means something else. */
export function shellWarnings(config: StringMap): string[] {
  const {command, shell} = withDefaults(SHELL_PARAMETERS, config)
  const word = shell.toLowerCase()
  const warnings: string[] = []
  if (!['true', 'false'].includes(word) && [...TRUE_WORDS, ...FALSE_WORDS].includes(word)) {
    const isTrue = TRUE_WORDS.includes(word)
    warnings.push(`shell: ${quoteForMessage(shell)} is read as ${isTrue}; write "${isTrue}"`)
  }
  const syntax = shellSyntaxIn(command)
  if (!TRUE_WORDS.includes(word)) {
    if (syntax.length > 0)
      warnings.push(
        `command has ${syntax.join(' ')} and no shell that interprets it: it is passed on as text. ` +
          'Set shell to "true", or put it into single quotes',
      )
    const program = /^\s*(\S*)/.exec(command)![1]!
    if (SHELL_ONLY.includes(program))
      warnings.push(
        `command begins with ${program}, which is no program but part of a shell, so every run will fail. ` +
          'Set shell to "true"',
      )
  } else if (syntax.includes('|') && !command.includes('pipefail'))
    warnings.push(
      'command has a pipe, of which only the exit status of the last command counts. To fail if any of ' +
        "them fails, run it in bash: bash -o pipefail -c '…'",
    )
  return warnings
}

function readCommand(command: string, shell: string, problems: string[]): string[] {
  const word = shell.toLowerCase()
  if (!TRUE_WORDS.includes(word) && !FALSE_WORDS.includes(word)) {
    problems.push(`shell must be "true" or "false", not ${JSON.stringify(shell)}`)
  }
  if (command.includes('\0')) {
    problems.push('command must not contain a NUL character')
    return []
  }
  if (command.trim() === '') return []
  if (TRUE_WORDS.includes(word)) return ['/bin/sh', '-c', command]
  const split = splitWords(command)
  if ('words' in split && split.words[0] !== '') return split.words
  const what = 'problem' in split ? split.problem : 'its first word, the program, is empty'
  problems.push(
    `command cannot be split into words: ${what}; fix the quoting, or set shell to "true"`,
  )
  return []
}

/** `A=1,B=two\, three`: only `\,` is an escape, so paths with backslashes stay unchanged. */
function readEnvironment(
  text: string,
  secrets: StringMap,
  problems: string[],
): Record<string, string> {
  const environment: Record<string, string> = {}
  for (const [index, part] of text.split(/(?<!\\),/).entries()) {
    const pair = part.replaceAll('\\,', ',')
    if (pair.trim() === '') continue
    const equals = pair.indexOf('=')
    const name = pair.slice(0, Math.max(equals, 0)).trim()
    if (equals < 0 || name === '' || /\s|\0|\$\{/.test(name) || pair.includes('\0')) {
      const isReference = hasReference(name)
      problems.push(
        isReference
          ? 'env can name a secret only in a value, as in NAME=${secret:x}'
          : `env must be comma-separated NAME=value pairs (a comma in a value is written "\\,"): ` +
              `pair ${index + 1} is not one`,
      )
    } else if (name.startsWith('BELFRY_') || name === 'ENV_JOB_NAME') {
      problems.push(`env cannot set ${name}: Belfry sets it for every command`)
    } else environment[name] = fillSecrets(pair.slice(equals + 1), secrets)
  }
  return environment
}

function readDirectory(cwd: string, problems: string[]): string {
  if (cwd === '') return ''
  if (cwd.includes('\0') || !isAbsolute(cwd)) {
    problems.push(`cwd must be an absolute path, not ${JSON.stringify(cwd)}`)
    return ''
  }
  return cwd
}

function readTimeout(text: string, problems: string[]): number {
  if (text === '') return 0
  const timeoutMs = parseLength(text)
  if (timeoutMs !== null && timeoutMs > 0) return timeoutMs
  problems.push(
    `timeout must be a duration longer than 0, like 30s, 5m or 1h30m, not ${JSON.stringify(text)}`,
  )
  return 0
}

function readPayload(text: string, problems: string[]): string {
  const payload = text.replace(/\s+/g, '')
  if (payload === '') return ''
  if (payload.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(payload)) return payload
  problems.push(
    'payload must be base64 (letters, digits, + and /, padded with = to a multiple of 4 characters)',
  )
  return ''
}

function readUser(text: string, limits: ShellLimits, problems: string[]): string {
  if (text === '') return ''
  if (!ACCOUNT.test(text)) {
    problems.push(`su must be user or user:group, not ${JSON.stringify(text)}`)
  } else if (!limits.runsAsRoot) {
    problems.push('su requires a node that runs as root, and this node does not; remove su')
  } else if (!limits.suAllowed.includes(text) && !limits.suAllowed.includes('*')) {
    const allowed = limits.suAllowed.length === 0 ? '' : `; allowed: ${limits.suAllowed.join(', ')}`
    const fix = `start the node with --su-allow ${text}, or remove su`
    problems.push(`su ${JSON.stringify(text)} is not allowed on this node: ${fix}${allowed}`)
  } else return text
  return ''
}

function readSize(text: string, problems: string[]): number {
  if (text === '') return 0
  const bytes = parseByteSize(text.trim())
  if (bytes !== null && bytes > 0) return bytes
  problems.push(
    `mem_limit must be a size like 512MB, 1.5GiB or 200000000, not ${JSON.stringify(text)}`,
  )
  return 0
}
