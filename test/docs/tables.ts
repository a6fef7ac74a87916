/** Tables of docs/reference that are written from tables in the code, by `node test/docs/write-tables.ts`. */
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {AGENT_OPTIONS} from '../../src/config/commands.ts'
import {LIMITS} from '../../src/config/limits.ts'
import {CONFIG_OPTION, OPTIONS} from '../../src/config/options.ts'
import {AUDIT_ROWS} from '../../src/core/audit.ts'
import {ERROR_CODES} from '../../src/core/error-codes.ts'
import {JOB_FIELD_LIST} from '../../src/core/job-fields.ts'
import {ABSENCES} from '../../src/core/explain/absences.ts'
import {END_REASONS} from '../../src/core/execution.ts'
import {CONDITION_ROWS} from '../../src/core/notice-rule.ts'
import {EVENTS} from '../../src/core/events.ts'
import {REASON_ROWS} from '../../src/core/launch-reasons.ts'
import {eventFields} from './event-fields.ts'
import {metricRows} from './metrics.ts'
import {allRoutes, bodyRows, impliedErrorRows, parameterRows, routeRows} from './routes.ts'
import {errorRow, eventRow, jobFieldRow, limitRow, settingRow, tableRow} from './rows.ts'

const FIELDS = eventFields()
/** Routes of a server; the tests of pages outside of the API need the others. */
export const ROUTES = await allRoutes()

const SECTIONS = [
  ['### Jobs', 'jobs'],
  ['### History', 'history'],
  ['### Cluster', 'cluster'],
  ['### Administration', 'administration'],
  ['### Access', 'policies'],
  ['### Notices', 'notices'],
  ['### Health and metrics', 'service'],
] as const

interface Table {
  /** File, seen from docs/reference. */
  readonly page: string
  /** Line of the page; the table is the first one below it. */
  readonly below: string
  readonly rows: readonly string[]
}

export const TABLES: readonly Table[] = [
  {
    page: 'configuration.md',
    below: '## Settings of `belfry server`',
    rows: [...OPTIONS, CONFIG_OPTION].map(settingRow),
  },
  {
    page: 'agents.md',
    below: '## Settings of `belfry agent`',
    rows: [...AGENT_OPTIONS, CONFIG_OPTION].map(settingRow),
  },
  {
    page: 'limits.md',
    below: '## All limits',
    rows: Object.entries(LIMITS).map(([name, limit]) => limitRow(name, limit)),
  },
  {
    page: 'errors.md',
    below: '# Errors',
    rows: Object.entries(ERROR_CODES).map(([code, row]) => errorRow(code, row)),
  },
  {
    page: 'jobs.md',
    below: '## Fields you can write',
    rows: JOB_FIELD_LIST.map(jobFieldRow),
  },
  {
    page: 'events.md',
    below: '## All events',
    rows: Object.entries(EVENTS).map(([name, row]) => eventRow(name, FIELDS[name]!, row)),
  },
  {
    page: 'jobs.md',
    below: 'The reasons of launches:',
    rows: REASON_ROWS.map(([code, {means}]) => tableRow([`\`${code}\``, means])),
  },
  {
    page: 'jobs.md',
    below: 'Why a time has no launch:',
    rows: Object.entries(ABSENCES).map(([code, means]) => tableRow([`\`${code}\``, means])),
  },
  {
    page: 'jobs.md',
    below: 'The reasons of executions:',
    rows: Object.entries(END_REASONS).map(([code, clause]) => tableRow([`\`${code}\``, clause])),
  },
  {
    page: '../how-to/access.md',
    below: '## Who changed what',
    rows: Object.entries(AUDIT_ROWS).map(([action, done]) => tableRow([`\`${action}\``, done])),
  },
  {
    page: 'notice-rules.md',
    below: '## Conditions',
    rows: CONDITION_ROWS.map(([name, {parameters, means}]) => {
      const keys = Object.keys(parameters).map((key) => `\`${key}\``)
      return tableRow([`\`${name}\``, keys.join(', '), means])
    }),
  },
  {page: 'metrics.md', below: '## All metrics', rows: await metricRows()},
  ...SECTIONS.map(([below, tag]) => {
    const routes = ROUTES.described.filter((route) => route.tag === tag)
    return {page: 'api.md', below, rows: routeRows(routes)}
  }),
  {page: 'api.md', below: '### Query parameters', rows: parameterRows(ROUTES.described)},
  {page: 'api.md', below: '### Bodies', rows: bodyRows(ROUTES.described)},
  {page: 'api.md', below: '### Errors of many routes', rows: impliedErrorRows()},
]

export function pathOf({page}: Table): string {
  return join(import.meta.dirname, '..', '..', 'docs', 'reference', page)
}

/** The page as it is, in three parts: `rows` is the body of the table. */
export function partsOf(table: Table): {
  readonly before: readonly string[]
  readonly rows: readonly string[]
  readonly after: readonly string[]
} {
  const lines = readFileSync(pathOf(table), 'utf8').split('\n')
  const place = lines.indexOf(table.below)
  if (place === -1) throw new Error(`${table.page} has no line "${table.below}".`)
  const first = lines.findIndex((line, index) => line.startsWith('|---') && index > place) + 1
  const end = lines.findIndex((line, index) => index >= first && !line.startsWith('|'))
  return {
    before: lines.slice(0, first),
    rows: lines.slice(first, end),
    after: lines.slice(end),
  }
}
