/** Rules of notices: their faults by field, the jobs they cover, and quiet hours over clock changes. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {
  checkRule,
  compileRule,
  covers,
  quietUntil,
  RULE_DEFAULTS,
  type RuleDefinition,
} from '../../src/core/notice-rule.ts'

const VALID: RuleDefinition = {...RULE_DEFAULTS, name: 'all-jobs', to: ['mail'], when: {failed: {}}}

const NIGHT = {days: [], from: '22:00', to: '06:00', timezone: 'Europe/Berlin', except: ''}

describe('the checks of a rule', () => {
  const valid: readonly Partial<RuleDefinition>[] = [
    {},
    {when: {failed: {after: 3}, late: {by: '15m'}, skipped: {reasons: ['no_target']}, store: {}}},
    {when: {expected_by: {schedule: '0 0 7 * * *', timezone: 'Europe/Berlin', since: '24h'}}},
    {when: {running: {times: 3}}},
    {repeat: 'never', quiet: [NIGHT, {...NIGHT, days: ['sat', 'sun'], except: 'critical'}]},
  ]
  for (const fields of valid)
    it(`accept ${JSON.stringify(fields)}`, () =>
      assert.deepEqual(checkRule({...VALID, ...fields}), []))

  const faulty: readonly [fields: Partial<RuleDefinition>, field: string, problem: RegExp][] = [
    [{name: 'a/b'}, 'name', /letters, digits/],
    [{name: '..'}, 'name', /cannot be/],
    [{jobs: 'A B'}, 'jobs', /must be a name of a job/],
    [{severity: 'fatal'}, 'severity', /critical, error/],
    [{to: []}, 'to', /at least one/],
    [{to: ['a', 'a']}, 'to', /once/],
    [{when: {}}, 'when', /must have a condition/],
    [{when: {sometimes: {}}}, 'when.sometimes', /is no condition. Use one of failed/],
    [{when: {failed: {after: 0}}}, 'when.failed.after', /from 1 to 1000/],
    [{when: {failed: {by: '1m'}}}, 'when.failed.by', /is no parameter of failed/],
    [{when: {late: {}}}, 'when.late', /must have "by"/],
    [{when: {late: {by: 'soon'}}}, 'when.late.by', /length of time/],
    [{when: {running: {}}}, 'when.running', /"for" or "times"/],
    [{when: {skipped: {reasons: ['rain']}}}, 'when.skipped.reasons', /is no reason code/],
    [
      {when: {expected_by: {schedule: '61 * * * *', since: '1h'}}},
      'when.expected_by.schedule',
      /minute|seconds?/,
    ],
    [{group_wait: '-1s'}, 'group_wait', /length of time/],
    [{repeat: '1m'}, 'repeat', /from 300s .*or "never"/],
    [{quiet: [{...NIGHT, from: '25:00'}]}, 'quiet[0].from', /time of day/],
    [{quiet: [{...NIGHT, timezone: 'Mars'}]}, 'quiet[0].timezone', /not a known time zone/],
    [{quiet: [{...NIGHT, days: ['funday']}]}, 'quiet[0].days', /among sun, mon/],
    [{output_lines: 1_000}, 'output_lines', /from 0 to 100/],
  ]
  for (const [fields, field, problem] of faulty)
    it(`name the field of ${JSON.stringify(fields)}`, () => {
      const faults = checkRule({...VALID, ...fields})
      assert.equal(faults.length, 1, JSON.stringify(faults))
      assert.equal(faults[0]!.field, field)
      assert.match(faults[0]!.problem, problem)
    })
})

describe('the jobs of a rule', () => {
  const job = {name: 'etl-load', owner: 'data', metadata: {team: 'a', tier: '1'}}
  const table: readonly [fields: Partial<RuleDefinition>, isCovered: boolean][] = [
    [{}, true],
    [{jobs: 'etl-*'}, true],
    [{jobs: 'etl'}, false],
    [{owner: 'data'}, true],
    [{owner: 'ops'}, false],
    [{metadata: {team: 'a'}}, true],
    [{metadata: {team: 'a', tier: '2'}}, false],
    [{metadata: {constructor: ''}}, false],
  ]
  for (const [fields, isCovered] of table)
    it(`${JSON.stringify(fields)}: ${isCovered}`, () =>
      assert.equal(covers({...VALID, ...fields}, job), isCovered))
})

describe('quiet hours', () => {
  const until = (at: string, fields: object) => {
    const rule = compileRule({...VALID, quiet: [{...NIGHT, ...fields}]})
    const end = quietUntil(rule, Date.parse(at))
    return end === null ? null : new Date(end).toISOString()
  }
  const table: readonly [at: string, fields: object, end: string | null][] = [
    ['2026-11-23T20:59:59Z', {}, null],
    ['2026-11-23T21:00:00Z', {}, '2026-11-24T05:00:00.000Z'],
    ['2026-11-24T04:59:59Z', {}, '2026-11-24T05:00:00.000Z'],
    ['2026-11-24T05:00:00Z', {}, null],
    ['2026-03-28T23:00:00Z', {}, '2026-03-29T04:00:00.000Z'],
    ['2026-11-23T22:00:00Z', {days: ['tue']}, null],
    ['2026-11-25T01:00:00Z', {days: ['tue']}, '2026-11-25T05:00:00.000Z'],
  ]
  for (const [at, fields, end] of table)
    it(`at ${at} ${JSON.stringify(fields)}: ${end ?? 'not quiet'}`, () =>
      assert.equal(until(at, fields), end))
})
