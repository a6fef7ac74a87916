/** Explanations from made facts: due and undecided times, and rows of a store that was put back. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {definitionText} from '../../../src/core/job-fields.ts'
import {explain, type ExplainContext} from '../../../src/core/explain/explain.ts'
import type {ExplainFacts} from '../../../src/core/explain/facts.ts'
import {aJob, aLaunch, NOON} from '../../support/fixtures.ts'

const MINUTE = 60_000

const CONTEXT: ExplainContext = {
  defaultTarget: 'one',
  targetWaitMs: 10 * MINUTE,
  seesNodes: false,
  seesOutput: false,
  queuedMax: 100,
  mayRead: () => true,
}

const FACTS: ExplainFacts = {
  now: NOON,
  job: aJob('report')
    .scheduled('0 */10 * * * *')
    .due(NOON - 10 * MINUTE)
    .stored({createdAt: NOON - 60 * MINUTE, decidedUntil: NOON - 20 * MINUTE}).record,
  typicalMs: null,
  isParentDisabled: false,
  settings: {revision: 1, defaultZone: 'UTC', isPlanned: true, pauses: []},
  isPutBack: false,
  leaseUntil: NOON + 6_000,
  members: [],
  rowsTotal: 0,
  chosen: null,
  outputEnd: '',
  related: null,
  before: null,
  after: null,
  oldest: null,
  open: [],
  changes: [],
  spans: [],
}
const AT = {kind: 'at', text: '2026-03-01T11:50'} as const

const UNDECIDED: readonly (readonly [Partial<ExplainFacts>, why: string, command: string])[] = [
  [
    {isPutBack: true},
    'the store was put back from a backup, and firing is not resumed',
    'belfry resume',
  ],
  [{leaseUntil: null}, 'no server leads', 'belfry status'],
  [
    {leaseUntil: null, spans: [{kind: 'no_leader', from: NOON - 15 * MINUTE, until: null}]},
    'no server leads since 11:45:00',
    'belfry status',
  ],
  [{leaseUntil: NOON - MINUTE}, 'no server leads since 11:59:00', 'belfry status'],
  [
    {spans: [{kind: 'clock_held', from: NOON - MINUTE, until: null}]},
    'the clock of the store has jumped ahead, so times are held back since 11:59:00',
    'belfry status',
  ],
  [
    {settings: {...FACTS.settings, isPlanned: false}},
    'the jobs are being planned with a new default time zone',
    'belfry status',
  ],
  [{}, 'the leader decides it next', 'belfry status'],
]
for (const [facts, why, command] of UNDECIDED)
  test(`a due time is undecided: ${why}`, () => {
    const explained = explain({...FACTS, ...facts}, AT, CONTEXT)
    const sentence = `It was planned for 11:50:00 and is not decided yet: ${why}.`
    assert.deepEqual([explained.kind, explained.code], ['absent', 'undecided'])
    assert.deepEqual([explained.sentences, explained.commands], [[sentence], [command]])
    assert.deepEqual(explained.now, {state: 'waiting', sentences: [sentence]})
  })

test('a time between due ones is no planned time', () => {
  const {code} = explain(FACTS, {kind: 'at', text: '2026-03-01T11:55'}, CONTEXT)
  assert.equal(code, 'not_planned')
})

test('times that a restore passed over say when firing was resumed, and that they never run', () => {
  const launch = aLaunch(9)
    .decided('missed', 'restored')
    .with({scheduledAt: NOON - 40 * MINUTE, scheduledUntil: NOON - 20 * MINUTE, count: 3}).record
  const chosen = {launch, status: null, executions: []}
  const {code, sentences} = explain({...FACTS, chosen, rowsTotal: 1}, AT, CONTEXT)
  assert.equal(code, 'restored')
  assert.deepEqual(sentences, [
    '3 planned times from 11:20:00 to 11:40:00 did not run.',
    'The store was put back from a backup.',
    'Times before firing was resumed at 12:00:00 never run.',
  ])
})

test('tags that were changed since are named as they were, without advice about them', () => {
  const job = {...FACTS.job, spec: aJob('report').tagged({group: 'web'}).spec}
  const launch = aLaunch(9).with({
    decision: 'skipped',
    reason: 'no_target',
    decidedAt: NOON - 10 * MINUTE,
  }).record
  const change = {actor: 'alice', address: '', action: 'job.update', detail: ''}
  const changed = (ago: number, group: string) => ({
    ...change,
    at: NOON - ago * MINUTE,
    replaced: definitionText(aJob('report').tagged({group}).spec),
  })
  const changes = [changed(5, 'later'), changed(8, 'wbe'), changed(11, 'old')]
  const chosen = {launch, status: null, executions: []}
  const {sentences, advice, commands} = explain(
    {...FACTS, job, changes, chosen, rowsTotal: 1},
    AT,
    CONTEXT,
  )
  assert.match(sentences.join(' '), /group=wbe, and none took it\. Its tags were changed since\.$/)
  assert.deepEqual([advice, commands], ['', []])
})

test('the next times do not run while firing is not resumed', () => {
  const {next} = explain({...FACTS, isPutBack: true}, AT, CONTEXT)
  assert.equal(next.length, 3)
  for (const {unless} of next) assert.match(unless.join(), /^firing is not resumed before/)
})

test('an open launch is in the way until its typical end', () => {
  const job = {...FACTS.job, spec: aJob('report').scheduled('0 */10 * * * *').forbidding().spec}
  const launch = aLaunch(9).with({decidedAt: NOON - MINUTE}).record
  const open = [{launch, status: null, executions: []}]
  const {next} = explain({...FACTS, job, open, typicalMs: 15 * MINUTE}, AT, CONTEXT)
  const unless = 'launch 9 is still open; typically it ends at 12:14:00: then it is skipped'
  assert.deepEqual(
    next.map((each) => each.unless),
    [[unless], [], []],
  )
})

test('the end of output is shown to tokens that may read it, without blank lines', () => {
  const launch = aLaunch(9).record
  const chosen = {launch, status: 'failed' as const, executions: []}
  const facts = {...FACTS, chosen, rowsTotal: 1, outputEnd: 'first\nrelation "x" is missing\n\n'}
  const shown = explain(facts, AT, {...CONTEXT, seesOutput: true})
  assert.match(shown.sentences.join(' '), /The last line of its output: relation "x" is missing$/)
  assert.doesNotMatch(explain(facts, AT, CONTEXT).sentences.join(' '), /relation/)
})

test('the command that explains the parent is shown to tokens that may read it', () => {
  const job = {...FACTS.job, spec: aJob('report').childOf('load').spec, nextAt: null}
  const [all, own] = [true, false].map((may) =>
    explain({...FACTS, job}, AT, {...CONTEXT, mayRead: () => may}),
  )
  assert.deepEqual([all!.commands, own!.commands], [['belfry explain load'], []])
})

test('a parent that is disabled is named, unless the caller may not read it', () => {
  const job = aJob('load')
    .childOf('extract')
    .stored({createdAt: NOON - 60 * MINUTE}).record
  const facts = {...FACTS, job, isParentDisabled: true}
  const after = 'runs after extract succeeds, and extract is disabled.'
  const known = explain(facts, AT, CONTEXT)
  assert.deepEqual(known.sentences, [`The job has no planned times: it ${after}`])
  assert.deepEqual(known.now.sentences, ['Nothing runs or waits.', `It ${after}`])
  const hidden = explain(facts, AT, {...CONTEXT, mayRead: (name) => name !== 'extract'})
  assert.deepEqual(hidden.now.sentences, [
    'Nothing runs or waits.',
    'It runs after extract succeeds.',
  ])
})
