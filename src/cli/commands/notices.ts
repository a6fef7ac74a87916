/** `belfry notice …`: channels of notices. What is secret is asked for, and never an argument. */
import type {Command} from 'commander'
import type {ChannelJson, ChannelsJson, ChannelTestJson} from '../../wire/notice-channel.ts'
import type {RuleJson} from '../../wire/notice-rule.ts'
import {path} from '../client.ts'
import {CallFailed, NegativeResult, UsageError} from '../errors.ts'
import {type Column, relative} from '../format.ts'
import {confirm, readSecret, readTextFile} from '../input.ts'
import {oneLine} from '../sanitize.ts'
import {print, printJson, printTable, type Session, type WithSession} from '../session.ts'
import {toned} from '../terminal.ts'
import {addNoticeHistoryCommands, messages} from './notice-history.ts'
import {ALL_JOBS_NAME, ALL_JOBS_RULE, addRuleCommands, ruleLines} from './notice-rules.ts'

interface SetupOptions {
  readonly name?: string
  readonly secretFile?: string
  readonly yes?: true
}

interface Setup {
  readonly kind: string
  /** Fields that are not secret. */
  readonly config: Readonly<Record<string, unknown>>
  readonly secretField: string
  /** `null` = the field is set only with `--secret-file`. */
  readonly prompt: string | null
}

export function addNoticeCommands(program: Command, use: WithSession): void {
  const notice = program.command('notice').description('Set up, list, test and delete channels')
  const setup = notice
    .command('setup')
    .description('Store a channel of notices, and send a test message over it')
  const kind = (usage: string, description: string) =>
    setup
      .command(usage)
      .description(description)
      .option('--name <name>', 'Name of the channel (default: its kind)')
      .option('--secret-file <file>', 'File with what is secret; - means standard input')
      .option('--yes', 'Replace a channel of this name without asking')
  kind('mail <address...>', 'Mails over SMTP; owner = the owner of each job')
    .requiredOption('--smtp <url>', 'smtps://user@host for TLS, smtp://user@host for STARTTLS')
    .option('--from <address>', 'Address of the sender (default: the user)')
    .option('--allow-recipients <pattern...>', 'With owner: addresses that owners may have')
    .action(use(setUpMail))
  kind('webhook <url>', 'Requests with the message as JSON; the secret is the key that signs them')
    .option('--header <line...>', 'Further headers, as "X-Team: ops"')
    .option('--template <file>', 'JSON to send instead, with names in braces')
    .action(use(setUpWebhook))
  for (const [name, title] of [
    ['slack', 'Slack'],
    ['discord', 'Discord'],
    ['teams', 'Microsoft Teams'],
  ] as const)
    kind(name, `Posts to ${title}; the URL is secret`).action(
      use((session, options: SetupOptions) => setUp(session, options, urlIsSecret(name))),
    )
  kind('ping', 'Requests to a monitor that expects them, such as healthchecks; the URL is secret')
    .option('--cluster', 'Ping every minute while Belfry works, instead of messages of rules')
    .action(use(setUpPing))
  kind('ntfy <url>', 'Notifications to a topic of ntfy; the secret is an access token').action(
    use((session, url: string, options: SetupOptions) => {
      const field = {secretField: 'token', prompt: null}
      return setUp(session, options, {kind: 'ntfy', config: {url}, ...field})
    }),
  )
  kind('pagerduty', 'Alerts to PagerDuty; the integration key is secret')
    .option('--url <url>', 'Another address of the API')
    .action(use(setUpPagerDuty))
  notice
    .command('list')
    .description('List the channels of notices')
    .option('--dead', 'List the messages that were given up instead')
    .action(use(list))
  notice
    .command('test <channel>')
    .description('Send a test message over a channel; exit code 1 = not delivered')
    .action(use(testChannel))
  notice
    .command('delete <channel>')
    .description('Delete a channel and its secret')
    .action(use(remove))
  addRuleCommands(notice, use)
  addNoticeHistoryCommands(notice, use)
}

interface MailOptions extends SetupOptions {
  readonly smtp: string
  readonly from?: string
  readonly allowRecipients?: readonly string[]
}

async function setUpMail(
  session: Session,
  to: readonly string[],
  {smtp, from, allowRecipients, ...options}: MailOptions,
): Promise<void> {
  const config = {smtp, from, to, allow_recipients: allowRecipients}
  const url = URL.parse(smtp)
  const user = url === null || url.username === '' ? null : url
  const prompt =
    user === null ? null : `Password for ${oneLine(user.username)}@${oneLine(user.hostname)}: `
  await setUp(session, options, {kind: 'mail', config, secretField: 'password', prompt})
}

async function setUpWebhook(
  session: Session,
  url: string,
  {
    header,
    template: file,
    ...options
  }: SetupOptions & {readonly header?: readonly string[]; readonly template?: string},
): Promise<void> {
  const template = file === undefined ? undefined : await readTextFile(file)
  const config = {url, headers: header, template}
  await setUp(session, options, {kind: 'webhook', config, secretField: 'secret', prompt: null})
}

async function setUpPagerDuty(
  session: Session,
  {url, ...options}: SetupOptions & {readonly url?: string},
): Promise<void> {
  const field = {secretField: 'routing_key', prompt: 'Integration key: '}
  await setUp(session, options, {kind: 'pagerduty', config: {url}, ...field})
}

async function setUpPing(
  session: Session,
  {cluster, ...options}: SetupOptions & {readonly cluster?: true},
): Promise<void> {
  await setUp(session, options, {...urlIsSecret('ping'), config: {cluster}})
}

function urlIsSecret(kind: string): Setup {
  return {kind, config: {}, secretField: 'url', prompt: 'URL: '}
}

/** Stores the channel and tests it. If the test fails the channel stays: the receiver may be at fault. */
async function setUp(session: Session, options: SetupOptions, setup: Setup): Promise<void> {
  const {name = setup.kind} = options
  const at = path('notices', 'channels', name)
  if (session.terminal.ask !== undefined && (await exists(session, at)))
    await confirm(session.terminal, `Replace the channel ${oneLine(name)}?`, options)
  const secret = await secretOf(session, options, setup)
  const {kind, config, secretField} = setup
  const body = {kind, config: secret === null ? config : {...config, [secretField]: secret}}
  const {value: channel} = await session.client.call<ChannelJson>('PUT', at, {body})
  const {value: test} = await session.client.call<ChannelTestJson>('POST', `${at}/test`)
  if (!test.delivered) {
    print(session, {channel, test}, testLine(name, test))
    if (!session.json)
      session.terminal.err(
        `The channel is stored. Correct it or its receiver, then: belfry notice test ${oneLine(name)}\n`,
      )
    throw new NegativeResult('')
  }
  const isOfCluster = config['cluster'] === true
  const rule = isOfCluster ? null : await firstRule(session, name)
  const line = isOfCluster ? CLUSTER_LINE : rule === null ? '' : await ruleLines(session, rule)
  print(session, {channel, test, ...(rule === null ? {} : {rule})}, testLine(name, test) + line)
}

const CLUSTER_LINE =
  '  the leader requests the URL every minute while it decides planned times and writes the store;\n' +
  '  rules cannot send over it\n'

/** The rule that covers all jobs, unless there is one of its name. `null` = there is. */
async function firstRule(session: Session, channel: string): Promise<RuleJson | null> {
  const at = path('notices', 'rules', ALL_JOBS_NAME)
  if (await exists(session, at)) return null
  const body = {...ALL_JOBS_RULE, to: [channel]}
  const {value} = await session.client.call<RuleJson>('PUT', at, {body})
  return value
}

const UNKNOWN: readonly string[] = ['channel_unknown', 'rule_unknown']

async function exists(session: Session, at: string): Promise<boolean> {
  try {
    await session.client.call('GET', at)
    return true
  } catch (error) {
    if (error instanceof CallFailed && UNKNOWN.includes(error.code)) return false
    throw error
  }
}

/** `null` = there is none. */
async function secretOf(
  {terminal}: Session,
  {secretFile}: SetupOptions,
  {kind, secretField, prompt}: Setup,
): Promise<string | null> {
  if (secretFile !== undefined) return readSecret(terminal, secretFile)
  if (prompt === null) return null
  if (terminal.askSecret !== undefined) return terminal.askSecret(prompt)
  throw new UsageError(
    `--secret-file is required without a terminal: the ${secretField} of ${kind} is secret. ` +
      'Use --secret-file - for standard input.',
  )
}

async function testChannel(session: Session, name: string): Promise<void> {
  const at = `${path('notices', 'channels', name)}/test`
  const {value} = await session.client.call<ChannelTestJson>('POST', at)
  print(session, value, testLine(name, value))
  if (!value.delivered) throw new NegativeResult('')
}

function testLine(name: string, {delivered, cause}: ChannelTestJson): string {
  const outcome = delivered ? 'accepted' : 'not delivered'
  return `channel ${oneLine(name)}: test message ${outcome} (${oneLine(cause)})\n`
}

async function list(session: Session, {dead}: {readonly dead?: true}): Promise<void> {
  if (dead) return messages(session, {state: 'dead'})
  const {value} = await session.client.call<ChannelsJson>('GET', '/notices/channels')
  if (session.json) return printJson(session, value)
  const {terminal} = session
  const now = session.clock.now()
  const columns: readonly Column<ChannelJson>[] = [
    {title: 'CHANNEL', text: ({name}) => name, shown: (text) => toned(terminal, 'strong', text)},
    {title: 'KIND', text: ({kind}) => kind},
    {title: 'STATE', text: stateOf},
    {title: 'DELIVERED', text: ({last_ok_at: at}) => (at === null ? '' : relative(at, now))},
    {title: 'CHANGED', text: ({updated_at: at}) => relative(at, now)},
    {title: 'BY', text: ({updated_by: by}) => by},
    {title: 'LAST ERROR', text: ({last_error: error}) => error},
  ]
  printTable(session, columns, value.channels, 'No channels. Set one up with belfry notice setup.')
}

function stateOf({enabled, failing_since: failing, last_ok_at: ok}: ChannelJson): string {
  if (!enabled) return 'disabled'
  if (failing !== null) return 'failing'
  return ok === null ? 'not used' : 'works'
}

async function remove(session: Session, name: string): Promise<void> {
  const at = path('notices', 'channels', name)
  const {value} = await session.client.call<ChannelJson>('DELETE', at)
  print(session, value, `deleted ${oneLine(value.name)}\n`)
}
