/**
 * Settings of `belfry agent`, as one frozen, checked configuration. Most options come from the server's
 * table, so they mean the same. An agent has server URLs instead of a listen address and a store.
 */
import {isIP} from 'node:net'
import {createSecureContext} from 'node:tls'
import ipaddr from 'ipaddr.js'
import {messageOf} from '../lib/error.ts'
import {AGENT_COMMAND, type AGENT_OPTIONS} from './commands.ts'
import {readTls, rejectExposed, type TlsTexts} from './listen.ts'
import {nodeConfig, type NodeConfig, readTokenFile} from './node.ts'
import {environmentName, OPTIONS} from './options.ts'
import {
  deepFreeze,
  type Host,
  ParseError,
  readSettingFile,
  readSettings,
  resultOf,
  unknownVariables,
  type Values,
} from './read.ts'
import type {Address} from './values.ts'

export interface AgentConfig extends NodeConfig {
  /** Origins such as `https://host:8080`; not empty. */
  readonly servers: readonly string[]
  /** PEM text; `null` = the CAs that the machine trusts. */
  readonly ca: string | null
  /** Address of metrics and health; `null` = no port is opened. */
  readonly metrics: Address | null
  /** `null` = only this machine may read the metrics, and needs none. */
  readonly metricsToken: string | null
  readonly metricsTls: TlsTexts | null
}

export type LoadedAgentConfig =
  {readonly ok: true; readonly config: AgentConfig} | {readonly ok: false; readonly problem: string}

/** Together with undelivered results, more executions would not fit into one heartbeat. */
export const AGENT_SLOTS_MAX = 4_000

/** Variables with other purposes: the server's settings, and those set for jobs. */
const OTHER_VARIABLES = [
  ...OPTIONS.map(({name}) => environmentName(name)),
  ...['JOB', 'EXECUTION', 'SCHEDULED_AT', 'ATTEMPT', 'NODE'].map((name) => `BELFRY_${name}`),
]

/** `argv` follows the word `agent`. `problem` is the message for the operator. */
export function loadAgentConfig(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  host: Host,
): LoadedAgentConfig {
  return resultOf(() => {
    const values = readSettings(AGENT_COMMAND, {argv, env, host})
    const unknown = unknownVariables(env, OTHER_VARIABLES, AGENT_COMMAND)
    return deepFreeze(build(values, host, unknown))
  })
}

function build(
  values: Values<typeof AGENT_OPTIONS>,
  host: Host,
  unknown: readonly string[],
): AgentConfig {
  const servers = [...new Set(values.many('server'))]
  const node = nodeConfig(values, host, unknown)
  if (node.slots > AGENT_SLOTS_MAX)
    throw new ParseError(
      `--slots of an agent must be at most ${AGENT_SLOTS_MAX}. Start several agents instead.`,
    )
  const unencrypted = node.token === null ? [] : servers.filter(isUnencrypted)
  return {
    ...node,
    servers,
    ca: authorityOf(values, host),
    ...metricsOf(values, host),
    warnings: [
      ...node.warnings,
      ...unencrypted.map(
        (url) => `The token is sent to ${url} in clear text. Use https, or a private network.`,
      ),
    ],
  }
}

const METRICS_FLAGS = {
  address: '--metrics',
  token: '--metrics-token-file',
  cert: '--metrics-tls-cert',
  key: '--metrics-tls-key',
  insecure: '--metrics-insecure',
}

/** The rules for the address are those of a server. */
function metricsOf(
  values: Values<typeof AGENT_OPTIONS>,
  host: Host,
): Pick<AgentConfig, 'metrics' | 'metricsToken' | 'metricsTls'> {
  const address = values.one('metrics') ?? null
  const [certFile, keyFile] = [values.raw('metrics-tls-cert'), values.raw('metrics-tls-key')]
  const tokenFile = values.raw('metrics-token-file')
  const token = tokenFile === undefined ? null : readTokenFile(tokenFile, host)
  const tls = readTls(certFile, keyFile, METRICS_FLAGS, host)
  const insecure = values.one('metrics-insecure') ?? false
  if (address !== null) rejectExposed({address, token, tls, insecure}, METRICS_FLAGS)
  return {metrics: address, metricsToken: token, metricsTls: tls}
}

function authorityOf(values: Values<typeof AGENT_OPTIONS>, host: Host): string | null {
  const file = values.raw('tls-ca')
  if (file === undefined) return null
  const ca = readSettingFile(file, host)
  try {
    if (!ca.includes('-----BEGIN CERTIFICATE-----')) throw new Error('it contains no certificate')
    createSecureContext({ca})
  } catch (error) {
    const problem = `The certificates in ${file.texts[0]} cannot be used: ${messageOf(error)}.`
    throw new ParseError(problem, {cause: error})
  }
  return ca
}

/** True if requests to `url` leave this machine without TLS. */
function isUnencrypted(url: string): boolean {
  const {protocol, hostname} = new URL(url)
  if (protocol === 'https:' || hostname === 'localhost') return false
  const address = hostname.replace(/^\[|\]$/g, '')
  return isIP(address) === 0 || ipaddr.process(address).range() !== 'loopback'
}
