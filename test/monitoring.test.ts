/** The queries of packaging/monitoring/ can be parsed, and use metrics and labels that exist. */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {parser} from '@prometheus-io/lezer-promql'
import {parse} from 'yaml'

const ROOT = join(import.meta.dirname, '..')
const FOLDER = join(ROOT, 'packaging', 'monitoring')
const read = (name: string) => readFileSync(join(FOLDER, name), 'utf8')
/** Added by Prometheus to every series. */
const SCRAPE_LABELS = ['job', 'instance']
const SERIES_OF_HISTOGRAM = /_(?:bucket|sum|count)$/

/** Labels of each metric; `test/docs.test.ts` holds this table against the program. */
const METRICS = new Map(
  readFileSync(join(ROOT, 'docs', 'reference', 'metrics.md'), 'utf8')
    .matchAll(/^\| `(\w+)` \| (?:counter|gauge|histogram) \|([^|]*)\|/gm)
    .map(([, name, labels]) => [name!, labels!.match(/\w+/g) ?? []] as const),
)

/** The texts of all nodes of these types in a query. */
function textsOf(query: string, ...types: readonly string[]): readonly string[] {
  const texts: string[] = []
  parser.parse(query).iterate({
    enter: ({type, from, to}) => {
      assert.ok(!type.isError, `${query}: cannot be parsed at ${from}`)
      if (types.includes(type.name)) texts.push(query.slice(from, to))
    },
  })
  return texts
}

function assertKnown(query: string): void {
  const names = textsOf(query, 'Identifier')
  assert.notEqual(names.length, 0, query)
  for (const name of names) assert.ok(labelsOf(name) !== null, `${query}: there is no ${name}`)
  const known = new Set([...names.flatMap((name) => labelsOf(name)!), ...SCRAPE_LABELS])
  for (const label of textsOf(query, 'LabelName', 'MatchLabelName'))
    assert.ok(known.has(label), `${query}: there is no label ${label}`)
}

/** `null` = no such metric. */
function labelsOf(series: string): readonly string[] | null {
  if (series === 'up') return []
  const labels = METRICS.get(series)
  if (labels !== undefined) return labels
  const ofHistogram = METRICS.get(series.replace(SERIES_OF_HISTOGRAM, ''))
  return ofHistogram === undefined ? null : [...ofHistogram, 'le']
}

test('alert rules ask for metrics that exist', () => {
  interface Rule {
    readonly alert: string
    readonly expr: string
    readonly annotations: {readonly summary: string; readonly description: string}
  }
  const {groups} = parse(read('belfry-alerts.yml')) as {
    readonly groups: readonly {readonly rules: readonly Rule[]}[]
  }
  const rules = groups.flatMap((group) => group.rules)
  assert.ok(rules.length > 5)
  for (const {alert, expr, annotations} of rules) {
    assertKnown(expr)
    assert.ok(annotations.summary !== '' && annotations.description !== '')
    const grouped = [...textsOf(expr, 'GroupingLabels').join().matchAll(/\w+/g)].map(String)
    const kept = /\bby \(/.test(expr) ? grouped : [...SCRAPE_LABELS, ...grouped]
    for (const [, label] of Object.values(annotations)
      .join()
      .matchAll(/\$labels\.(\w+)/g))
      assert.ok(kept.includes(label!), `${alert}: its series have no ${label!}`)
  }
  const names = rules.map(({alert}) => alert)
  // These fail silently otherwise.
  for (const name of ['BelfryJobFailed', 'BelfryJobNeverSucceeded', 'BelfryNoticesNotDelivered'])
    assert.ok(names.includes(name), name)
  const listed = readFileSync(join(ROOT, 'docs', 'how-to', 'monitor.md'), 'utf8')
    .matchAll(/^\| `(Belfry\w+)` \|/gm)
    .map(([, name]) => name!)
  assert.deepEqual(rules.map(({alert}) => alert).toSorted(), [...listed].toSorted())
  const {rule_files: files} = parse(read('prometheus.yml')) as {
    readonly rule_files: readonly string[]
  }
  assert.deepEqual(files, ['belfry-alerts.yml'])
})

test('the dashboard asks for metrics that exist', () => {
  const {panels} = JSON.parse(read('grafana-dashboard.json')) as {
    readonly panels: readonly {readonly targets: readonly {readonly expr: string}[]}[]
  }
  assert.ok(panels.length > 10)
  for (const {expr} of panels.flatMap(({targets}) => targets))
    assertKnown(expr.replaceAll('$__rate_interval', '5m'))
})

test('a metric or label that does not exist is found', () => {
  assert.throws(() => assertKnown('rate(belfry_launch_total[5m])'), /no belfry_launch_total/)
  assert.throws(() => assertKnown('sum by (node) (belfry_leader)'), /no label node/)
  assert.throws(() => assertKnown('sum(belfry_leader'), /cannot be parsed/)
})
