/** The metrics of servers and agents, and their rows for docs/reference/metrics.md. */
import {systemClock} from '../../src/platform/clock.ts'
import {localEvents} from '../../src/telemetry/event-bus.ts'
import {type Metrics, openMetrics} from '../../src/telemetry/metrics.ts'
import {CLUSTER} from '../telemetry/cluster-state.ts'
import {tableRow} from './rows.ts'

/** A row for each metric, with the text of its help. Labels are those of its samples. */
export async function metricRows(): Promise<readonly string[]> {
  const shared = {events: localEvents(systemClock()), version: '0'}
  const ofServer = openMetrics({
    ...shared,
    server: {cluster: () => Promise.resolve(CLUSTER), agentsConnected: () => 0},
    certificateExpiresAt: () => 1,
  })
  const ofAgent = openMetrics({
    ...shared,
    agent: () => ({isConnected: true, slots: 1, running: 0, resultsWaiting: 0}),
  })
  ofServer.answered({method: 'GET', route: '/', status: 200, durationMs: 1})
  const rows = [...(await rowsOf(ofServer)), ...(await rowsOf(ofAgent))]
  return [...new Map(rows).values()]
}

async function rowsOf(metrics: Metrics): Promise<readonly (readonly [string, string])[]> {
  const text = await metrics.text()
  metrics.stop()
  return [...text.matchAll(/^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)$/gm)].map(
    ([, name = '', help = '', type = '']) => {
      const sample = new RegExp(`^${name}(?:_count)?\\{([^}]+)\\}`, 'm').exec(text)?.[1] ?? ''
      const about = help.replaceAll(/--[\w-]+/g, '`$&`')
      const labels = [...sample.matchAll(/(\w+)="/g)].map((match) => `\`${match[1]!}\``)
      return [name, tableRow([`\`${name}\``, type, labels.join(', '), about])] as const
    },
  )
}
