/** Rows of the tables in docs/reference that are written from tables in the code. */
import type {EventRow} from '../../src/core/events.ts'
import type {Option} from '../../src/config/option.ts'
import {environmentName} from '../../src/config/options.ts'
import type {JobField} from '../../src/core/job-fields.ts'
import {formatDuration} from '../../src/lib/duration.ts'

/** Defaults that come from the machine. */
const FROM_MACHINE: Readonly<Record<string, string>> = {
  name: 'the host name',
  timezone: "the host's zone",
  slots: '64 × cores, at least 256',
}

export function settingRow(option: Option): string {
  // A bar would end the cell.
  const placeholder = option.placeholder.replaceAll('|', '\\|')
  const flag = `\`--${option.name}${placeholder === '' ? '' : ` ${placeholder}`}\``
  const shown = option.repeatable ? `${flag} (repeatable)` : flag
  const preset =
    option.fallback === null ? (FROM_MACHINE[option.name] ?? '') : `\`${option.fallback}\``
  const variable = `\`${environmentName(option.name)}\``
  return `| ${shown} | ${variable} | ${preset} | ${option.summary} | ${option.reason} |`
}

export function limitRow(
  name: string,
  limit: {readonly value: number; readonly reason: string},
): string {
  return `| \`${name}\` | ${limitText(name, limit.value)} | ${limit.reason} |`
}

export function jobFieldRow(field: JobField): string {
  const {wire, about, note = '', unset = `\`${JSON.stringify(field.default)}\``} = field
  const absent = field.absentWhenUnset === true ? '. Absent from replies when not set' : ''
  const rule = `${about} ${fieldLimit(field)}${note}${absent}`.trim().replace(/\.$/, '')
  return `| \`${wire}\` | ${rule} | ${unset} |`
}

function fieldLimit(field: JobField): string {
  switch (field.kind) {
    case 'name':
    case 'schedule':
    case 'text':
      return `Up to ${field.max.toLocaleString('en-US')} characters`
    case 'flag':
      return '`true` or `false`'
    case 'integer':
      return `0 to ${field.max}`
    case 'choice': {
      const choices = field.choices.map((choice) => `\`${choice}\``)
      return `${choices.slice(0, -1).join(', ')} or ${choices.at(-1)!}`
    }
    case 'map':
    case 'processors':
      return `Up to ${field.max} entries`
    case 'instant':
      return ''
  }
}

/** A value in the unit of its name. */
function limitText(name: string, value: number): string {
  if (name.endsWith('Ms')) return formatDuration(value)
  if (!/Bytes(Max)?$/.test(name)) return value.toLocaleString('en-US')
  return value >= 2 ** 20 ? `${value / 2 ** 20} MiB` : `${value / 2 ** 10} KiB`
}

export function errorRow(
  code: string,
  row: {readonly status: number; readonly when: string; readonly fix: string},
): string {
  return tableRow([`\`${code}\``, String(row.status), row.when, row.fix])
}

export function eventRow(name: string, fields: readonly string[], row: EventRow<never>): string {
  const {log, logged = typeof log === 'string' ? log : '', shownTo, when} = row
  return tableRow([
    `\`${name}\``,
    fields.map((field) => `\`${field}\``).join(', '),
    logged,
    audience(shownTo),
    when,
  ])
}

function audience(shownTo: EventRow<never>['shownTo']): string {
  if (shownTo === null) return 'no stream'
  if (typeof shownTo === 'object') return `\`${shownTo[0]}\` on \`${shownTo[1]}\``
  return {job: 'the job', all_jobs: 'all jobs', any: 'any'}[shownTo]
}

/** Row of a Markdown table; a cell without text is one blank. */
export function tableRow(cells: readonly string[]): string {
  return `|${cells.map((cell) => (cell === '' ? ' |' : ` ${cell} |`)).join('')}`
}
