/** Sentences for each reason of a launch and of an execution: which facts they name, and no bare code. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {END_REASONS, FINAL_STATUSES} from '../../../src/core/execution.ts'
import {executionSentence, launchedTold} from '../../../src/core/explain/executions.ts'
import type {
  Around,
  ExecutionFacts,
  LaunchFacts,
  RelatedLaunch,
} from '../../../src/core/explain/facts.ts'
import {nodeFacts} from '../../../src/core/explain/nodes.ts'
import {launchNamedIn, reasonTold} from '../../../src/core/explain/reasons.ts'
import {wordsIn} from '../../../src/core/explain/words.ts'
import {LAUNCH_REASONS, type Reason, reasonCode} from '../../../src/core/launch-reasons.ts'
import {aJob, aNode, anExecution, NOON} from '../../support/fixtures.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
/** Noon is 13:00 in Berlin. */
const words = wordsIn('Europe/Berlin', NOON)

/** Planned for noon there, decided ten minutes later. */
const ROW: LaunchFacts = {
  group: 9,
  jobName: 'report',
  cause: 'schedule',
  decision: 'skipped',
  reason: '',
  scheduledAt: NOON - HOUR,
  scheduledUntil: NOON - HOUR,
  count: 1,
  storedAt: NOON - HOUR,
  decidedAt: NOON - 50 * MINUTE,
}
const onNode = (node: string) => anExecution().with({node, group: 7})

function other(jobName: string, changes: Partial<RelatedLaunch> = {}): RelatedLaunch {
  const launch = {...ROW, group: 7, jobName, decidedAt: NOON - 2 * HOUR}
  return {group: 7, jobName, launch, executions: [], status: null, ...changes}
}

const WEB = aNode('web-1').tagged({group: 'web'}).record
const TAGGED = aJob('report').tagged({group: 'wbe:2'}).spec
const change = {at: NOON - 3 * HOUR, actor: 'alice', address: '10.0.0.7'}
const span = {kind: 'no_leader', from: NOON - HOUR, until: NOON - 51 * MINUTE}
const instead = {group: 11, scheduledAt: NOON - 55 * MINUTE}
const pause = {
  jobs: 'rep*',
  reason: 'new storage',
  pausedAt: NOON - 2 * HOUR,
  pausedBy: 'ops',
  until: NOON + HOUR,
}
const since = new Date(NOON - 3 * HOUR).toISOString()

/** Stored reason, other facts, and what is said; each code has a row without facts and one with them. */
const TABLE: readonly (readonly [reason: string, known: Around, sentences: string])[] = [
  [
    'forbid: launch 7 is still open',
    {},
    'Launch 7 was open, and launches of this job must not overlap.',
  ],
  [
    `forbid: the launch planned at ${since} is still open`,
    {},
    'The launch planned for 10:00:00 was open, and launches of this job must not overlap.',
  ],
  [
    'forbid: launch 7 is still open',
    {related: other('report', {executions: [onNode('web-1').running().record]})},
    'Launch 7 was open since 11:00:00 on web-1, and launches of this job must not overlap. ' +
      'It is still open.',
  ],
  [
    'forbid: launch 7 is still open',
    {related: other('report', {status: 'partially_failed'})},
    'Launch 7 was open since 11:00:00, and launches of this job must not overlap. ' +
      'It failed on some of its nodes since.',
  ],
  ['no_target', {}, 'It waited 10m for a node that matches its tags, and none took it.'],
  [
    'no_target: 1 matching node is cordoned',
    {spec: TAGGED, nodes: nodeFacts(TAGGED.tags, [WEB], 'one')},
    'It waited 10m for a node with group=wbe, and none took it. ' +
      'At the end: 1 matching node is cordoned. ' +
      'No member has these tags. Nearest tag: group=web (1 node).',
  ],
  ['disabled', {}, 'The job was disabled.'],
  [`disabled: by alice since ${since}`, {}, 'alice disabled it at 10:00:00.'],
  ['disabled', {change}, 'alice disabled it at 10:00:00 from 10.0.0.7.'],
  ['firing_paused', {}, 'Firing of report was paused.'],
  [
    'firing_paused',
    {pause},
    'Firing of rep* was paused by ops from 11:00:00 until 14:00:00: "new storage".',
  ],
  ['outside_window', {}, 'Its parent ended outside of the time in which the job runs.'],
  [
    'outside_window',
    {spec: aJob().between(NOON, NOON + HOUR).spec},
    'Its parent ended at 12:00:00; the job runs from 13:00:00 until 14:00:00.',
  ],
  ['max_lateness', {}, 'It was decided at 12:10:00, 10m late. That was later than the job allows.'],
  [
    'max_lateness',
    {spec: aJob().catchingUp('skip', '5m').spec, span},
    'It was decided at 12:10:00, 10m late. No server led from 12:00:00 to 12:09:00. ' +
      'The job runs planned times that are at most 5m late.',
  ],
  [
    'catch_up_skip',
    {span: {...span, kind: 'clock_held'}},
    'It was decided at 12:10:00, 10m late. Planned times were held back from 12:00:00 to 12:09:00: ' +
      'the clock of the store had jumped ahead. The job does not catch up missed times.',
  ],
  [
    'catch_up_latest',
    {instead},
    'It was decided at 12:10:00, 10m late. ' +
      'Only the newest missed time ran: launch 11, planned for 12:05:00.',
  ],
  [
    'catch_up_cap',
    {},
    'It was decided at 12:10:00, 10m late. ' +
      'More times were missed than a job catches up, and the newest ran.',
  ],
  ['edited', {}, 'A change of the job moved the schedule past it while it was due.'],
  [
    'edited',
    {change},
    'A change of the job by alice at 10:00:00 moved the schedule past it while it was due.',
  ],
  [
    'restored',
    {},
    'The store was put back from a backup. Times before firing was resumed at 12:10:00 never run.',
  ],
  [
    'quarantined: nodes died while executing launch 7; the job was disabled',
    {},
    'Two nodes died while executing launch 7. Belfry disabled the job.',
  ],
  [
    'quarantined: nodes died while executing launch 7; the job was disabled',
    {
      related: other('report', {
        executions: ['web-1', 'web-2'].map((node) => onNode(node).lost().record),
      }),
    },
    'Nodes web-1 and web-2 died while executing launch 7. Belfry disabled the job.',
  ],
  [
    'schedule_unreadable: the schedule "x" in the zone "Mars" cannot be read',
    {},
    'Its planned times are undecided: the schedule "x" in the zone "Mars" cannot be read.',
  ],
  [
    'undecidable: the definition is damaged',
    {},
    'Its planned times cannot be decided: the definition is damaged.',
  ],
  ['waits_for_open', {}, 'It waits for the previous launch to end.'],
  [
    'waits_for_open',
    {related: other('report', {executions: [onNode('web-1').running().record]})},
    'It waits for launch 7, open since 11:00:00 on web-1.',
  ],
  [
    'behind',
    {queuedMax: 100},
    '100 earlier launches of it waited for a free slot. ' +
      'Its nodes start them more slowly than the schedule plans them.',
  ],
  [
    'edited',
    {change, changed: ['schedule', 'timezone']},
    'A change of schedule and timezone by alice at 10:00:00 moved the schedule past it while it was due.',
  ],
  [
    'behind',
    {},
    'Too many earlier launches of it waited for a free slot. ' +
      'Its nodes start them more slowly than the schedule plans them.',
  ],
  ['waits_for_node', {}, 'It waits for a node that matches its tags since 12:00:00.'],
  [
    'waits_for_node',
    {
      spec: aJob().tagged({group: 'web'}).spec,
      nodes: {
        matching: 0,
        cordoned: ['web-1'],
        gone: [{name: 'web-2', since: NOON - 2 * HOUR}],
        nearest: null,
      },
    },
    'It waits for a node with group=web since 12:00:00. web-1 is cordoned. web-2 is gone since 11:00:00.',
  ],
  ['parent_failed: launch 7 of load ended failed', {}, 'Its parent did not succeed.'],
  [
    'parent_failed: launch 7 of load ended failed',
    {parent: other('load', {status: 'failed', executions: [onNode('web-1').failed().record]})},
    'load failed in launch 7. Attempt 1 on web-1 failed after 1s: exit code 1.',
  ],
  ['parent_skipped: launch 7 of load was skipped: forbid', {}, 'Its parent did not run.'],
  [
    'parent_skipped: launch 7 of load was skipped: forbid',
    {parent: other('load', {launch: {...ROW, jobName: 'load', reason: 'forbid'}})},
    'load did not run (launch 7). Another launch was open, and launches of this job must not overlap.',
  ],
]

for (const [reason, known, sentences] of TABLE) {
  const facts = Object.keys(known).join(', ')
  test(`${reason} is said with ${facts === '' ? 'the row alone' : facts}`, () => {
    assert.equal(reasonTold({...ROW, reason}, known, words).sentences.join(' '), sentences)
  })
}

test('each reason of a launch has its sentences in the table', () => {
  const codes = new Set(TABLE.map(([reason]) => reasonCode(reason)))
  assert.deepEqual(codes, new Set(Object.keys(LAUNCH_REASONS)))
})

/** Codes that are no words of a sentence. */
const CODES = [...Object.keys(LAUNCH_REASONS), ...Object.keys(END_REASONS), ...FINAL_STATUSES]
  .concat('partially_failed')
  .filter((code) => code.includes('_') || code === 'forbid')

function assertNoCode(sentences: readonly string[]): void {
  for (const sentence of sentences) {
    assert.match(sentence, /^[A-Za-z0-9].*\.$/, 'is a sentence')
    for (const code of CODES) assert.ok(!sentence.includes(code), `${code} in: ${sentence}`)
  }
}

test('no sentence about a launch shows a code', () => {
  for (const [reason, known] of TABLE) {
    const {sentences, advice} = reasonTold({...ROW, reason}, known, words)
    assertNoCode(sentences)
    assert.match(advice ?? 'Nothing.', /^[A-Z].*\.$/)
  }
  for (const code of Object.keys(LAUNCH_REASONS) as Reason[])
    assertNoCode(reasonTold({...ROW, reason: code, decidedAt: null}, {}, words).sentences)
})

test('each bad end of an execution is a sentence with its cause, and no code', () => {
  for (const [code, clause] of Object.entries(END_REASONS)) {
    const sentence = executionSentence(anExecution().lost(code).record, words)
    assert.equal(sentence, `Attempt 1 on node-a was lost at 13:00:01: ${clause}.`)
    assertNoCode([sentence])
  }
})

const ATTEMPTS: readonly (readonly [ExecutionFacts, string])[] = [
  [anExecution().pending().record, 'Attempt 1 on node-a waits for a free slot.'],
  [
    anExecution()
      .pending()
      .with({attempt: 2, notBefore: NOON + MINUTE}).record,
    'Attempt 2 on node-a starts at 13:01:00 or later.',
  ],
  [anExecution().running().record, 'Attempt 1 on node-a runs since 13:00:00.'],
  [anExecution().succeeded().record, 'Attempt 1 on node-a succeeded after 1s.'],
  [anExecution().failed().record, 'Attempt 1 on node-a failed after 1s: exit code 1.'],
  [
    anExecution().timedOut().record,
    'Attempt 1 on node-a was stopped after 1s: its time-out was over.',
  ],
  [anExecution().cancelled().record, 'Attempt 1 on node-a was cancelled after 1s.'],
  [
    anExecution().lost().with({lateResult: 'succeeded'}).record,
    'Attempt 1 on node-a was lost at 13:00:01: the node stopped sending heartbeats. ' +
      'Its result came later: succeeded.',
  ],
]
for (const [execution, sentence] of ATTEMPTS)
  test(`an attempt is said: ${sentence}`, () => {
    assert.equal(executionSentence(execution, words), sentence)
    assertNoCode([sentence])
  })

test('a launch is said with its lateness, nodes, end and length against the typical one', () => {
  const launch = {...ROW, decision: 'launched'} as const
  const {record} = onNode('web-1').failed()
  const failed = {...record, startedAt: NOON - 50 * MINUTE, finishedAt: NOON - 20 * MINUTE}
  const told = launchedTold(launch, [failed], 'failed', {typicalMs: 10 * MINUTE}, words)
  assert.deepEqual(told.sentences, [
    'It was planned for 12:00:00, launched 10m later on web-1, and failed after 30m (3× typical).',
    'Attempt 1 on web-1 failed after 30m: exit code 1.',
  ])
  assert.deepEqual(told.commands, ['belfry runs output report 9-web-1-1'])
  assert.equal(told.facts!['duration_ms'], 30 * MINUTE)
})

test('a launch that succeeded at once is one sentence, without advice', () => {
  const launch = {...ROW, cause: 'manual', decision: 'launched', decidedAt: NOON - HOUR} as const
  const told = launchedTold(launch, [onNode('a').succeeded().record], 'success', {}, words)
  assert.deepEqual(told.sentences, [
    'It was requested at 12:00:00, launched on a, and succeeded after 1s.',
  ])
  assert.equal(told.advice, undefined)
})

test('a pause that is in force, and a job that is disabled, get the command that ends it', () => {
  const paused = reasonTold({...ROW, reason: 'firing_paused'}, {pause}, words)
  assert.deepEqual(paused.commands, ["belfry unpause --firing --jobs 'rep*'"])
  const disabled = reasonTold({...ROW, reason: 'disabled'}, {spec: aJob().disabled().spec}, words)
  assert.deepEqual(disabled.commands, ['belfry jobs enable report'])
  const enabled = reasonTold({...ROW, reason: 'disabled'}, {spec: aJob().spec}, words)
  assert.equal(enabled.commands, undefined)
})

test('nodes are matching, cordoned, gone, and a tag that is spelt nearly', () => {
  const members = [
    WEB,
    aNode('web-2').tagged({group: 'web'}).record,
    {...aNode('web-3').tagged({group: 'web'}).record, cordonedAt: NOON},
    {...aNode('web-4').tagged({group: 'web'}).record, status: 'failed' as const},
    {...aNode('server').tagged({group: 'web'}).record, runs: false},
  ]
  assert.deepEqual(nodeFacts({group: 'web'}, members, 'one'), {
    matching: 2,
    cordoned: ['web-3'],
    gone: [{name: 'web-4', since: members[3]!.heartbeatAt}],
    nearest: null,
  })
  const missing = nodeFacts({group: 'wbe'}, members, 'one')
  assert.deepEqual(missing.nearest, {tag: 'group=web', nodes: 4})
  assert.equal(nodeFacts({gpu: 'large'}, members, 'one').nearest, null)
})

test('times are of the zone, with their date on other days; stored instants too', () => {
  assert.equal(words.time(NOON), '13:00:00')
  assert.equal(words.time(NOON - 13 * HOUR - 1), '2026-02-28 23:59:59')
  assert.equal(words.text(`until ${since}`), 'until 10:00:00')
  assert.equal(launchNamedIn('forbid: launch 12 is still open'), 12)
  assert.equal(launchNamedIn('forbid'), null)
})
