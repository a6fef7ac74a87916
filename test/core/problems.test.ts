/** Problems from made facts: which rows are one problem, whether it is over, and its sentence. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import type {ClusterEvent} from '../../src/core/cluster-event.ts'
import {END_REASONS} from '../../src/core/execution.ts'
import {headline} from '../../src/core/explain/headlines.ts'
import {LAUNCH_REASONS} from '../../src/core/launch-reasons.ts'
import type {LaunchRecord} from '../../src/core/launch-record.ts'
import type {
  AttemptFacts,
  LaterFacts,
  Problem,
  ProblemFacts,
  ProblemPage,
} from '../../src/core/problems/facts.ts'
import type {ProblemContext} from '../../src/core/problems/draft.ts'
import {problemsOf} from '../../src/core/problems/problems.ts'
import {parsePausedReason, pausedReason} from '../../src/core/firing.ts'
import {aJob, aLaunch, aNode, NOON} from '../support/fixtures.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE

const FACTS: ProblemFacts = {
  now: NOON,
  from: NOON - 8 * HOUR,
  to: NOON,
  zone: 'UTC',
  isPartial: false,
  notRun: [],
  openSpans: new Set(),
  failed: [],
  ends: [],
  endsOf: new Map(),
  pending: [],
  queued: [],
  running: [],
  late: [],
  due: [],
  later: new Map(),
  specs: new Map(),
  events: [],
  leaseUntil: NOON + 6_000,
  members: [],
  pauses: [],
  silentChannels: [],
  keptFrom: new Map(),
}
const CONTEXT: ProblemContext = {
  defaultTarget: 'one',
  seesNodes: true,
  isFiltered: false,
  isStoreDown: false,
}

const PAGE = {open: false, after: null, limit: 100}

const IDS = ['a', 'b', 'c', 'd', 'e']
function row(group: number, jobName: string, changes: Partial<LaunchRecord> = {}): LaunchRecord {
  const at = NOON - HOUR + group * 1_000
  const times = {scheduledAt: at, scheduledUntil: at, storedAt: at, decidedAt: at}
  const open = {open: false, jobId: IDS.indexOf(jobName) + 1, jobName}
  return aLaunch(group).with({cause: 'schedule', ...open, ...times, ...changes}).record
}
function notRun(
  group: number,
  jobName: string,
  reason: string,
  changes: Partial<LaunchRecord> = {},
): LaunchRecord {
  return row(group, jobName, {decision: 'skipped', reason, ...changes})
}
function failed(group: number, jobName: string, changes: Partial<LaunchRecord> = {}): LaunchRecord {
  const closedAt = NOON - HOUR + group * 1_000 + 500
  return row(group, jobName, {decision: 'launched', status: 'failed', closedAt, ...changes})
}
function ended(
  {group, jobId, jobName, closedAt, scheduledAt}: LaunchRecord,
  changes: Partial<AttemptFacts> = {},
): AttemptFacts {
  const times = {startedAt: scheduledAt, finishedAt: closedAt, notBefore: scheduledAt, scheduledAt}
  const end = {status: 'failed', reason: '', exitCode: 3} as const
  return {group, jobId, jobName, node: 'web-2', attempt: 1, ...times, ...end, ...changes}
}
function later(
  jobName: string,
  group: number,
  of: 'launched' | 'success' = 'launched',
): [number, LaterFacts] {
  const launch = {group, scheduledAt: NOON - MINUTE, at: NOON - MINUTE + 1}
  return [IDS.indexOf(jobName) + 1, {launched: null, success: null, [of]: launch}]
}
function event(
  kind: ClusterEvent['kind'],
  subject: string,
  from: number,
  until: number | null = null,
): ClusterEvent {
  return {id: from, at: NOON - from, kind, subject, detail: '', until: until && NOON - until}
}
const tagged = (...jobs: string[]) =>
  new Map(jobs.map((job) => [IDS.indexOf(job) + 1, [wanting(job, 'wbe')]]))
const wanting = (job: string, group: string, until = Infinity) => ({
  spec: aJob(job).tagged({group}).spec,
  until,
})

/** Kind, code, state, jobs, planned times and sentence of each problem. */
function told(facts: Partial<ProblemFacts>, context: Partial<ProblemContext> = {}) {
  const {problems, onPurpose} = problemsOf({...FACTS, ...facts}, {...CONTEXT, ...context}, PAGE)
  return [...problems, ...onPurpose].map(shown)
}
function shown({kind, code, isOver, jobs, plannedTimes, sentence}: Problem): string {
  const state = isOver ? 'over' : 'open'
  return `${kind} ${code} ${state} [${jobs.join(' ')}] ${plannedTimes}: ${sentence}`
}

test('skipped rows with equal tags are one problem, with the nearest tag; others are not', () => {
  const facts = {
    notRun: [
      notRun(5, 'c', 'no_target'),
      notRun(4, 'b', 'no_target', {count: 20}),
      notRun(3, 'a', 'no_target: 1 matching node is cordoned', {count: 41}),
    ],
    specs: tagged('a', 'b'),
    members: [aNode('web-1').tagged({group: 'web'}).record],
  }
  assert.deepEqual(told(facts), [
    'skipped no_target open [c] 1: No node took work within the wait.',
    'skipped no_target open [b a] 61: No node has group=wbe.',
  ])
  const [, problem] = problemsOf({...FACTS, ...facts}, CONTEXT, PAGE).problems
  assert.deepEqual(
    [problem!.cause['tags'], problem!.cause['nearest_tag'], problem!.launches],
    [{group: 'wbe'}, 'group=web', [4, 3]],
  )
  assert.equal(
    problem!.advice,
    'Nearest tag: group=web (1 node). Correct the tag, or start a node with --tag group=wbe.',
  )
  const blind = problemsOf({...FACTS, ...facts}, {...CONTEXT, seesNodes: false}, PAGE).problems[1]!
  assert.equal(blind.sentence, 'No node with group=wbe took work within the wait.')
  assert.doesNotMatch(
    JSON.stringify(blind),
    /=web/,
    'tags of nodes are for those who may list them',
  )
})

test('a tag that was corrected since is named as it was when no node had it', () => {
  const facts = {
    notRun: [notRun(4, 'a', 'no_target', {decidedAt: NOON - 10 * MINUTE})],
    specs: new Map([
      [
        1,
        [
          wanting('a', 'old', NOON - 20 * MINUTE),
          wanting('a', 'wbe', NOON - 5 * MINUTE),
          wanting('a', 'web'),
        ],
      ],
    ]),
    members: [aNode('web-1').tagged({group: 'web'}).record],
    later: new Map([later('a', 9)]),
  }
  assert.deepEqual(told(facts), ['skipped no_target over [a] 1: No node has group=wbe.'])
})

test('a problem is over when each of its jobs was launched later, and not before', () => {
  const rows = [notRun(4, 'b', 'behind'), notRun(3, 'a', 'behind')]
  const facts = {notRun: rows, specs: tagged('a', 'b')}
  const state = (...launched: [number, LaterFacts][]) =>
    problemsOf({...FACTS, ...facts, later: new Map(launched)}, CONTEXT, PAGE).problems[0]!
  assert.equal(state(later('a', 9)).isOver, false)
  const over = state(later('a', 9), later('b', 8))
  assert.deepEqual([over.isOver, over.until, over.advice], [true, NOON - MINUTE + 1, ''])
  assert.equal(
    state(later('a', 9), later('b', 2)).isOver,
    false,
    'an earlier launch proves nothing',
  )
})

test('a chain is one problem: what failed, and the dependents that did not run', () => {
  const load = failed(20, 'b', {rootGroup: 10, parentGroup: 10})
  const chain = {rootGroup: 10, cause: 'parent'} as const
  const facts = {
    failed: [load],
    ends: [ended(load)],
    notRun: [
      notRun(22, 'd', 'parent_skipped: launch 21 of c was skipped', {...chain, parentGroup: 21}),
      notRun(21, 'c', 'parent_failed: launch 20 of b ended failed', {...chain, parentGroup: 20}),
    ],
  }
  assert.deepEqual(told(facts), ['failed failed open [b c d] 1: b failed: exit code 3.'])
  const [problem] = problemsOf({...FACTS, ...facts}, CONTEXT, PAGE).problems
  assert.deepEqual([problem!.cause['dependents'], problem!.launches], [2, [20]])
  const over = told({...facts, later: new Map([later('b', 30, 'success')])})
  assert.deepEqual(over, ['failed failed over [b c d] 1: b failed: exit code 3.'])
})

test('a dependent is folded under the root of its chain if its parent may not be read', () => {
  const load = failed(20, 'b')
  const reason = 'parent_skipped: launch 21 of secret was skipped'
  const hidden = notRun(22, 'd', reason, {rootGroup: 20, parentGroup: 21, cause: 'parent'})
  assert.deepEqual(told({failed: [load], ends: [ended(load)], notRun: [hidden]}), [
    'failed failed open [b d] 1: b failed: exit code 3.',
  ])
  assert.deepEqual(told({notRun: [hidden]}), [
    'skipped parent_skipped open [d] 1: Its parent did not run, so d did not run.',
  ])
  const cancelled = {...hidden, reason: 'parent_failed: launch 21 of secret was cancelled'}
  assert.deepEqual(told({notRun: [cancelled]}), [
    'on_purpose parent_failed over [d] 1: Its parent did not succeed, so d did not run.',
  ])
})

test('failures in the same way are one problem, another exit code is another', () => {
  const [one, two, three] = [failed(1, 'a'), failed(2, 'a'), failed(3, 'a')]
  const facts = {
    failed: [three, two, one],
    ends: [ended(three, {exitCode: 1}), ended(two), ended(one)],
    later: new Map([later('a', 3, 'success')]),
  }
  assert.deepEqual(told(facts), [
    'failed failed open [a] 1: a failed: exit code 1.',
    'failed failed over [a] 2: a failed: exit code 3.',
  ])
})

test('launches of one chain that fail are one problem', () => {
  const chain = {rootGroup: 10, parentGroup: 10}
  const [load, index] = [failed(20, 'b', chain), failed(21, 'c', chain)]
  const late = {status: 'timed_out', exitCode: null} as const
  assert.deepEqual(told({failed: [index, load], ends: [ended(index, late), ended(load)]}), [
    'failed failed open [b c] 2: b failed: exit code 3. c failed as well.',
  ])
  assert.deepEqual(told({failed: [index], ends: [ended(index, late)]}), [
    'failed timed_out open [c] 1: c failed: its time-out was over.',
  ])
})

test('attempts lost with a node are one problem, with its failure and the launches that failed', () => {
  const lost = {status: 'lost', reason: 'node_lost', exitCode: null} as const
  const [one, two] = [failed(1, 'a', {status: 'success'}), failed(2, 'b')]
  const facts = {
    failed: [two],
    ends: [ended(two, lost), ended(one, lost)],
    endsOf: new Map([
      [1, {open: false, status: 'success', closedAt: NOON}],
      [2, {open: false, status: 'failed', closedAt: NOON}],
    ] as const),
    events: [event('node_failed', 'web-2', HOUR)],
  }
  const lostOn = '2 executions of 2 jobs were lost on web-2: the node stopped sending heartbeats.'
  const ends = 'Of the launches, 1 succeeded since and 1 failed.'
  assert.deepEqual(told(facts), [
    `lost node_lost open [a b] 2: ${lostOn} ${ends} web-2 failed, and is not back.`,
  ])
  const back = {
    ...facts,
    events: [event('node_failed', 'web-2', HOUR, MINUTE)],
    later: new Map([later('b', 9, 'success')]),
  }
  assert.deepEqual(told(back), [`lost node_lost over [a b] 2: ${lostOn} ${ends}`])
  const late = {...lost, finishedAt: NOON}
  assert.equal(told({...facts, ends: [ended(two, lost), ended(one, late)]}).length, 2, '90 s apart')
  const outage = {...lost, reason: 'node_outage'}
  const two_nodes = [ended(two, {...outage, node: 'web-3'}), ended(one, outage)]
  assert.equal(told({...facts, events: [], ends: two_nodes}).length, 1, 'nodes lost together')
})

test('planned times around a time without a leader are part of it, with the leader that ended', () => {
  const between = {decidedAt: NOON - 10 * MINUTE, scheduledAt: NOON - 15 * MINUTE}
  const until = {scheduledUntil: NOON - 11 * MINUTE}
  const facts = {
    events: [
      event('term_began', 'srv-b', 11 * MINUTE),
      event('no_leader', '', 20 * MINUTE, 11 * MINUTE),
      event('node_failed', 'srv-a', 21 * MINUTE),
      event('term_began', 'srv-a', 9 * HOUR),
    ],
    notRun: [
      notRun(8, 'a', 'catch_up_skip', {decision: 'missed', count: 5, ...between, ...until}),
      notRun(7, 'b', 'max_lateness', {decision: 'missed', decidedAt: NOON - 2 * HOUR}),
    ],
    late: [row(9, 'c', {decision: 'launched', ...between})],
  }
  const led = 'No server led for 9m. srv-a ended, srv-b took over.'
  const away = 'srv-a failed, and is not back.'
  const times = '1 planned time was late, 5 missed.'
  const missed = 'Planned times of b were decided too late to run.'
  assert.deepEqual(told(facts), [
    `cluster no_leader open [a c] 6: ${led} ${away} ${times}`,
    `missed max_lateness open [b] 1: ${missed}`,
  ])
  const back = facts.events.map((each) => ({...each, until: each.until ?? NOON}))
  assert.deepEqual(told({...facts, events: back, later: new Map([later('a', 9)])}), [
    `missed max_lateness open [b] 1: ${missed}`,
    `cluster no_leader over [a c] 6: ${led} ${times}`,
  ])
  assert.deepEqual(told({...facts, notRun: [], late: []}, {seesNodes: false}), [
    'cluster no_leader over [] 0: No server led for 9m.',
  ])
  const [span] = facts.events.filter(({kind}) => kind === 'no_leader')
  const full = {...span!, at: NOON - 8 * MINUTE, until: NOON - 7 * MINUTE, detail: 'store'}
  assert.deepEqual(
    told({events: [full, ...back]}),
    [
      'cluster no_leader over [] 0: No server led for 1m, because the store took no writes.',
      'cluster no_leader over [] 0: No server led for 9m. srv-a ended, srv-b took over.',
    ],
    'each cause is a problem of its own',
  )
  const short = [event('no_leader', '', 1_000, 500)]
  assert.deepEqual(told({events: short}), [], 'too short for anyone to notice')
})

test('an expired lease is a problem before the next leader records it', () => {
  const due = [{jobName: 'a', at: NOON - 2 * MINUTE}]
  assert.deepEqual(told({leaseUntil: NOON - 5_000, due}), [
    'cluster no_leader open [a] 1: No server has led for 5s: nothing is launched. ' +
      'Planned times of 1 job are due, and not decided.',
  ])
  assert.deepEqual(told({leaseUntil: NOON - 5_000, due}, {isStoreDown: true}), [
    'cluster store open [a] 1: The store cannot be written: nothing is launched, and no result is stored.',
  ])
  assert.deepEqual(told({due}), [
    'late undecided open [a] 1: Planned times of 1 job are due, and not decided.',
  ])
})

test('other events of the cluster, and channels that are silent for an hour', () => {
  const channel = (since: number) => ({name: 'mail', since: NOON - since, error: '451 later'})
  const facts = {
    events: [
      event('node_failed', 'web-1', MINUTE),
      event('node_failed', 'web-1', HOUR, 5 * MINUTE),
      event('node_joined', 'web-9', HOUR),
      event('store_restored', '', 2 * MINUTE),
      event('clock_held', '', 30 * MINUTE, 10 * MINUTE),
    ],
    silentChannels: [channel(2 * HOUR)],
  }
  assert.deepEqual(told(facts), [
    'cluster node_failed open [] 0: web-1 failed, and is not back.',
    'cluster store_restored open [] 0: The store was put back from a backup, and firing is not resumed: ' +
      'nothing is launched.',
    'cluster notices_failing open [] 0: The channel mail of notices delivers nothing.',
    'cluster clock_held over [] 0: The clock of the store had jumped ahead: planned times were held ' +
      'back for 20m.',
  ])
  assert.deepEqual(
    told(facts, {isFiltered: true}).map((text) => text.split(' ', 2)[1]),
    ['store_restored'],
    'a list of some jobs has only what stops all of them',
  )
  assert.deepEqual(told({silentChannels: [channel(MINUTE)]}), [])
})

test('what waits is late, and after 10 minutes a problem of its own', () => {
  const wait = (group: number, jobName: string, reason: string, minutes: number) =>
    row(group, jobName, {
      decision: 'pending',
      reason,
      decidedAt: null,
      storedAt: NOON - minutes * MINUTE,
    })
  const attempt = {...ended(row(9, 'e')), status: 'pending', finishedAt: null} as const
  assert.deepEqual(
    told({
      pending: [
        wait(1, 'a', 'waits_for_node', 11),
        wait(2, 'b', 'waits_for_node', 12),
        wait(3, 'c', 'waits_for_open', 2),
        wait(4, 'd', '', 2),
      ],
      specs: tagged('a', 'b'),
      queued: [
        {...attempt, notBefore: NOON - 11 * MINUTE},
        {...attempt, group: 10, notBefore: NOON - 2 * MINUTE, node: 'web-3'},
      ],
    }).toSorted(),
    [
      'late  open [d] 1: Planned times of 1 job are due, and not decided.',
      'late waits_for_open open [c] 1: c waits for an earlier launch to end.',
      'late waits_for_slot open [e] 1: 1 execution waits for a free slot of web-3.',
      'waiting waits_for_node open [a b] 2: 2 jobs wait for a node with group=wbe.',
      'waiting waits_for_slot open [e] 1: 1 execution waits for a free slot of web-2.',
    ],
  )
})

test('an attempt that runs for long, and one that started late', () => {
  const running = (
    jobName: string,
    startedAt: number,
    lateMs: number,
    typicalMs: number | null,
  ) => ({
    ...ended(row(9, jobName)),
    status: 'running' as const,
    startedAt,
    finishedAt: null,
    scheduledAt: startedAt - lateMs,
    typicalMs,
  })
  assert.deepEqual(
    told({
      running: [
        running('a', NOON - 3 * HOUR, 0, 30 * MINUTE),
        running('b', NOON - HOUR, 0, 20 * MINUTE),
        running('c', NOON - 9 * MINUTE, 0, MINUTE),
        running('d', NOON - MINUTE, 5 * MINUTE, null),
      ],
    }),
    [
      'long long open [a] 1: a runs for 3h, 6 times its typical 30m.',
      'late started_late over [d] 1: 1 execution started up to 5m late on web-2.',
    ],
  )
})

test('what a person meant is apart, by person and pause; what Belfry disabled is a problem', () => {
  const by = (name: string) => `disabled: by ${name} since 2026-03-01T10:00:00.000Z`
  const pause = {jobs: '*', reason: 'new "storage"', pausedAt: 0, pausedBy: 'ops', until: NOON}
  const facts = {
    notRun: [
      notRun(9, 'a', by('alice'), {count: 5}),
      notRun(8, 'b', by('alice'), {count: 47}),
      notRun(7, 'c', pausedReason(pause), {count: 3}),
      notRun(6, 'd', by('belfry'), {count: 4}),
      notRun(5, 'd', 'quarantined: nodes died while executing launch 4', {cause: 'manual'}),
      notRun(4, 'e', 'edited', {decision: 'missed'}),
    ],
    openSpans: new Set([9, 8, 6]),
  }
  assert.deepEqual(told(facts).toSorted(), [
    'on_purpose disabled open [a b] 52: alice disabled 2 jobs.',
    'on_purpose edited over [e] 1: A change of e moved the schedule past due times.',
    'on_purpose firing_paused over [c] 3: Firing was paused by ops: "new "storage"".',
    'skipped quarantined open [d] 4: Belfry disabled d: nodes died while executing it.',
  ])
  assert.equal(
    problemsOf({...FACTS, ...facts}, CONTEXT, PAGE).notOver,
    1,
    'on purpose does not count',
  )
  for (const each of [pause, {...pause, reason: '', until: null}]) {
    const detail = pausedReason(each).slice('firing_paused: '.length)
    const {text, by: author, until} = parsePausedReason(detail)
    assert.deepEqual([text, author, until], [each.reason, 'ops', each.until])
  }
})

test('no headline has a code, also not one of another release', () => {
  const codes = [...Object.keys(LAUNCH_REASONS), ...Object.keys(END_REASONS)]
  for (const code of [...Object.keys(LAUNCH_REASONS), 'code_of_another_release'])
    for (const detail of ['', ': by ops', ': something'])
      for (const jobs of [['a'], ['a', 'b']]) {
        const sentence = headline(`${code}${detail}`, {jobs, total: jobs.length, known: {}})
        assert.match(sentence, /^\S.*\.$/)
        for (const bare of [
          ...codes.filter((each) => each.includes('_')),
          'code_of_another_release',
        ])
          assert.doesNotMatch(sentence, new RegExp(`\\b${bare}\\b`))
      }
})

test('the order: not over first, then the cluster, then the newest; pages follow it', () => {
  const facts = {
    ...FACTS,
    events: [event('node_failed', 'web-1', HOUR), event('clock_held', '', HOUR, MINUTE)],
    notRun: [
      notRun(4, 'd', 'edited'),
      notRun(3, 'c', 'forbid'),
      notRun(2, 'b', 'forbid'),
      notRun(1, 'a', 'forbid'),
    ],
    later: new Map([later('b', 9)]),
    keptFrom: new Map([[1, NOON - HOUR]]),
  }
  const names = (problems: readonly Problem[]) => problems.map(({code, jobs}) => jobs[0] ?? code)
  const all = problemsOf(facts, CONTEXT, PAGE)
  assert.deepEqual(names(all.problems), ['node_failed', 'c', 'a', 'clock_held', 'b'])
  assert.deepEqual([all.next, all.oldest, all.notOver], [null, NOON - HOUR, 3])
  const open = problemsOf(facts, CONTEXT, {...PAGE, open: true})
  assert.deepEqual([names(open.problems), open.onPurpose], [['node_failed', 'c', 'a'], []])
  const paged: string[] = []
  for (let after: ProblemPage['after'] = null, page = 0; page < 3; page += 1) {
    const {problems, onPurpose, next, notOver} = problemsOf(facts, CONTEXT, {
      ...PAGE,
      after,
      limit: 2,
    })
    assert.deepEqual([onPurpose.length, notOver], [page === 0 ? 1 : 0, 3])
    paged.push(...names(problems))
    assert.equal(next === null, page === 2)
    after = next
  }
  assert.deepEqual(paged, names(all.problems))
})

test('pages: none twice and none left out while old rows are deleted and losses end', () => {
  const at = (minutes: number) => ({scheduledAt: NOON - minutes * MINUTE})
  const notRuns = [
    notRun(9, 'c', 'forbid', at(1)),
    notRun(8, 'b', 'forbid', at(2)),
    notRun(7, 'a', 'forbid', at(3)),
    notRun(2, 'c', 'forbid', at(50)),
    notRun(1, 'a', 'forbid', at(60)),
  ]
  const lost = {
    ...ended(failed(4, 'd'), {status: 'lost', reason: 'node_lost'}),
    finishedAt: NOON - 5,
  }
  const open = {open: true, status: null, closedAt: null}
  const first = {
    ...FACTS,
    notRun: notRuns,
    ends: [lost],
    endsOf: new Map([[4, open]]),
    events: [event('node_failed', 'web-2', MINUTE)],
    queued: [ended(failed(5, 'e'), {status: 'pending', notBefore: NOON - HOUR})],
  }
  // The same range: the oldest rows are deleted, the lost launch has ended, and the node is back.
  const second = {
    ...first,
    now: NOON + HOUR,
    notRun: notRuns.slice(0, 3),
    endsOf: new Map([[4, {open: false, status: 'failed', closedAt: NOON + 1} as const]]),
    events: [event('node_failed', 'web-2', MINUTE, -MINUTE)],
    queued: [ended(failed(5, 'e'), {status: 'pending', notBefore: NOON - MINUTE * 20})],
  }
  const names = problemsOf(first, CONTEXT, PAGE).problems.map(({jobs}) => jobs[0])
  assert.deepEqual(new Set(names), new Set(IDS))
  for (let size = 1; size < names.length; size += 1) {
    const page = problemsOf(first, CONTEXT, {...PAGE, limit: size})
    const rest = problemsOf(second, CONTEXT, {...PAGE, after: page.next})
    const seen = [...page.problems, ...rest.problems].map(({jobs}) => jobs[0])
    assert.deepEqual(seen, names, `after ${size}`)
  }
})
