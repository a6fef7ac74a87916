/** Text report of a fault run: the faults, their cost, and the audit. */
import type {Cost} from './costs.ts'
import {isSound, type ClusterAudit} from './audit.ts'

const LAG_BOUNDS_MS = [50, 100, 500, 1_000, 2_000, 5_000, 8_000, 10_000, 30_000, 60_000]
/** Lines shown of each list of problems. */
const SHOWN_MAX = 40

export function reportOf(audit: ClusterAudit, costs: readonly Cost[]): string {
  return [
    'Faults, and what each cost (s: median, worst)',
    ...costLines(costs),
    '',
    ...auditLines(audit),
    '',
    'From planned to launched',
    ...lagLines(audit.lagsMs),
    '',
    isSound(audit) ? 'PASSED: nothing missing, nothing doubled' : 'FAILED',
  ].join('\n')
}

function costLines(costs: readonly Cost[]): string[] {
  const titles = [...new Set(costs.map(({fault}) => fault.title))].toSorted()
  return titles.map((title) => {
    const own = costs.filter(({fault}) => fault.title === title)
    const takeovers = own.flatMap(({takeoverMs}) => takeoverMs ?? [])
    const recoveries = own.map(({recoveryMs}) => recoveryMs)
    const takeover = takeovers.length === 0 ? '' : `  another leads after ${spread(takeovers)}`
    const count = String(own.length).padStart(3)
    return `  ${count} × ${title.padEnd(28)} on time after ${spread(recoveries)}${takeover}`
  })
}

/** Median and maximum, in seconds. */
function spread(lengthsMs: readonly number[]): string {
  const sorted = lengthsMs.toSorted((a, b) => a - b)
  const seconds = (ms: number | undefined) => ((ms ?? 0) / 1_000).toFixed(1).padStart(5)
  return `${seconds(sorted[Math.floor(sorted.length / 2)])}, ${seconds(sorted.at(-1))}`
}

function auditLines(audit: ClusterAudit): string[] {
  const {planned, launched, started, lost, drained, lostAfterWork, cancelled, refused} = audit
  const reasons = [...refused].map(([reason, count]) => `${reason} ${count}`).join(', ')
  const lists = ['missing', 'doubled', 'repeated', 'problems'] as const
  return [
    `planned ${planned}, launched ${launched}, started ${started}`,
    `skipped or missed, by reason: ${reasons === '' ? 'none' : reasons}`,
    `executions lost with their node: ${lost}, of which ${lostAfterWork} had done their work and ` +
      `${drained} were stopped by a drain`,
    `executions cancelled: ${cancelled}`,
    ...noticeLines(audit.notices),
    ...lists.flatMap((name) => [
      `${name}: ${audit[name].length}`,
      ...audit[name].slice(0, SHOWN_MAX).map((line) => `  ${line}`),
    ]),
  ]
}

function noticeLines(notices: ClusterAudit['notices']): string[] {
  if (notices === null) return []
  const {sent, opened, closed, repeated, missing, doubled} = notices
  return [
    `notices: sent ${sent}, opened ${opened}, closed ${closed}, repeated ${repeated}, ` +
      `missing ${missing.length}, doubled ${doubled.length}`,
  ]
}

function lagLines(lagsMs: readonly number[]): string[] {
  let least = 0
  const lines: string[] = []
  for (const bound of [...LAG_BOUNDS_MS, Infinity]) {
    const count = lagsMs.filter((ms) => ms >= least && ms < bound).length
    const part = ((100 * count) / Math.max(1, lagsMs.length)).toFixed(2)
    const name = bound === Infinity ? `from ${least}` : `below ${bound}`
    lines.push(`  ${name.padStart(12)} ms  ${String(count).padStart(7)}  ${part.padStart(6)} %`)
    least = bound
  }
  return lines
}
