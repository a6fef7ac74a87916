/**
 * Rewrites the generated tables of docs/reference/configuration.md, limits.md and agents.md after a change of
 * a setting or a limit: `node test/docs/write-tables.ts`.
 */
import {readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {AGENT_OPTIONS} from '../../src/config/commands.ts'
import {LIMITS} from '../../src/config/limits.ts'
import {CONFIG_OPTION, OPTIONS} from '../../src/config/options.ts'
import {limitRow, settingRow} from './rows.ts'

const REFERENCE = join(import.meta.dirname, '..', '..', 'docs', 'reference')

/** Replaces the body of the first table below a heading. */
function rewrite(page: string, heading: string, rows: readonly string[]): void {
  const path = join(REFERENCE, page)
  const lines = readFileSync(path, 'utf8').split('\n')
  const rule = lines.findIndex(
    (line, index) => line.startsWith('|---') && index > lines.indexOf(heading),
  )
  const rest = lines.slice(rule + 1)
  const after = rest.findIndex((line) => !line.startsWith('|'))
  writeFileSync(path, [...lines.slice(0, rule + 1), ...rows, ...rest.slice(after)].join('\n'))
}

rewrite(
  'configuration.md',
  '## Settings of `belfry server`',
  [...OPTIONS, CONFIG_OPTION].map(settingRow),
)
rewrite(
  'limits.md',
  '## All limits',
  Object.entries(LIMITS).map(([name, limit]) => limitRow(name, limit)),
)
rewrite(
  'agents.md',
  '## Settings of `belfry agent`',
  [...AGENT_OPTIONS, CONFIG_OPTION].map(settingRow),
)
