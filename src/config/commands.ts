/**
 * The commands `belfry server` and `belfry agent` with their settings, for help and for parsing flags. Client
 * commands show them too, so this file does not import the readers of settings.
 */
import {Command, Option as Flag} from 'commander'
import {type Option, option} from './option.ts'
import {CONFIG_OPTION, type OptionName, OPTIONS} from './options.ts'

/** A command with settings from flags, environment and file. */
export interface SettingsCommand {
  /** The word after `belfry`. */
  readonly name: string
  readonly description: string
  readonly options: readonly Option[]
}

export const SERVER_COMMAND: SettingsCommand = {
  name: 'server',
  description: 'Start a server: it serves the API, schedules jobs and runs them',
  options: OPTIONS,
}

/** The server's option of that name. */
function shared<Name extends OptionName>(name: Name) {
  type Shared = Extract<(typeof OPTIONS)[number], {readonly name: Name}>
  // The table contains each name once.
  return OPTIONS.find((known) => known.name === name) as unknown as Shared
}

/** Order: as documented. */
export const AGENT_OPTIONS = [
  option(
    'server',
    'serverUrl',
    'URL of a server in the cluster. With several URLs, the agent fails over between them.',
    'The server on this machine.',
    {placeholder: 'url', fallback: 'http://127.0.0.1:8080', repeatable: true},
  ),
  shared('name'),
  shared('tag'),
  option(
    'token',
    'token',
    'Token that the servers require: one of type `agent` or `join`, or a management token.',
    'A server without a token answers its own machine only, and requires none.',
    {placeholder: 'text'},
  ),
  shared('token-file'),
  option(
    'tls-ca',
    'file',
    'CA certificates (PEM) for the server certificates, if the CA is private.',
    'The CAs that all programs on this machine trust.',
    {placeholder: 'file'},
  ),
  shared('slots'),
  option(
    'data',
    'directory',
    "Directory for the agent's identity and undelivered results; locked by one process at a time.",
    "Differs from a server's, so both can start in the same working directory.",
    {placeholder: 'dir', fallback: './belfry-agent-data'},
  ),
  shared('grace'),
  shared('syslog'),
  shared('log-root'),
  shared('net-allow'),
  shared('net-deny'),
  shared('su-allow'),
  shared('executor-allow'),
  option(
    'metrics',
    'address',
    'Address of `/metrics`, `/livez` and `/readyz` of this agent, such as `127.0.0.1:9464`.',
    'Not set: an agent opens no port.',
    {placeholder: 'host:port'},
  ),
  option(
    'metrics-token-file',
    'file',
    'File that holds the token that `/metrics` requires: 16 characters or more.',
    'Not set: only this machine may read the metrics.',
    {placeholder: 'file'},
  ),
  option(
    'metrics-tls-cert',
    'file',
    'Certificate chain (PEM) for HTTPS at `metrics`; requires `metrics-tls-key`.',
    'Plain HTTP is enough on one machine.',
    {placeholder: 'file'},
  ),
  option(
    'metrics-tls-key',
    'file',
    'Private key (PEM) of the certificate.',
    'See `metrics-tls-cert`.',
    {placeholder: 'file'},
  ),
  option(
    'metrics-insecure',
    'switch',
    'Serve the metrics as plain HTTP to other machines.',
    'Plain HTTP reveals the token on the network. A private network may be safe enough.',
  ),
  shared('log-level'),
  shared('log-format'),
] as const

export const AGENT_COMMAND = {
  name: 'agent',
  description: 'Start an agent: it runs jobs and joins its cluster through any server',
  options: AGENT_OPTIONS,
}

export function serverCommand(): Command {
  return settingsCommand(SERVER_COMMAND)
}

export function agentCommand(): Command {
  return settingsCommand(AGENT_COMMAND)
}

/** The commander command, for help and for reading flags. */
export function settingsCommand({name, description, options}: SettingsCommand): Command {
  const command = new Command(name).description(description).allowExcessArguments(false)
  for (const option of [...options, CONFIG_OPTION]) command.addOption(flagOf(option))
  command.addHelpText('after', '\nEach flag can also be set as BELFRY_…, such as BELFRY_LOG_LEVEL.')
  return command.helpOption('-h, --help', 'Show this help.')
}

/** Defaults derived from the machine. */
const DERIVED_DEFAULTS: Readonly<Record<string, string>> = {
  name: 'the host name',
  slots: '64 per processor core, at least 256',
}

function flagOf(option: Option): Flag {
  const value = option.placeholder === '' ? '' : ` <${option.placeholder}>`
  const fallback = option.fallback ?? DERIVED_DEFAULTS[option.name]
  const preset = fallback === undefined ? '' : ` (default ${fallback})`
  const repeated = option.repeatable ? ' May be repeated.' : ''
  const flag = new Flag(`--${option.name}${value}`, `${option.summary}${repeated}${preset}`)
  return option.placeholder === ''
    ? flag
    : flag.argParser((text: string, before?: readonly string[]) => [...(before ?? []), text])
}
