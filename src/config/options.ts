/**
 * The settings of a server as data: name, kind, default, reason. The command line, the environment, the
 * configuration file and their documentation are all derived from this table, so that none of them can know a
 * setting the others do not.
 */

/** How the text of a setting is read; `config-values.ts` has one reader for each. */
export type OptionKind =
  | 'address'
  | 'directory'
  | 'store'
  | 'nodeName'
  | 'tag'
  | 'token'
  | 'file'
  | 'hostName'
  | 'timezone'
  | 'slots'
  | 'switch'
  | 'grace'
  | 'duration'
  | 'target'
  | 'count'
  | 'days'
  | 'size'
  | 'syslog'
  | 'network'
  | 'account'
  | 'logLevel'
  | 'serverUrl'

export interface Option<Name extends string = string, Kind extends OptionKind = OptionKind> {
  /**
   * The flag without its dashes, which is the key in the file; `BELFRY_` and the name in capitals in the
   * environment.
   */
  readonly name: Name
  readonly kind: Kind
  /** Shown behind the flag, `''` for a switch. */
  readonly placeholder: string
  /**
   * As the text one would have written; `null` = not set. What depends on the machine is filled in when read.
   */
  readonly fallback: string | null
  readonly repeatable: boolean
  /** One sentence for `--help` and the documentation. */
  readonly summary: string
  /** Why the default is what it is. */
  readonly reason: string
}

type Rest = Partial<Omit<Option, 'name' | 'kind' | 'summary' | 'reason'>>

/** One setting as data. */
export function option<Name extends string, Kind extends OptionKind>(
  name: Name,
  kind: Kind,
  summary: string,
  reason: string,
  rest: Rest = {},
): Option<Name, Kind> {
  return {name, kind, placeholder: '', fallback: null, repeatable: false, summary, reason, ...rest}
}

/** Settings of `belfry server`, in the order they are documented. */
export const OPTIONS = [
  option(
    'http',
    'address',
    'Address to listen on; port 0 picks a free one.',
    'Only this machine can reach a server that nobody has secured yet.',
    {placeholder: 'host:port', fallback: '127.0.0.1:8080'},
  ),
  option(
    'data',
    'directory',
    'Directory for everything durable; created when absent, held by one server at a time.',
    'Found again by starting in the same place.',
    {placeholder: 'dir', fallback: './belfry-data'},
  ),
  option(
    'store',
    'store',
    '`sqlite` (a database in the data directory) or a PostgreSQL URL `postgres://…`.',
    'Nothing needs to be installed.',
    {placeholder: 'url', fallback: 'sqlite'},
  ),
  option(
    'name',
    'nodeName',
    'Name of this node: 1 to 63 letters, digits, `.`, `_`, `-`.',
    'The host name, which is what people call the machine.',
    {placeholder: 'node'},
  ),
  option(
    'tag',
    'tag',
    'A tag of this node that jobs can select.',
    'A node needs none to run jobs without tags.',
    {placeholder: 'key=value', repeatable: true},
  ),
  option(
    'token',
    'token',
    'The token every request must carry, 16 characters or more.',
    'Without one only this machine is served; no default could be secret.',
    {placeholder: 'text'},
  ),
  option(
    'token-file',
    'file',
    'File that holds the token, so that it does not show in the process list.',
    'See `token`.',
    {placeholder: 'file'},
  ),
  option(
    'insecure',
    'switch',
    'Serve plain HTTP to other machines, because something in front of it speaks TLS.',
    'A token sent in the clear is no secret for long.',
  ),
  option(
    'tls-cert',
    'file',
    'Certificate chain (PEM) for HTTPS; needs `tls-key`.',
    'Plain HTTP is enough on one machine.',
    {placeholder: 'file'},
  ),
  option('tls-key', 'file', 'Private key (PEM) of the certificate.', 'See `tls-cert`.', {
    placeholder: 'file',
  }),
  option(
    'allow-host',
    'hostName',
    'A host name under which this server may be asked, beside addresses, `localhost` and its own name.',
    'Names nobody announced are refused, which stops web pages that rebind a name of theirs to this machine.',
    {placeholder: 'name', repeatable: true},
  ),
  option(
    'timezone',
    'timezone',
    'IANA time zone of jobs that name none; stored at the first start and kept from then on.',
    'The zone of the host, as cron does.',
    {placeholder: 'zone'},
  ),
  option(
    'slots',
    'slots',
    'How many executions this node runs at once; more wait, visibly.',
    '8 for each processor core and at least 16: jobs mostly wait for something else.',
    {placeholder: 'n'},
  ),
  option(
    'no-run',
    'switch',
    'Run no jobs on this node.',
    'A single server would be of little use without.',
  ),
  option(
    'no-ui',
    'switch',
    'Serve no console at `/ui/`.',
    'The console shows only what the API does.',
  ),
  option(
    'grace',
    'grace',
    'How long running work may finish when the server stops: a duration, `0`, or `infinite`.',
    'Most jobs finish in it, and a service supervisor waits longer.',
    {placeholder: 'duration', fallback: '30s'},
  ),
  option(
    'late-after',
    'duration',
    'A planned time decided later than this counts as missed and is subject to `catch_up`.',
    'Covers a restart, not an outage.',
    {placeholder: 'duration', fallback: '30s'},
  ),
  option(
    'target-wait',
    'duration',
    'How long a launch waits for a matching node before it is skipped, and work for its node that is gone.',
    'Covers the restart of a machine.',
    {placeholder: 'duration', fallback: '10m'},
  ),
  option(
    'default-target',
    'target',
    'Where a job without tags runs: on `one` node, or on `all`.',
    'A job that runs everywhere by accident does its damage everywhere.',
    {placeholder: 'one|all', fallback: 'one'},
  ),
  option(
    'keep-launches',
    'count',
    'How many launches of each job are kept, the newest.',
    'Enough to see a pattern; a thousand jobs stay below a gigabyte.',
    {placeholder: 'n', fallback: '100'},
  ),
  option(
    'keep-days',
    'days',
    'Launches older than this many days are let go, even within `keep-launches`.',
    'Not set: age alone lets nothing go.',
    {placeholder: 'n'},
  ),
  option(
    'keep-output-bytes',
    'size',
    'How much output is kept in all, such as `512MiB`; the oldest is cut first.',
    'Bounds the database whatever jobs print.',
    {placeholder: 'size', fallback: '2GiB'},
  ),
  option(
    'keep-left',
    'duration',
    'How long a member that left in good order stays listed, 1m or more.',
    'Who left since yesterday can be seen, and machines that come and go do not pile up.',
    {placeholder: 'duration', fallback: '24h'},
  ),
  option(
    'keep-failed',
    'duration',
    'How long a member that failed stays listed, 1m or more.',
    'A node that failed on a Friday night is still listed when somebody looks on Monday.',
    {placeholder: 'duration', fallback: '72h'},
  ),
  option(
    'syslog',
    'syslog',
    'Where the `syslog` processor sends to: `udp://host:port` or `tcp://host:port`.',
    'Not set: the syslog of this machine, through logger(1).',
    {placeholder: 'url'},
  ),
  option(
    'log-root',
    'directory',
    'The `files` processor may write only below this directory.',
    'Not set: who may write a shell job can write anywhere already.',
    {placeholder: 'dir'},
  ),
  option(
    'net-allow',
    'network',
    'Addresses the `http` executor may reach although `net-deny` covers them.',
    'Needed only beside `net-deny`.',
    {placeholder: 'cidr', repeatable: true},
  ),
  option(
    'net-deny',
    'network',
    'Addresses the `http` executor may not reach. Link-local and cloud metadata addresses never.',
    'Private addresses are a common, legitimate target.',
    {placeholder: 'cidr', repeatable: true},
  ),
  option(
    'su-allow',
    'account',
    'An account (`user` or `user:group`) that shell jobs may run as; `*` = any. Works only for root.',
    'Nobody, so that editing a job is not choosing an account.',
    {placeholder: 'account', repeatable: true},
  ),
  option(
    'log-level',
    'logLevel',
    'What the service log shows: `trace`, `debug`, `info`, `warn`, `error` or `silent`.',
    'What an operator may look for later; runs that go well are in the history.',
    {placeholder: 'level', fallback: 'info'},
  ),
] as const

export type OptionName = (typeof OPTIONS)[number]['name']

/** The one setting that cannot stand in the file, since it names the file. */
export const CONFIG_OPTION = option(
  'config',
  'file',
  'YAML file with settings; the keys are the flags without dashes.',
  'Not set: no file is read.',
  {placeholder: 'file'},
)

/** `keep-days` → `BELFRY_KEEP_DAYS` */
export function environmentName(name: string): string {
  return `BELFRY_${name.toUpperCase().replaceAll('-', '_')}`
}

/** A command that reads settings from the same three places. */
export interface SettingsCommand {
  /** What stands behind `belfry`. */
  readonly name: string
  readonly description: string
  readonly options: readonly Option[]
}

export const SERVER_COMMAND: SettingsCommand = {
  name: 'server',
  description: 'Start a server: the API, the schedule, and a place to run jobs.',
  options: OPTIONS,
}
