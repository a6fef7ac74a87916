/** `belfry notice rules`, `add`, `mute` …: which notices are sent, and which are not for a while. */
import type {Command} from 'commander'
import type {RuleDefinition} from '../../core/notice-rule.ts'
import type {MuteJson, MutesJson, RuleJson, RulesJson} from '../../wire/notice-rule.ts'
import {path} from '../client.ts'
import {counted} from '../../core/explain/words.ts'
import type {PreviewJson} from '../../wire/notice-list.ts'
import {CallFailed, UsageError} from '../errors.ts'
import {type Column, relative, timeAndAge} from '../format.ts'
import {oneLine} from '../sanitize.ts'
import {print, printJson, printTable, type Session, type WithSession} from '../session.ts'
import {toned} from '../terminal.ts'
import {whole} from '../values.ts'

export function addRuleCommands(notice: Command, use: WithSession): void {
  notice.command('rules').description('List the rules of notices').action(use(list))
  notice
    .command('add <rule>')
    .description('Store a rule of notices: what it is about, and where it sends')
    .requiredOption('--to <channel...>', 'Channels to send over')
    .option('--jobs <glob>', 'Only these jobs; * in the name is any text')
    .option('--severity <severity>', 'critical, error, warning or info')
    .option('--repeat <duration>', 'Repeat while it is open (24h), or never')
    .option('--failed [count]', 'This many launches in a row failed (1)', whole('--failed', 1))
    .option('--missed', 'A planned time was missed')
    .option('--skipped', 'A planned time was skipped')
    .option('--lost', 'An execution was lost with its node')
    .option('--disabled <duration>', 'The job is disabled for longer than this')
    .option('--late <duration>', 'A planned time is not decided or started for longer than this')
    .option('--running <duration>', 'An execution runs for longer than this')
    .option('--no-success-for <duration>', 'The last success is older than this')
    .option('--expected-by <schedule>', 'At these times there must be a success, with --since')
    .option('--since <duration>', 'How old the success may be that --expected-by expects')
    .option('--no-leader', 'No server leads for 30s')
    .option('--node-failed', 'A node failed')
    .option('--firing-paused <duration>', 'Firing is paused for longer than this')
    .option('--undecided', 'Planned times are undecided for 60s')
    .option('--store', 'The store cannot be written for 60s')
    .option('--notices-failing', 'A channel has delivered nothing for 1h although it should')
    .option('--output', 'A launch wrote output')
    .option('--started', 'A planned time or a request was launched')
    .option('--succeeded', 'A launch succeeded')
    .option('--quiet <hours>', 'Hours in which messages wait, as 22:00-07:00')
    .option('--quiet-days <days>', 'Only if they begin on these days, as sat,sun')
    .option('--quiet-timezone <zone>', 'Zone of these hours (default: the zone of this terminal)')
    .option('--quiet-except <severity>', 'Rules of this severity send at once')
    .action(use(add))
  notice.command('delete-rule <rule>').description('Delete a rule of notices').action(use(remove))
  notice
    .command('mute')
    .description('Send nothing about some jobs until a time; incidents continue')
    .requiredOption('--until <time>', 'The end, as a time or a duration such as 4h; at most 30d')
    .option('--jobs <glob>', 'Only these jobs; * in the name is any text')
    .option('--rule <rule>', 'Only this rule')
    .option('--reason <text>', 'Why, for others to read')
    .action(use(mute))
  notice.command('mutes').description('List the mutes in force').action(use(listMutes))
  notice.command('unmute <id>').description('End a mute').action(use(unmute))
}

/** Conditions of the rule that covers all jobs: what a person must see to. */
export const ALL_JOBS_RULE = {
  severity: 'critical',
  when: {
    failed: {},
    missed: {},
    skipped: {reasons: ['no_target', 'behind', 'undecidable']},
    lost: {},
    quarantined: {},
    disabled: {for: '24h'},
    late: {by: '15m'},
    no_leader: {},
    node_failed: {},
    store: {},
  },
} as const satisfies Partial<RuleDefinition>

export const ALL_JOBS_NAME = 'all-jobs'

interface AddOptions {
  readonly to: readonly string[]
  readonly jobs?: string
  readonly severity?: string
  readonly repeat?: string
  readonly failed?: number | true
  readonly missed?: true
  readonly skipped?: true
  readonly lost?: true
  readonly disabled?: string
  readonly late?: string
  readonly running?: string
  readonly expectedBy?: string
  readonly since?: string
  readonly nodeFailed?: true
  readonly firingPaused?: string
  readonly undecided?: true
  readonly store?: true
  readonly noticesFailing?: true
  readonly output?: true
  /** Text of `--no-success-for`; true = it is not given. */
  readonly successFor?: string | true
  /** False = `--no-leader`. */
  readonly leader?: boolean
  readonly started?: true
  readonly succeeded?: true
  readonly quiet?: string
  readonly quietDays?: string
  readonly quietTimezone?: string
  readonly quietExcept?: string
}

async function add(session: Session, name: string, options: AddOptions): Promise<void> {
  const {to, jobs, severity, repeat} = options
  const when = conditionsOf(options)
  if (Object.keys(when).length === 0)
    throw new UsageError('A rule needs a condition, such as --failed.')
  const quiet = quietOf(session, options)
  const body = {to, jobs, severity, repeat, when, quiet}
  const at = path('notices', 'rules', name)
  const {value} = await session.client.call<RuleJson>('PUT', at, {body})
  print(session, value, await ruleLines(session, value))
}

/** `undefined` = none. */
function quietOf(
  {zone}: Session,
  {quiet, quietDays, quietTimezone, quietExcept}: AddOptions,
): readonly object[] | undefined {
  if (quiet === undefined) {
    if ((quietDays ?? quietTimezone ?? quietExcept) === undefined) return undefined
    throw new UsageError('--quiet is required with --quiet-days, --quiet-timezone, --quiet-except.')
  }
  const [from, to, ...others] = quiet.split('-')
  if (to === undefined || others.length > 0)
    throw new UsageError(
      `--quiet must be two times of day, as 22:00-07:00, not "${oneLine(quiet)}".`,
    )
  const days = quietDays?.split(',')
  return [{from, to, timezone: quietTimezone ?? zone, days, except: quietExcept}]
}

function conditionsOf(options: AddOptions): Record<string, object> {
  const {failed, missed, skipped, lost, disabled, output, late, running, successFor} = options
  const {expectedBy, since, leader, nodeFailed, firingPaused, undecided, store} = options
  const {started, succeeded} = options
  if ((expectedBy === undefined) !== (since === undefined))
    throw new UsageError('--expected-by and --since go together.')
  return {
    ...(failed === undefined ? {} : {failed: failed === true ? {} : {after: failed}}),
    ...(missed === undefined ? {} : {missed: {}}),
    ...(skipped === undefined ? {} : {skipped: {}}),
    ...(lost === undefined ? {} : {lost: {}}),
    ...(disabled === undefined ? {} : {disabled: {for: disabled}}),
    ...(late === undefined ? {} : {late: {by: late}}),
    ...(running === undefined ? {} : {running: {for: running}}),
    ...(typeof successFor === 'string' ? {no_success_for: {for: successFor}} : {}),
    ...(expectedBy === undefined ? {} : {expected_by: {schedule: expectedBy, since}}),
    ...(leader === false ? {no_leader: {}} : {}),
    ...(nodeFailed === undefined ? {} : {node_failed: {}}),
    ...(firingPaused === undefined ? {} : {firing_paused: {for: firingPaused}}),
    ...(undecided === undefined ? {} : {undecided: {}}),
    ...(store === undefined ? {} : {store: {}}),
    ...(options.noticesFailing === undefined ? {} : {notices_failing: {}}),
    ...(output === undefined ? {} : {output: {}}),
    ...(started === undefined ? {} : {started: {}}),
    ...(succeeded === undefined ? {} : {succeeded: {}}),
  }
}

/** The rule, the number of its jobs, and what it would have sent if the token may ask. */
export async function ruleLines(session: Session, rule: RuleJson): Promise<string> {
  const preview = await previewOf(session, rule)
  const {name, jobs, when, to, recovered, quiet} = rule
  const glob = jobs === '*' ? '' : ` ${jobs}`
  const of =
    preview === null
      ? `${jobs === '*' ? 'all jobs' : 'jobs'}${glob}`
      : `${counted(preview.jobs_total, 'job')}${glob}`
  const what = [whenText(when), ...(recovered ? ['recovered'] : [])].join(', ')
  const hours = quiet.map(({from, to: until, timezone}) => `; quiet ${from}-${until} ${timezone}`)
  const line = `rule ${name}: ${of}: ${what}${hours.join('')}; to ${to.join(', ')}`
  return `${oneLine(line)}\n${preview === null ? '' : previewLine(preview)}`
}

function previewLine({messages, partial, left_out: leftOut}: PreviewJson): string {
  const least = partial ? 'at least ' : ''
  const without =
    leftOut.length === 0 ? '' : ` (not counted: ${leftOut.map(conditionWords).join(', ')})`
  const count = counted(messages, 'message')
  return `  in the last 7 days it would have sent ${least}${count}${without}\n`
}

/** `null` = the token may not ask, or the server is older. */
async function previewOf({client}: Session, rule: RuleJson): Promise<PreviewJson | null> {
  const {revision: _revision, updated_at: _at, updated_by: _by, stopped: _why, ...body} = rule
  try {
    return (await client.call<PreviewJson>('POST', '/notices/preview', {body})).value
  } catch (error) {
    if (error instanceof CallFailed && [403, 404].includes(error.status ?? 0)) return null
    throw error
  }
}

/** `failed 2, skipped (no target, behind), late 15m`. */
function whenText(when: RuleJson['when']): string {
  return Object.entries(when)
    .map(([name, parameters]) =>
      [conditionWords(name), ...Object.values(parameters).map(parameterText)].join(' '),
    )
    .join(', ')
}

function parameterText(value: unknown): string {
  return Array.isArray(value)
    ? `(${value.map(String).map(conditionWords).join(', ')})`
    : String(value)
}

function conditionWords(name: string): string {
  return name.replaceAll('_', ' ')
}

async function list(session: Session): Promise<void> {
  const {value} = await session.client.call<RulesJson>('GET', '/notices/rules')
  if (session.json) return printJson(session, value)
  const {terminal} = session
  const columns: readonly Column<RuleJson>[] = [
    {title: 'RULE', text: ({name}) => name, shown: (text) => toned(terminal, 'strong', text)},
    {title: 'JOBS', text: ({jobs}) => jobs},
    {title: 'SEVERITY', text: ({severity}) => severity},
    {title: 'TO', text: ({to}) => to.join(', ')},
    {title: 'WHEN', text: ({when}) => whenText(when)},
    ...(value.rules.some(({stopped}) => stopped !== undefined)
      ? [{title: 'STOPPED', text: ({stopped = ''}: RuleJson) => stopped}]
      : []),
  ]
  printTable(session, columns, value.rules, 'No rules: no notice is sent.')
}

async function remove(session: Session, name: string): Promise<void> {
  const at = path('notices', 'rules', name)
  const {value} = await session.client.call<RuleJson>('DELETE', at)
  print(session, value, `deleted ${oneLine(value.name)}\n`)
}

interface MuteOptions {
  readonly until: string
  readonly jobs?: string
  readonly rule?: string
  readonly reason?: string
}

async function mute(session: Session, options: MuteOptions): Promise<void> {
  const {value} = await session.client.call<MuteJson>('POST', '/notices/mutes', {body: options})
  const {id, jobs, until} = value
  const end = timeAndAge(until, session.zone, session.clock.now())
  const of = jobs === '*' ? 'all jobs' : oneLine(jobs)
  print(session, value, `notices about ${of} are muted until ${end}; belfry notice unmute ${id}\n`)
}

async function listMutes(session: Session): Promise<void> {
  const {value} = await session.client.call<MutesJson>('GET', '/notices/mutes')
  if (session.json) return printJson(session, value)
  const now = session.clock.now()
  const columns: readonly Column<MuteJson>[] = [
    {title: 'ID', text: ({id}) => String(id)},
    {title: 'MUTED JOBS', text: ({jobs}) => jobs},
    {title: 'RULE', text: ({rule}) => (rule === '' ? 'all' : rule)},
    {title: 'ENDS', text: ({until}) => relative(until, now)},
    {title: 'BY', text: ({muted_by: by}) => by},
    {title: 'REASON', text: ({reason}) => reason},
  ]
  printTable(session, columns, value.mutes, 'Nothing is muted.')
}

async function unmute(session: Session, id: string): Promise<void> {
  const at = path('notices', 'mutes', id)
  const {value} = await session.client.call<MuteJson>('DELETE', at)
  print(session, value, `notices about ${oneLine(value.jobs)} are sent again\n`)
}
