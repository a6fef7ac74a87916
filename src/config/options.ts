/**
 * Settings of a server as data: name, kind, default, reason. The command line, the environment, the
 * configuration file and the documentation are derived from this table, so all of them know the same
 * settings.
 */

import {option} from './option.ts'

/** Settings of `belfry server`, in the order they are documented. */
export const OPTIONS = [
  option(
    'http',
    'address',
    'Address to listen on; port 0 picks a free port.',
    'Until you set a token, only this machine can connect.',
    {placeholder: 'host:port', fallback: '127.0.0.1:8080'},
  ),
  option(
    'data',
    'directory',
    'Data directory; created if it is missing, locked by one server at a time.',
    'A restart in the same working directory finds it again.',
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
    'new-store',
    'switch',
    'Start on another store than the one that the data directory had so far.',
    'A start without `store` by mistake would begin without any jobs.',
  ),
  option(
    'name',
    'nodeName',
    'Name of this node: 1 to 63 letters, digits, `.`, `_`, `-`.',
    'The host name is how people refer to the machine.',
    {placeholder: 'node'},
  ),
  option(
    'tag',
    'tag',
    'Tag of this node; jobs select nodes by tags.',
    'A node without tags runs jobs without tags.',
    {placeholder: 'key=value', repeatable: true},
  ),
  option(
    'token',
    'token',
    'Management token, which may do everything: 16 characters or more. Further tokens are stored.',
    'Without any token, the server answers this machine only. A default token would not be secret.',
    {placeholder: 'text'},
  ),
  option(
    'token-file',
    'file',
    'File that holds the token; keeps the token out of the process list.',
    'See `token`.',
    {placeholder: 'file'},
  ),
  option(
    'insecure',
    'switch',
    'Serve plain HTTP to other machines. Use it only behind a proxy that terminates TLS.',
    'Plain HTTP reveals the token on the network.',
  ),
  option(
    'tls-cert',
    'file',
    'Certificate chain (PEM) for HTTPS; requires `tls-key`.',
    'Plain HTTP is enough on one machine.',
    {placeholder: 'file'},
  ),
  option('tls-key', 'file', 'Private key (PEM) of the certificate.', 'See `tls-cert`.', {
    placeholder: 'file',
  }),
  option(
    'secret-key-file',
    'file',
    'File with the key that encrypts secrets of jobs: 32 random bytes, the same on all servers.',
    'With `sqlite`, the first secret makes `secret-key` in the data directory. Other servers need a key.',
    {placeholder: 'file'},
  ),
  option(
    'discard-secrets',
    'switch',
    'Delete the stored secrets if the key does not fit them. For a start after the key was lost.',
    'A server with a wrong key does not start, so that a mistake deletes nothing.',
  ),
  option(
    'allow-host',
    'hostName',
    'Host name that requests may use, besides IP addresses, `localhost` and the node name.',
    'Requests for other host names are rejected. This stops DNS rebinding attacks by web pages.',
    {placeholder: 'name', repeatable: true},
  ),
  option(
    'cors-origin',
    'origin',
    'Origin of a web site whose pages may use the API from a browser, such as `https://ops.example.org`.',
    'None: pages of other web sites can neither read nor change anything.',
    {placeholder: 'origin', repeatable: true},
  ),
  option(
    'session-idle',
    'duration',
    'A session of a browser expires when it is not used for this long: 5m or more.',
    'A console that is left open over a break asks for the token again.',
    {placeholder: 'duration', fallback: '30m'},
  ),
  option(
    'session-max',
    'duration',
    'A session of a browser expires this long after the sign-in, however much it is used.',
    'A working day with one sign-in.',
    {placeholder: 'duration', fallback: '12h'},
  ),
  option(
    'public-url',
    'origin',
    'URL at which browsers reach the servers, such as `https://belfry.example.org`.',
    'A sign-in through a provider needs it, and notices link to it. Its host name is allowed as by ' +
      '`allow-host`.',
    {placeholder: 'url'},
  ),
  option(
    'oidc-issuer',
    'issuer',
    'Issuer of an OpenID Connect provider, through which people sign in to the console.',
    'None: people sign in with tokens. With it, every request needs a token or a session.',
    {placeholder: 'url'},
  ),
  option('oidc-client-id', 'text', 'Client id at the provider.', 'The provider issues it.', {
    placeholder: 'id',
  }),
  option(
    'oidc-client-secret-file',
    'file',
    'File that holds the client secret.',
    'Not set: the provider knows the client as public.',
    {placeholder: 'file'},
  ),
  option(
    'oidc-scope',
    'text',
    'Scopes to ask for, separated by blanks; `openid` is one of them.',
    'Every provider knows them. Some need another one to name groups.',
    {placeholder: 'scopes', fallback: 'openid profile email'},
  ),
  option(
    'oidc-groups-claim',
    'text',
    'Claim that lists the groups of a person; dots lead into it, as in `realm_access.roles`.',
    'Most providers name the claim `groups`.',
    {placeholder: 'claim', fallback: 'groups'},
  ),
  option(
    'oidc-map',
    'groupGrant',
    'What a group may do: `group=management`, `group=read` or `group=policy:name`.',
    'A person without a mapped group is refused.',
    {placeholder: 'group=grant', repeatable: true},
  ),
  option(
    'timezone',
    'timezone',
    'IANA time zone for jobs that set none. Stored at the first start; then `belfry settings` changes it.',
    'The zone of the host, as in cron.',
    {placeholder: 'zone'},
  ),
  option(
    'slots',
    'slots',
    'Maximum number of concurrent executions on this node. Further executions wait as `pending`.',
    '64 per processor core, at least 256: most jobs spend their time waiting.',
    {placeholder: 'n'},
  ),
  option(
    'no-run',
    'switch',
    'Run no jobs on this node.',
    'A single server must run jobs to be useful.',
  ),
  option(
    'no-ui',
    'switch',
    'Do not serve the web console at `/ui/`.',
    'The console shows only what the API returns.',
  ),
  option(
    'grace',
    'grace',
    'Grace period for running executions at shutdown: a duration, `0`, or `infinite`.',
    'Most jobs finish within it, and a service supervisor waits longer.',
    {placeholder: 'duration', fallback: '30s'},
  ),
  option(
    'late-after',
    'duration',
    'A planned time that is decided later than this counts as missed; `catch_up` then applies.',
    'Covers a restart, but not an outage.',
    {placeholder: 'duration', fallback: '30s'},
  ),
  option(
    'target-wait',
    'duration',
    'Maximum wait of a launch for a matching node, and of pending work for a node that is gone.',
    'Covers a machine reboot.',
    {placeholder: 'duration', fallback: '10m'},
  ),
  option(
    'default-target',
    'target',
    'Nodes that run a job without tags: `one` node or `all` nodes.',
    'A job that runs on all nodes by mistake does damage on all nodes.',
    {placeholder: 'one|all', fallback: 'one'},
  ),
  option(
    'run-rate',
    'count',
    'Runs per minute that one token may request of one job, 10 s worth at once; further ones get 429.',
    'Far more than a script that waits for its runs; a loop out of control cannot fill the history.',
    {placeholder: 'n', fallback: '6000'},
  ),
  option(
    'keep-launches',
    'count',
    'Number of launches kept for each job; the newest are. `keep-executions` is about what they ran.',
    'Weeks of an hourly job; the rows of a thousand jobs take about 170 MB, on PostgreSQL 340 MB.',
    {placeholder: 'n', fallback: '1000'},
  ),
  option(
    'keep-executions',
    'count',
    'Number of launches of each job whose executions and output are kept; the newest are.',
    'Enough to see a pattern; a thousand jobs stay below a gigabyte.',
    {placeholder: 'n', fallback: '100'},
  ),
  option(
    'keep-days',
    'days',
    'Maximum age of a launch in days. Older launches are deleted, even within `keep-launches`.',
    'More than a year, so that a yearly job has its last launch.',
    {placeholder: 'n', fallback: '400'},
  ),
  option(
    'keep-output-bytes',
    'size',
    'Maximum size of all stored output, such as `512MiB`; the oldest output is deleted first.',
    'Limits the size of the database, however much jobs print.',
    {placeholder: 'size', fallback: '2GiB'},
  ),
  option(
    'keep-left',
    'duration',
    'How long a member stays listed after it left: 1m or more.',
    'Members that left since yesterday stay visible; short-lived machines do not accumulate.',
    {placeholder: 'duration', fallback: '24h'},
  ),
  option(
    'keep-failed',
    'duration',
    'How long a member stays listed after it failed: 1m or more.',
    'A node that fails on Friday night is still listed on Monday.',
    {placeholder: 'duration', fallback: '72h'},
  ),
  option(
    'keep-audit-days',
    'days',
    'Maximum age of an entry of the audit log in days. The last ten revisions of each job stay.',
    'A year and a month: last year is complete when it is asked for.',
    {placeholder: 'n', fallback: '400'},
  ),
  option(
    'keep-audit-entries',
    'count',
    'Number of entries of the audit log; the newest are kept, and the last ten revisions of each job.',
    'Two hundred changes a day for years; some hundred megabytes without the definitions.',
    {placeholder: 'n', fallback: '250000'},
  ),
  option(
    'keep-audit-bytes',
    'size',
    'Maximum size of all earlier definitions in the audit log. Beyond it the oldest entries lose theirs, ' +
      'but not the last ten revisions of each job.',
    'Years of changes of usual jobs; many changes of a large one cannot fill the disk.',
    {placeholder: 'size', fallback: '1GiB'},
  ),
  option(
    'backup-dir',
    'directory',
    'Directory for scheduled backups of the store, which the leader makes. Set it on all servers.',
    'Not set: no backups are scheduled. Only you know a disk that does not fail with that of the store.',
    {placeholder: 'dir'},
  ),
  option(
    'backup-schedule',
    'schedule',
    'When scheduled backups are made, as the schedule of a job.',
    'A day of changes at most is lost; each backup reads the whole store.',
    {placeholder: 'schedule', fallback: '@daily'},
  ),
  option(
    'backup-keep',
    'count',
    'Number of scheduled backups kept; older ones are deleted after a good new one.',
    'A week: a mistake of a weekend is found on Monday. Each needs as much space as the store.',
    {placeholder: 'n', fallback: '7'},
  ),
  option(
    'metrics-jobs',
    'jobPattern',
    'Jobs with series of their own in `/metrics`, such as `backup-*`; `*` stands for any text.',
    'None: the number of series must not grow with the number of jobs.',
    {placeholder: 'pattern', repeatable: true},
  ),
  option(
    'syslog',
    'syslog',
    'Target of the `syslog` processor: `udp://host:port` or `tcp://host:port`.',
    'Not set: the local syslog, through logger(1).',
    {placeholder: 'url'},
  ),
  option(
    'log-root',
    'directory',
    'Directory below which the `files` processor may write.',
    'Not set: anyone who can create a shell job can already write anywhere.',
    {placeholder: 'dir'},
  ),
  option(
    'net-allow',
    'network',
    'Address range that the `http` executor and notices may reach even if `net-deny` covers it.',
    'Needed only together with `net-deny`.',
    {placeholder: 'cidr', repeatable: true},
  ),
  option(
    'net-deny',
    'network',
    'Address range denied to the `http` executor and to notices. Link-local and cloud metadata ' +
      'addresses always are.',
    'Private addresses are common and legitimate targets.',
    {placeholder: 'cidr', repeatable: true},
  ),
  option(
    'su-allow',
    'account',
    'Account (`user` or `user:group`) that shell jobs may run as; `*` = any. Requires root.',
    'None: permission to edit a job must not include the choice of an account.',
    {placeholder: 'account', repeatable: true},
  ),
  option(
    'executor-allow',
    'text',
    'Executor that this node may run; runs of others fail here and say why.',
    'All: permissions to store jobs are the limit.',
    {placeholder: 'name', repeatable: true},
  ),
  option(
    'log-level',
    'logLevel',
    'Level of the service log: `trace`, `debug`, `info`, `warn`, `error` or `silent`.',
    'Events that an operator may look for later. Successful runs are in the history.',
    {placeholder: 'level', fallback: 'info'},
  ),
  option(
    'log-format',
    'logFormat',
    'Form of the service log: `json`, `pretty` (text for people), or `auto`.',
    '`auto` is text on a terminal, and JSON where a program collects the log.',
    {placeholder: 'form', fallback: 'auto'},
  ),
] as const

export type OptionName = (typeof OPTIONS)[number]['name']

/** Names the file, so it cannot be set in the file. */
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
