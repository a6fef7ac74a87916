/** Metrics of an agent, and the server that shows them. Without `--metrics` it opens no port. */
import {once} from 'node:events'
import type {AgentConfig} from '../config/agent.ts'
import {createAgentServer} from '../http/agent-monitoring.ts'
import {VERSION} from '../platform/version.ts'
import type {Events} from '../ports/events.ts'
import type {Clock} from '../ports/runtime.ts'
import {CertificateWatch} from '../telemetry/certificate-watch.ts'
import type {Log} from '../telemetry/log.ts'
import {type AgentState, openMetrics} from '../telemetry/metrics.ts'
import {bind} from './bind.ts'

export interface AgentMetricsParts {
  readonly config: AgentConfig
  readonly clock: Clock
  readonly events: Events
  readonly log: Log
  readonly state: () => AgentState
}

export interface AgentMetrics {
  configure(config: Pick<AgentConfig, 'metricsToken' | 'metricsTls'>): void
  close(): Promise<void>
}

/** `null` = no address is configured. Throws `StartRefused` if it cannot be used. */
export async function openAgentMetrics(parts: AgentMetricsParts): Promise<AgentMetrics | null> {
  const {config, clock, events, log, state} = parts
  const address = config.metrics
  if (address === null) return null
  const certificate = new CertificateWatch({clock, events, setting: '--metrics-tls-cert'})
  const certificateExpiresAt = () => certificate.expiresAt
  const metrics = openMetrics({events, version: VERSION, agent: state, certificateExpiresAt})
  const http = createAgentServer({
    nodeName: config.nodeName,
    clock,
    token: config.metricsToken,
    tls: config.metricsTls,
    limits: {...config.limits, connectionsMax: config.limits.agentConnectionsMax},
    metrics: async () => ({contentType: metrics.contentType, body: await metrics.text()}),
    isReady: () => state().isConnected,
    onFault: (error) => log.logger.error({err: error}, 'a request failed'),
  })
  const close = async () => {
    certificate.stop()
    await http.close()
    metrics.stop()
  }
  try {
    const {url} = await bind(http.server, address, '--metrics', () =>
      once(http.server.listen(address.port, address.host), 'listening'),
    )
    certificate.use(config.metricsTls)
    log.logger.info(`metrics are at ${url}/metrics`)
  } catch (error) {
    metrics.stop()
    throw error
  }
  return {
    configure: ({metricsToken: token, metricsTls: tls}) => {
      http.configure({token, tls})
      certificate.use(tls)
    },
    close,
  }
}
