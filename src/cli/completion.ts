/**
 * Shell completion: `belfry completion bash|zsh|fish` prints a script. The script asks this program for the
 * words that may follow, so that it always knows all commands and flags.
 */
import type {Command, Option} from 'commander'
import type {MemberJson} from '../wire/member.ts'
import type {ExecutionJson} from '../wire/execution.ts'
import type {JobJson} from '../wire/job.ts'
import type {TokenJson} from '../wire/token.ts'
import {path} from './client.ts'
import {CallFailed, UsageError} from './errors.ts'
import type {GlobalOptions, Session} from './session.ts'
import {oneOf} from './values.ts'

/** A person does not wait longer for the names of jobs. */
const TIMEOUT_MS = 1_000
/** A shell lists no more in a useful way. */
const NAMES_MAX = 200
/** Names that need no quotes, which differ between shells. */
const PLAIN_NAME = /^[\w.@:/+-]+$/

const SHELLS = ['bash', 'zsh', 'fish'] as const
type Shell = (typeof SHELLS)[number]

const SCRIPTS: Readonly<Record<Shell, string>> = {
  bash: `_belfry() {
  local word
  COMPREPLY=()
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(
    "\${COMP_WORDS[0]}" __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null
  )
}
complete -o default -F _belfry belfry belfry.js
`,
  zsh: `#compdef belfry
_belfry() {
  local -a found
  found=("\${(@f)$("\${words[1]}" __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  found=("\${(@)found:#}")
  if (( $#found )); then compadd -a found; else _files; fi
}
if [[ $funcstack[1] == _belfry ]]; then _belfry "$@"; else compdef _belfry belfry; fi
`,
  fish: `function __belfry_complete
  set -l before (commandline -opc)
  set -l program $before[1]
  set -e before[1]
  $program __complete -- $before (commandline -ct) 2>/dev/null
end
complete -c belfry -a '(__belfry_complete)'
`,
}

/** `open` makes a session from the options that were typed. */
export function addCompletionCommands(
  program: Command,
  out: (text: string) => void,
  open: (options: GlobalOptions) => Promise<Session>,
): void {
  program
    .command('completion')
    .description('Print the script that completes commands, flags and names in a shell')
    .argument('<shell>', SHELLS.join(', '), oneOf('The shell', SHELLS))
    .action((shell: Shell) => out(SCRIPTS[shell]))
  program
    .command('__complete [words...]', {hidden: true})
    .action(async (words: readonly string[]) => {
      for (const word of await candidates(program, words, open)) out(`${word}\n`)
    })
}

/** Completions of the last of `words`, which may be empty. */
async function candidates(
  program: Command,
  words: readonly string[],
  open: (options: GlobalOptions) => Promise<Session>,
): Promise<readonly string[]> {
  const current = words.at(-1) ?? ''
  const {command, options, operands, expectsValue} = readLine(program, words.slice(0, -1))
  const begins = (found: readonly string[]) => found.filter((word) => word.startsWith(current))
  if (expectsValue) return []
  if (current.startsWith('-')) return begins(flagsOf(command))
  const visible = command.createHelp().visibleCommands(command)
  if (visible.length > 0) return begins(visible.map((one) => one.name()))
  const look = lookupOf(command, operands.length)
  if (look === undefined) return []
  return begins(await namesOf(look, current, operands.at(-1) ?? '', () => open(options)))
}

interface TypedLine {
  readonly command: Command
  /** Options of the client, as typed so far. */
  readonly options: GlobalOptions
  readonly operands: readonly string[]
  /** The next word is the value of an option. */
  readonly expectsValue: boolean
}

function readLine(program: Command, words: readonly string[]): TypedLine {
  let command = program
  const operands: string[] = []
  let awaiting: Option | undefined
  const options: Record<string, string> = {}
  for (const word of words) {
    if (awaiting !== undefined) {
      options[awaiting.attributeName()] = word
      awaiting = undefined
    } else if (word.startsWith('-')) awaiting = optionOf(command, word)
    else {
      const below = command.commands.find((one) => one.name() === word)
      if (below === undefined) operands.push(word)
      else command = below
    }
  }
  const {server, token, tokenFile} = options
  const known = {
    ...(server === undefined ? {} : {server}),
    ...(token === undefined ? {} : {token}),
    ...(tokenFile === undefined ? {} : {tokenFile}),
  }
  return {command, options: known, operands, expectsValue: awaiting !== undefined}
}

/** The option that takes the next word as its value. */
function optionOf(command: Command, word: string): Option | undefined {
  return optionsOf(command).find(
    ({long, short, required}) => required && (long === word || short === word),
  )
}

function optionsOf(command: Command): readonly Option[] {
  const {parent} = command
  return [...command.options, ...(parent === null ? [] : optionsOf(parent))]
}

function flagsOf(command: Command): readonly string[] {
  return [...optionsOf(command).flatMap(({long, hidden}) => (hidden ? [] : [long!])), '--help']
}

type Lookup = (client: Session['client'], start: string, job: string) => Promise<readonly string[]>

const QUICKLY = {timeoutMs: TIMEOUT_MS}

/** Names that exist on the server, by the argument that takes them. `job`: the previous operand. */
const LOOKUPS: Readonly<Record<string, Lookup>> = {
  job: async (client, start) => {
    const query = {q: start, _end: NAMES_MAX}
    const {value} = await client.call<JobJson[]>('GET', '/jobs', {query, ...QUICKLY})
    return value.map(({name}) => name)
  },
  execution: async (client, _start, job) => {
    const query = {status: 'all', output_size_limit: '0', _end: NAMES_MAX}
    const at = path('jobs', job, 'executions')
    const {value} = await client.call<ExecutionJson[]>('GET', at, {query, ...QUICKLY})
    return value.map(({id}) => id)
  },
  node: async (client) => {
    const {value} = await client.call<MemberJson[]>('GET', '/members', QUICKLY)
    return value.map(({Name}) => Name)
  },
  token: async (client) => {
    const {value} = await client.call<TokenJson[]>('GET', '/acl/tokens', QUICKLY)
    return value.map(({name}) => name)
  },
}

/**
 * Lookup of the names that the next operand of a command may be; `undefined` = the server has no such names.
 */
function lookupOf(command: Command, operands: number): Lookup | undefined {
  const {registeredArguments: all} = command
  const last = all.at(-1)
  const argument = all[operands] ?? (last?.variadic === true ? last : undefined)
  const name = argument?.name() ?? ''
  if (command.parent?.name() === 'jobs' && /^names?$/.test(name)) return LOOKUPS['job']
  return LOOKUPS[name === 'member' ? 'node' : name]
}

/** Empty if no server replies in time, or none may be asked. */
async function namesOf(
  look: Lookup,
  start: string,
  job: string,
  open: () => Promise<Session>,
): Promise<readonly string[]> {
  try {
    const {client} = await open()
    const names = new Set(await look(client, start, job))
    return [...names].filter((name) => PLAIN_NAME.test(name))
  } catch (error) {
    if (error instanceof CallFailed || error instanceof UsageError) return []
    throw error
  }
}
