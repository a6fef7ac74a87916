/** The audit itself: it reports each kind of violation, and nothing else. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {explains} from '../../tools/faults/audit.ts'
import type {Fault} from '../../tools/faults/faults.ts'
import {auditLaunches, type Mark, type LaunchAudit} from '../../tools/faults/marks.ts'
import {auditNotices, type NoticeAudit, type Told} from '../../tools/faults/notices.ts'

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

/** Seconds from the start of the fault. */
const LOST_CASES: readonly (readonly [
  what: string,
  fault: readonly [kind: Fault['kind'], lasts: number],
  execution: readonly [reason: string, started: number, ended: number],
  isExplained: boolean,
])[] = [
  ['a run before a long freeze', ['freeze', 11], ['cut_off', -1, 11], true],
  [
    'a run that never started, at the end of a long freeze',
    ['freeze', 11],
    ['cut_off', 12, 12],
    true,
  ],
  ['a run that never started, after a short freeze', ['freeze', 5], ['cut_off', 6, 6], false],
  ['a run that never started, long after a freeze', ['freeze', 11], ['cut_off', 20, 20], false],
  ['a run that started after a freeze', ['freeze', 11], ['cut_off', 11.2, 12], false],
  [
    'a run that never started, of a node that failed',
    ['freeze', 11],
    ['node_failed', 12, 12],
    false,
  ],
  ['a run while the store is frozen', ['store frozen', 14], ['cut_off', 1, 13], true],
  ['a run after the store was frozen briefly', ['store frozen', 5], ['cut_off', 1, 5], false],
  [
    'a run of a node that failed without the store',
    ['store frozen', 14],
    ['node_lost', 1, 13],
    false,
  ],
  ['a run after a cut', ['cut from the servers', 11], ['cut_off', 12, 12], false],
]
for (const [what, [kind, lasts], [reason, started, ended], isExplained] of LOST_CASES)
  test(`${what}, ended as ${reason}, is ${isExplained ? '' : 'un'}explained`, () => {
    const at = (seconds: number) => new Date(FROM + seconds * 1_000).toISOString()
    const node = kind === 'store frozen' ? null : 'north'
    const fault = {kind, node, from: FROM, to: FROM + lasts * 1_000}
    const execution = {node_name: 'north', reason, started_at: at(started), finished_at: at(ended)}
    assert.equal(explains(fault, {forbids: true}, execution), isExplained)
  })

const SECOND = 1_000
const at = (second: number) => new Date(FROM + second * SECOND).toISOString()

function ended(launch: number, status: string, second = launch) {
  const times = {decided_at: at(second), ended_at: at(second)}
  return {job_name: 'any-1', decision: 'launched', group: launch, status, reason: '', ...times}
}

/** Message about an incident that opened at a second; `closing` = it closed then. */
function told(kind: string, second: number, closing?: number, more: Partial<Told> = {}): Told {
  const key = 'any-failed/any-1/failed'
  const closed = closing === undefined ? {} : {closed_at: at(closing)}
  const incident = {key, opened_at: at(second), launch: second, ...closed}
  const id = `${kind}-${second}`
  return {id, kind, repeat: false, summary: id, more: 0, incidents: [incident], ...more}
}

const DISABLED = told('opened', 900, undefined, {
  id: 'end',
  incidents: [{key: 'any-disabled/any-1/disabled', opened_at: at(900)}],
})
const RED = ended(10, 'failed')
const GREEN = ended(11, 'success')
const [OPENED, CLOSED] = [told('opened', 10), told('closed', 10, 11)]

const noticeCases: readonly (readonly [
  what: string,
  rows: readonly object[],
  received: readonly Told[],
  found: readonly (keyof NoticeAudit)[],
])[] = [
  ['red and green', [RED, GREEN], [OPENED, CLOSED, DISABLED], []],
  ['nothing but the end', [GREEN], [DISABLED], []],
  ['an end that is not told', [GREEN], [], ['missing']],
  ['a failure that is not told', [RED, GREEN], [DISABLED], ['missing']],
  ['a recovery that is not told', [RED, GREEN], [OPENED, DISABLED], ['missing']],
  [
    'a recovery before its opening',
    [RED, GREEN],
    [CLOSED, OPENED, DISABLED],
    ['missing', 'doubled'],
  ],
  ['a recovery that was none', [RED], [OPENED, CLOSED, DISABLED], ['missing']],
  [
    'a failure that was none',
    [GREEN],
    [told('opened', 5), told('closed', 5, 6), DISABLED],
    ['problems'],
  ],
  ['a success of an earlier launch', [RED, ended(9, 'success', 12)], [OPENED, DISABLED], []],
  [
    'two failures within a minute, in one message',
    [RED, GREEN, ended(12, 'failed'), ended(13, 'success')],
    [told('opened', 12), told('closed', 12, 13), DISABLED],
    [],
  ],
  [
    'a failure long before the message about the next one',
    [RED, GREEN, ended(200, 'failed'), ended(201, 'success')],
    [told('opened', 200), told('closed', 200, 201), DISABLED],
    ['missing'],
  ],
  ['a marked repetition', [RED, GREEN], [OPENED, {...OPENED, repeat: true}, CLOSED, DISABLED], []],
  ['a repetition without a mark', [RED, GREEN], [OPENED, OPENED, CLOSED, DISABLED], ['doubled']],
  [
    'two messages about one opening',
    [RED, GREEN],
    [OPENED, {...OPENED, id: 'other'}, CLOSED, DISABLED],
    ['doubled'],
  ],
]
for (const [what, rows, received, found] of noticeCases)
  test(`the audit of notices: ${what}`, () => {
    const audit = auditNotices(received, {rows, jobs: ['any-1'], faults: []})
    const lists = ['missing', 'doubled', 'problems'] as const
    assert.deepEqual(
      lists.filter((list) => audit[list].length > 0),
      found,
    )
  })
