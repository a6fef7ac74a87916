/**
 * The settings of `belfry agent`, made into one frozen, checked configuration. Most are the server's own,
 * taken from its table so that they mean the same; an agent has servers to go to instead of an address and a
 * store.
 */
import {isIP} from 'node:net'
import {createSecureContext} from 'node:tls'
import type {Command} from 'commander'
import ipaddr from 'ipaddr.js'
import {nodeConfig, type NodeConfig} from './node.ts'
import {environmentName, option, type OptionName, OPTIONS} from './options.ts'
import {
  deepFreeze,
  type Host,
  orProblem,
  readNamed,
  ParseError,
  settingsCommand,
  unknownVariables,
  type Values,
  valuesOf,
} from './read.ts'

/** The setting of that name as the server has it. */
function shared<Name extends OptionName>(name: Name) {
  type Shared = Extract<(typeof OPTIONS)[number], {readonly name: Name}>
  // The table holds each of its names once.
  return OPTIONS.find((known) => known.name === name) as unknown as Shared
}

/** Settings of `belfry agent`, in the order they are documented. */
export const AGENT_OPTIONS = [
  option(
    'server',
    'serverUrl',
    'A server of the cluster; with several, another is tried when one does not answer.',
    'The server of this machine.',
    {placeholder: 'url', fallback: 'http://127.0.0.1:8080', repeatable: true},
  ),
  shared('name'),
  shared('tag'),
  option(
    'token',
    'token',
    'The token with which the servers let this agent in.',
    'A server without one serves only its own machine, and needs none.',
    {placeholder: 'text'},
  ),
  shared('token-file'),
  option(
    'tls-ca',
    'file',
    'Certificates (PEM) of the authority that signed those of the servers, if it is a private one.',
    'Those that every program on this machine trusts.',
    {placeholder: 'file'},
  ),
  shared('slots'),
  option(
    'data',
    'directory',
    "Directory for the agent's identity and for results no server has yet; held by one process at a time.",
    'Another than a server has when started in the same place.',
    {placeholder: 'dir', fallback: './belfry-agent-data'},
  ),
  shared('grace'),
  shared('syslog'),
  shared('log-root'),
  shared('net-allow'),
  shared('net-deny'),
  shared('su-allow'),
  shared('log-level'),
] as const

const AGENT_COMMAND = {
  name: 'agent',
  description: 'Start an agent: a place to run jobs, which finds its cluster through any server.',
  options: AGENT_OPTIONS,
}

/** Everything an agent is told. */
export interface AgentConfig extends NodeConfig {
  /** Origins such as `https://host:8080`; not empty. */
  readonly servers: readonly string[]
  /** PEM text; `null` = the machine's own authorities. */
  readonly ca: string | null
}

/** With the ends that wait for a server, more would not fit into one heartbeat. */
export const AGENT_SLOTS_MAX = 4_000

/** Known for other purposes: the server's settings, and what a job of Belfry sees. */
const OTHER_VARIABLES = [
  ...OPTIONS.map(({name}) => environmentName(name)),
  ...['JOB', 'EXECUTION', 'SCHEDULED_AT', 'ATTEMPT', 'NODE'].map((name) => `BELFRY_${name}`),
]

/** For its help. */
export function agentCommand(): Command {
  return settingsCommand(AGENT_COMMAND)
}

/** Reads the flags in `argv` (after the word `agent`), the environment, and the file they name. */
export function loadAgentConfig(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  host: Host,
):
  | {readonly ok: true; readonly config: AgentConfig}
  | {readonly ok: false; readonly problem: string} {
  return orProblem(() => {
    const values = valuesOf(AGENT_COMMAND, {argv, env, host})
    const strays = unknownVariables(env, OTHER_VARIABLES, AGENT_COMMAND)
    return deepFreeze(build(values, host, strays))
  })
}

function build(
  values: Values<typeof AGENT_OPTIONS>,
  host: Host,
  strays: readonly string[],
): AgentConfig {
  const servers = [...new Set(values.many('server'))]
  const node = nodeConfig(values, host, strays)
  if (node.slots > AGENT_SLOTS_MAX)
    throw new ParseError(`--slots of an agent is at most ${AGENT_SLOTS_MAX}; start several agents.`)
  const inClear = node.token === null ? [] : servers.filter(isInTheClear)
  return {
    ...node,
    servers,
    ca: authorityOf(values, host),
    warnings: [...node.warnings, ...inClear.map(inTheClear)],
  }
}

function authorityOf(values: Values<typeof AGENT_OPTIONS>, host: Host): string | null {
  const given = values.given('tls-ca')
  if (given === undefined) return null
  const ca = readNamed(given, host)
  try {
    if (!ca.includes('-----BEGIN CERTIFICATE-----')) throw new Error('it holds no certificate')
    createSecureContext({ca})
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new ParseError(`The certificates in ${given.texts[0]} cannot be used: ${why}.`, {
      cause: error,
    })
  }
  return ca
}

function isInTheClear(url: string): boolean {
  const {protocol, hostname} = new URL(url)
  if (protocol === 'https:' || hostname === 'localhost') return false
  const address = hostname.replace(/^\[|\]$/g, '')
  return isIP(address) === 0 || ipaddr.process(address).range() !== 'loopback'
}

function inTheClear(url: string): string {
  return `The token is sent in the clear to ${url}; use https, or a network that nobody else is on.`
}
