/** `belfry token …` and `belfry policy …`: who may do what. */
import type {Command} from 'commander'
import {SECRET_PREFIX, USES_MAX} from '../../core/access/agent-token.ts'
import {TOKEN_KINDS} from '../../core/access/authorization.ts'
import {readRules} from '../../core/access/policy.ts'
import type {PolicyJson} from '../../wire/policy.ts'
import type {AccessAnswerJson, CreatedTokenJson, SessionJson, TokenJson} from '../../wire/token.ts'
import {path} from '../client.ts'
import {NegativeResult, CommandFailed, UsageError} from '../errors.ts'
import {type Column, fieldList, relative, timeAndAge} from '../format.ts'
import {readInput} from '../input.ts'
import {oneLine, PlainText} from '../sanitize.ts'
import {print, printJson, printTable, type Session, type WithSession} from '../session.ts'
import {toned} from '../terminal.ts'
import {oneOf, timeOf, whole} from '../values.ts'

export function addAccessCommands(program: Command, use: WithSession): void {
  const token = program.command('token').description('Create, list, show and revoke tokens')
  token
    .command('bootstrap')
    .description('Create the first management token; from then on every request needs a token')
    .action(use(bootstrap))
  token
    .command('create <name>')
    .description('Create a token and print its secret, which is shown this once')
    .option(
      '--type <type>',
      'management, client, read, metrics, agent or join',
      oneOf('--type', TOKEN_KINDS),
      'client',
    )
    .option('--policy <name...>', 'Policies of a client token')
    .option(
      '--expires <when>',
      'When it expires: a duration (90d) or a time (2027-01-31T00:00:00Z); default: never',
    )
    .option('--names <pattern...>', 'Names that an agent with it may have; * is any text')
    .option(
      '--tag <key=value...>',
      'Tag that the agent may set; * in the value is any text. Repeat it for more tags',
    )
    .option(
      '--uses <number>',
      'How many agents can join with a join token (default: 1)',
      whole('--uses', 1, USES_MAX),
    )
    .option('--slots <number>', 'Slots that an agent with it may have', whole('--slots'))
    .action(use(create))
  token
    .command('list')
    .description('List the tokens; LAST USED is up to six minutes late')
    .option('--sessions', 'The open sessions of browsers instead')
    .action(use(list))
  token
    .command('show <token>')
    .description('Show one token, by its accessor or its name')
    .action(use(show))
  token
    .command('revoke <token>')
    .description('Revoke a token, by its accessor or its name; end a session, by its accessor')
    // The suggestions would be options of the program, such as --version for --sessions.
    .showSuggestionAfterError(false)
    .option('--yes', 'Revoke also the last management token')
    .action(use(revoke))
  const policy = program
    .command('policy')
    .description('Apply, show, list, delete and test policies')
  policy
    .command('apply <name>')
    .description('Create or replace a policy from a file with its rules')
    .requiredOption('-f, --file <file>', 'JSON file; - means standard input')
    .action(use(apply))
  policy.command('show <name>').description('Print the rules of a policy').action(use(showPolicy))
  policy.command('list').description('List the policies').action(use(listPolicies))
  policy.command('delete <name>').description('Delete a policy').action(use(deletePolicy))
  policy
    .command('test <token> <method> <path>')
    .description(
      'Show whether a token may send a request, and which glob of which policy decides; exit code 1 = no',
    )
    .action(use(test))
}

async function bootstrap(session: Session): Promise<void> {
  const created = await session.client.call<CreatedTokenJson>('POST', '/acl/bootstrap')
  printCreated(session, created)
}

async function create(session: Session, name: string, options: CreateOptions): Promise<void> {
  const {type, policy: policies = [], expires, names, tag, slots, uses} = options
  if (name === '') throw new UsageError('The name of the token must not be empty.')
  if (names?.includes('') === true) throw new UsageError('--names must not be empty.')
  const now = session.clock.now()
  const expires_at = expires === undefined ? null : timeOf('--expires', expires, now, 1)
  const body = {name, type, policies, expires_at, names, tags: tagsOf(tag), slots, uses}
  const created = await session.client.call<CreatedTokenJson>('POST', '/acl/tokens', {body})
  printCreated(session, created)
}

interface CreateOptions {
  readonly type: string
  readonly policy?: readonly string[]
  readonly expires?: string
  readonly names?: readonly string[]
  readonly tag?: readonly string[]
  readonly slots?: number
  readonly uses?: number
}

/** The allowed values of each tag; `undefined` = all tags. */
function tagsOf(tags: readonly string[] | undefined): Record<string, string[]> | undefined {
  if (tags === undefined) return undefined
  const allowed: Record<string, string[]> = {}
  for (const tag of tags) {
    const [, key, value] = /^([^=]+)=(.*)$/.exec(tag) ?? []
    if (key === undefined || value === undefined)
      throw new UsageError(`--tag must be key=value: ${JSON.stringify(tag)} is not.`)
    ;(allowed[key] ??= []).push(value)
  }
  return allowed
}

function printCreated(session: Session, {value}: {readonly value: CreatedTokenJson}): void {
  if (session.json) return printJson(session, value)
  const {secret, ...token} = value
  // Only the secret is on standard output, so that a script can take it.
  session.terminal.err(fields(session, token))
  session.terminal.err('secret, shown this once:\n')
  session.terminal.out(`${secret}\n`)
}

async function list(session: Session, {sessions}: {sessions?: true}): Promise<void> {
  const at = sessions === true ? '/acl/sessions' : '/acl/tokens'
  const {value} = await session.client.call<TokenJson[]>('GET', at)
  const {terminal} = session
  const now = session.clock.now()
  const columns: readonly Column<TokenJson>[] = [
    {title: 'NAME', text: ({name}) => name, shown: (text) => toned(terminal, 'strong', text)},
    {title: 'TYPE', text: ({type}) => type},
    {title: 'POLICIES', text: ({policies}) => policies.join(', ')},
    ...(sessions === true
      ? [{title: 'SIGNED IN', text: ({created_at}: TokenJson) => relative(created_at, now)}]
      : []),
    {title: 'EXPIRES', text: ({expires_at}) => relative(expires_at, now)},
    {title: 'LAST USED', text: ({last_used_at}) => relative(last_used_at, now)},
    {title: 'ACCESSOR', text: ({accessor}) => accessor},
  ]
  const none = sessions === true ? 'No sessions.' : 'No tokens.'
  printTable(session, columns, value, none)
}

async function show(session: Session, named: string): Promise<void> {
  const {isSession, ...token} = await find(session, named)
  const title = isSession ? 'session of a browser\n' : ''
  print(session, token, `${title}${fields(session, token)}`)
}

async function revoke(session: Session, named: string, options: {yes?: true}): Promise<void> {
  const token = await find(session, named)
  if (options.yes !== true) await refuseLast(session, token)
  const at = path('acl', 'tokens', token.accessor)
  const {value} = await session.client.call<TokenJson>('DELETE', at)
  const what = token.isSession ? 'ended a session of' : 'revoked'
  print(session, value, `${what} ${oneLine(value.name)} (${value.accessor})\n`)
}

/**
 * Keeps the last management token: without it, only the configuration of a server lets in again. Throws
 * `CommandFailed`.
 */
async function refuseLast({client, clock}: Session, token: FoundToken): Promise<void> {
  if (token.isSession || token.type !== 'management') return
  const {value: tokens} = await client.call<TokenJson[]>('GET', '/acl/tokens')
  const isValid = ({expires_at}: TokenJson) =>
    expires_at === null || Date.parse(expires_at) > clock.now()
  const isOther = (one: TokenJson) =>
    one.type === 'management' && one.accessor !== token.accessor && isValid(one)
  if (tokens.some(isOther)) return
  const {value: caller} = await client.call<SessionJson>('GET', '/session')
  // The caller has the token of the configuration, which stays.
  if (caller.name === '') return
  throw new CommandFailed(
    `${JSON.stringify(token.name)} is the last management token: without one, only a server started ` +
      'with --token-file can make another. Add --yes to revoke it.',
  )
}

interface FoundToken extends TokenJson {
  readonly isSession: boolean
}

/**
 * Finds a token by its accessor, a session too, or by a name that only one token has. Throws
 * `CommandFailed`.
 */
async function find({client}: Session, named: string): Promise<FoundToken> {
  const {value: tokens} = await client.call<TokenJson[]>('GET', '/acl/tokens')
  const exact = tokens.find(({accessor}) => accessor === named)
  if (exact !== undefined) return {...exact, isSession: false}
  const [found, ...others] = tokens.filter(({name}) => name === named)
  if (found !== undefined && others.length === 0) return {...found, isSession: false}
  if (found !== undefined) throw ambiguous(named, [found, ...others])
  // Secrets are not shown in errors: this one may be valid.
  if (named.startsWith(SECRET_PREFIX))
    throw new UsageError(
      'This is the secret of a token. Use the name or the accessor of the token.',
    )
  const {value: sessions} = await client.call<TokenJson[]>('GET', '/acl/sessions')
  const session = sessions.find(({accessor}) => accessor === named)
  if (session !== undefined) return {...session, isSession: true}
  throw new CommandFailed(`There is no token ${JSON.stringify(named)}.`)
}

function ambiguous(named: string, tokens: readonly TokenJson[]): CommandFailed {
  const each = tokens
    .slice(0, 10)
    .map(({accessor, type, created_at}) => `${accessor} (${type}, created ${created_at})`)
  return new CommandFailed(
    `Several tokens are called ${JSON.stringify(named)}. Use an accessor: ${each.join(', ')}.`,
  )
}

function fields({terminal, zone, clock}: Session, token: TokenJson): string {
  const when = (time: string | null) => timeAndAge(time, zone, clock.now())
  return fieldList(terminal, [
    ['name', toned(terminal, 'strong', oneLine(token.name))],
    ['type', token.type],
    ['policies', token.policies.join(', ')],
    ['accessor', token.accessor],
    ['created', when(token.created_at)],
    ['expires', when(token.expires_at)],
    ['last used', when(token.last_used_at)],
    ...(token.type === 'agent' || token.type === 'join' ? agentFields(token) : []),
  ])
}

function agentFields(token: TokenJson): [string, string][] {
  const {type, node_name, node_id, uses_left, names, tags, slots} = token
  const each = Object.entries(tags ?? {}).map(([key, values]) => `${key}=${values.join('|')}`)
  return [
    type === 'join'
      ? ['uses left', String(uses_left)]
      : ['node', node_name === null ? '-' : `${node_name} (${node_id})`],
    ['names', names?.join(', ') ?? 'any'],
    ['tags', tags === null ? 'any' : oneLine(each.join(', ')) || 'none'],
    ['slots', slots === null ? 'any' : String(slots)],
  ]
}

async function apply(session: Session, name: string, options: {file: string}): Promise<void> {
  const {file} = options
  const rules = await readInput(session.terminal, file)
  const reading = readRules(rules)
  // The server would store it, and it would grant nothing.
  if (!reading.ok)
    throw new CommandFailed(
      `${file === '-' ? 'Standard input' : file} cannot be applied: ${oneLine(reading.problem)}.`,
    )
  const body = {Name: name, Rules: rules.trim()}
  const at = path('acl', 'policies', name)
  const {value} = await session.client.call<PolicyJson>('POST', at, {body})
  print(session, value, `applied ${value.Name}\n`)
}

async function showPolicy(session: Session, name: string): Promise<void> {
  const {value} = await session.client.call<PolicyJson>('GET', path('acl', 'policies', name))
  print(session, value, `${new PlainText().push(value.Rules)}\n`)
}

async function listPolicies(session: Session): Promise<void> {
  const {value} = await session.client.call<PolicyJson[]>('GET', '/acl/policies')
  const {terminal} = session
  const columns: readonly Column<PolicyJson>[] = [
    {title: 'NAME', text: ({Name}) => Name, shown: (text) => toned(terminal, 'strong', text)},
    {title: 'GLOBS', text: ({Rules}) => globsOf(Rules)},
  ]
  printTable(session, columns, value, 'No policies.')
}

/** Globs shown of a policy in a list, where each has one line. */
const GLOBS_SHOWN = 3

function globsOf(rules: string): string {
  const reading = readRules(rules)
  if (!reading.ok) return `grants nothing: ${reading.problem}`
  const shown = reading.rules
    .slice(0, GLOBS_SHOWN)
    .map(({glob, capabilities}) => `${glob} (${capabilities.join(', ')})`)
  const more = reading.rules.length - shown.length
  return [...shown, ...(more > 0 ? [`${more} more`] : [])].join(', ')
}

async function deletePolicy(session: Session, name: string): Promise<void> {
  const at = path('acl', 'policies', name)
  const {value} = await session.client.call<PolicyJson>('DELETE', at)
  print(session, value, `deleted ${value.Name}\n`)
}

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'] as const

/** Exit code 1 if the token may not. */
async function test(
  session: Session,
  named: string,
  method: string,
  requestPath: string,
): Promise<void> {
  if (!requestPath.startsWith('/'))
    throw new UsageError('The path of the request must begin with "/", as in /v1/jobs.')
  oneOf('The method', METHODS)(method.toUpperCase())
  const {accessor, type} = await find(session, named)
  const at = path('acl', 'tokens', accessor, 'check')
  const query = {method, path: requestPath}
  const {value} = await session.client.call<AccessAnswerJson>('GET', at, {query})
  if (session.json) printJson(session, value)
  else printAnswer(session, value, type)
  if (!value.allowed) throw new NegativeResult()
}

function printAnswer(
  {terminal}: Session,
  {allowed, body_decides, reason, checks}: AccessAnswerJson,
  type: TokenJson['type'],
): void {
  const no = body_decides ? 'not known' : 'not allowed'
  const why = reason === '' ? '' : `: ${oneLine(reason)}`
  terminal.out(`${toned(terminal, 'strong', allowed ? 'allowed' : no)}${why}\n`)
  for (const each of checks) {
    const {capability, path: asked, policy, glob} = each
    const whole = type === 'management' ? 'may do everything' : 'reads everything'
    const ofType = each.allowed ? `a ${type} token ${whole}` : each.reason
    const decided = glob === null ? ofType : `"${glob}" of the policy ${policy} decides`
    const verb = each.allowed ? 'granted' : 'refused'
    terminal.out(`  ${capability} ${oneLine(asked)} is ${verb}: ${oneLine(decided)}\n`)
  }
}
