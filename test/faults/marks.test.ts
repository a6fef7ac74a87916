/** The launch audit itself: it reports each kind of violation, and nothing else. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {auditLaunches, type Mark, type LaunchAudit} from '../../tools/faults/marks.ts'

const FROM = Date.UTC(2026, 0, 1)
const NAME = 'job'

interface Ran {
  readonly id: string
  readonly status?: string
  /** Marks of the execution, in order. */
  readonly marks?: readonly Mark['what'][]
}

const GOOD: Ran = {id: '1-north-1'}
const LOST: Ran = {id: '1-north-1', status: 'lost', marks: ['start']}

function row(executions: readonly Ran[], more: object = {}) {
  const at = new Date(FROM).toISOString()
  const told = executions.map(({id, status = 'succeeded'}) => ({id, status}))
  const times = {scheduled_at: at, scheduled_until: at, decided_at: at}
  return {cause: 'schedule', decision: 'launched', ...times, executions: told, ...more}
}

function marksOf({id, marks = ['start', 'end']}: Ran): Mark[] {
  const mark = {job: NAME, scheduledAt: FROM, attempt: 1, node: 'north', execution: id}
  return marks.map((what) => ({...mark, what}))
}

const cases: readonly (readonly [
  what: string,
  launches: readonly object[],
  ran: readonly Ran[],
  found: readonly (keyof LaunchAudit)[],
])[] = [
  ['a run as it should be', [row([GOOD])], [GOOD], []],
  ['no row at all', [], [], ['missing']],
  ['a row, and nothing started', [row([GOOD])], [], ['missing', 'incomplete']],
  ['two rows', [row([GOOD]), row([GOOD])], [GOOD], ['doubled']],
  ['two starts', [row([GOOD])], [{...GOOD, marks: ['start', 'start', 'end']}], ['doubled']],
  ['a success without its end', [row([GOOD])], [{...GOOD, marks: ['start']}], ['incomplete']],
  [
    'a second run without need',
    [row([GOOD, {id: '1-north-2'}])],
    [GOOD, {id: '1-north-2'}],
    ['repeated'],
  ],
  [
    'a run that is lost, and its next',
    [row([LOST, {id: '1-east-2'}])],
    [LOST, {id: '1-east-2'}],
    [],
  ],
  ['one that is lost before it started', [row([LOST])], [], []],
  ['a time that was missed', [row([], {decision: 'missed'})], [], []],
]

for (const [what, launches, ran, expected] of cases)
  test(`${what}: ${expected.length === 0 ? 'nothing wrong' : expected.join(', ')}`, () => {
    const marks = ran.flatMap(marksOf)
    const audit = auditLaunches({name: NAME, launches, marks, from: FROM, to: FROM + 1_000})
    const found = (['missing', 'doubled', 'repeated', 'incomplete'] as const).filter(
      (kind) => audit[kind].length > 0,
    )
    assert.deepEqual(found, expected)
    assert.equal(audit.planned, 1)
  })
