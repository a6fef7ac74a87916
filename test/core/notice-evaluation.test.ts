/** Evaluation of notices: tables of sequences of facts, and laws that hold for every sequence. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {
  type Evaluated,
  evaluateNotices,
  type NewNotice,
  type NoticeMute,
  type Sweep,
} from '../../src/core/notice-evaluation.ts'
import type {Incident, NoticeFact} from '../../src/core/notice-incidents.ts'
import {compileRule, RULE_DEFAULTS, type RuleDefinition} from '../../src/core/notice-rule.ts'
import {SeededRandom} from '../support/seeded-random.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const START = Date.parse('2026-11-23T12:00:00Z')

function aRule(fields: Partial<RuleDefinition> = {}): RuleDefinition {
  const when = {failed: {}}
  return {...RULE_DEFAULTS, name: 'rule', to: ['mail'], when, repeat: 'never', ...fields}
}

const WHO = {owner: '', metadata: {}}

/** Turns letters into facts of a job, each with its launch. `streaks` continues over calls. */
function factsOf(letters: string, at: number, everyMs: number, name = 'load'): NoticeFact[] {
  let streak = 0
  return [...letters.replaceAll(' ', '')].map((letter, index) => {
    if (letter === 'R') streak += 1
    if (letter === 'G') streak = 0
    const base = {
      at: at + index * everyMs,
      job: {...WHO, name},
      launch: index + 1,
      execution: '',
      sentence: `It ended ${letter}.`,
      cause: 'exit status 3',
    }
    const ended = {...base, kind: 'ended', streak, hasOutput: false} as const
    switch (letter) {
      case 'R':
        return {...ended, status: 'failed'}
      case 'G':
        return {...ended, status: 'success'}
      case 'C':
        return {...ended, status: 'cancelled'}
      case 'D':
        return {...base, kind: 'disabled'}
      case 'E':
        return {...base, kind: 'enabled'}
      case 'X':
        return {...base, kind: 'deleted'}
      case 'N':
        return {...base, kind: 'created'}
      case 'S':
        return {...base, kind: 'skipped', code: 'no_target'}
      case 'F':
        return {...base, kind: 'skipped', code: 'firing_paused'}
      case 'M':
        return {...base, kind: 'missed'}
      case 'L':
        return {...base, kind: 'launched'}
      default:
        return {...base, kind: 'lost'}
    }
  })
}

interface Ran {
  readonly messages: readonly NewNotice[]
  readonly incidents: ReadonlyMap<string, Incident>
}

interface Input {
  readonly facts: readonly NoticeFact[]
  readonly rules?: readonly RuleDefinition[]
  readonly mutes?: readonly NoticeMute[]
  readonly sweeps?: readonly Sweep[]
}

/** Evaluates at each of these instants, as servers would: each reads what the one before wrote. */
function evaluateAt(instants: readonly number[], input: Input): Ran {
  const {facts, rules = [aRule()], mutes = [], sweeps = []} = input
  let newest: Evaluated['newest'] = new Map()
  const incidents = new Map<string, Incident>()
  const messages: NewNotice[] = []
  let from = -Infinity
  for (const now of instants) {
    const isNew = ({at}: {readonly at: number}) => at > from && at <= now
    const result = evaluateNotices({
      now,
      rules: rules.map(compileRule),
      mutes,
      incidents: [...incidents.values()],
      newest,
      facts: facts.filter(isNew),
      sweeps: sweeps.filter(isNew),
    })
    from = now
    newest = result.newest
    messages.push(...result.messages)
    for (const incident of result.incidents) incidents.set(incident.key, incident)
  }
  return {messages, incidents}
}

/** Kinds of the messages, and the seconds since the start. */
function shown({messages}: Ran): string {
  return messages.map(({kind, madeAt}) => `${kind}@${(madeAt - START) / 1000}`).join(' ')
}

describe('messages about a sequence of launches', () => {
  const table: readonly [sequence: string, after1: number, after3: number][] = [
    ['R', 1, 0],
    ['R R', 1, 0],
    ['R R G', 2, 0],
    ['R R R G', 2, 2],
    ['R C R G', 2, 0],
    ['R C C', 1, 0],
    ['G', 0, 0],
    ['C', 0, 0],
    ['R D', 1, 0],
    ['R X', 2, 0],
    ['R R R X', 2, 2],
    ['R G R G', 4, 0],
    ['R R R G R R R G', 4, 4],
  ]
  for (const everyMs of [1_000, 4 * MINUTE])
    for (const [sequence, after1, after3] of table)
      for (const [after, count] of [
        [1, after1],
        [3, after3],
      ] as const)
        it(`${sequence}, ${everyMs / 1000} s apart, after ${after}: ${count}`, () => {
          const rules = [aRule({when: {failed: {after}}})]
          const facts = factsOf(sequence, START, everyMs)
          const ran = evaluateAt([START + 12 * HOUR], {facts, rules})
          // Changes faster than the wait are one opening and one recovery.
          const most = everyMs === 1_000 ? Math.min(count, 2) : count
          assert.equal(ran.messages.length, most, shown(ran))
        })

  it('red, red, green within three seconds are two messages, over two leader kills too', () => {
    const facts = factsOf('RRG', START, 1_000)
    const whole = evaluateAt([START + HOUR], {facts})
    assert.equal(shown(whole), 'opened@5 closed@7')
    const split = evaluateAt([START + 1_500, START + 5_000, START + HOUR], {facts})
    assert.equal(shown(split), 'opened@5 closed@7')
  })

  it('a rule that is gone closes its incidents without a message', () => {
    const facts = factsOf('R', START, 1_000)
    const first = evaluateNotices(evaluation({facts, now: START + MINUTE}))
    assert.equal(first.messages.length, 1)
    const later = {now: START + HOUR, rules: [], incidents: first.incidents, newest: first.newest}
    const gone = evaluateNotices(evaluation(later))
    assert.deepEqual(gone.messages, [])
    assert.equal(gone.incidents[0]!.state, 'closed')
  })

  it('a success that began before the failure does not close', () => {
    const [failed] = factsOf('R', START, 1_000)
    const [success] = factsOf('G', START + MINUTE, 1_000)
    const facts = [
      {...failed!, launch: 7},
      {...success!, launch: 6},
    ]
    assert.equal(shown(evaluateAt([START + HOUR], {facts})), 'opened@5')
  })
})

function evaluation(fields: Partial<Parameters<typeof evaluateNotices>[0]>) {
  const empty = {mutes: [], incidents: [], newest: new Map(), facts: [], sweeps: []}
  return {now: START, rules: [compileRule(aRule())], ...empty, ...fields}
}

describe('conditions of facts', () => {
  const table: readonly [
    title: string,
    when: RuleDefinition['when'],
    sequence: string,
    everyMs: number,
    messages: string,
  ][] = [
    ['skipped until the next launch', {skipped: {}}, 'SSL', MINUTE, 'opened@5 closed@125'],
    ['a pause is no skip', {skipped: {}}, 'F', MINUTE, ''],
    ['reasons of its own', {skipped: {reasons: ['firing_paused']}}, 'SF', MINUTE, 'opened@65'],
    ['missed until the next launch', {missed: {}}, 'ML', MINUTE, 'opened@5 closed@65'],
    ['lost until a success', {lost: {}}, 'KLG', MINUTE, 'opened@5 closed@125'],
    ['disabled', {disabled: {}}, 'DE', MINUTE, 'opened@5 closed@65'],
    ['disabled for less than it waits', {disabled: {for: '24h'}}, 'DE', MINUTE, ''],
    ['disabled for longer', {disabled: {for: '1h'}}, 'DE', 2 * HOUR, 'opened@3605 closed@7205'],
    ['disabled, then deleted', {disabled: {for: '1h'}}, 'DX', MINUTE, ''],
    ['deleted until it exists again', {deleted: {}}, 'XN', MINUTE, 'opened@5 closed@65'],
    ['deleted for a day', {deleted: {}}, 'X', MINUTE, 'opened@5 closed@86405'],
    ['succeeded', {succeeded: {}}, 'GGR', MINUTE, 'succeeded@0 succeeded@60'],
    ['started', {started: {}}, 'L', MINUTE, 'started@0'],
    [
      'three failures in 10 minutes',
      {failed_times: {times: 3, within: '10m'}},
      'RGRGR',
      MINUTE,
      'opened@245 closed@845',
    ],
    ['three failures in longer', {failed_times: {times: 3, within: '10m'}}, 'RRR', 6 * MINUTE, ''],
  ]
  for (const [title, when, sequence, everyMs, messages] of table)
    it(`${title}: ${sequence}`, () => {
      const facts = factsOf(sequence, START, everyMs)
      const ran = evaluateAt([START + 48 * HOUR], {facts, rules: [aRule({when})]})
      assert.equal(shown(ran), messages)
    })
})

describe('grouping', () => {
  it('5,000 jobs that fail in one minute are two messages', () => {
    const facts = Array.from({length: 5_000}, (_, index) =>
      factsOf('R', START + index * 12, 1, `job-${index}`),
    ).flat()
    const ran = evaluateAt([START + HOUR], {facts})
    assert.equal(shown(ran), 'opened@5 opened@65')
    assert.equal(ran.messages.flatMap(({incidents}) => incidents).length, 5_000)
  })

  it('incidents of two rules are never one message', () => {
    const rules = [aRule({name: 'a'}), aRule({name: 'b'})]
    const ran = evaluateAt([START + HOUR], {facts: factsOf('R', START, 1), rules})
    assert.deepEqual(
      ran.messages.map(({rule}) => rule),
      ['a', 'b'],
    )
  })
})

describe('an incident that opens and closes often', () => {
  it('R G three times: four messages, then flapping, then the state that stays', () => {
    const facts = factsOf('RGRGRG', START, 4 * MINUTE)
    const ran = evaluateAt([START + 24 * HOUR], {facts})
    const kinds = ran.messages.map(({kind}) => kind)
    assert.deepEqual(kinds, ['opened', 'closed', 'opened', 'closed', 'flapping', 'closed'])
  })

  it('makes one message an hour while it continues', () => {
    const facts = factsOf('RG'.repeat(60), START, 4 * MINUTE)
    const ran = evaluateAt([START + 24 * HOUR], {facts})
    const flapping = ran.messages.filter(({kind}) => kind === 'flapping')
    assert.equal(flapping.length, 9)
    assert.equal(ran.messages.length, 4 + 9 + 1)
  })
})

describe('reminders', () => {
  it('come while it is open', () => {
    const rules = [aRule({repeat: '1h'})]
    const facts = factsOf('RG', START, 150 * MINUTE)
    const hours = Array.from({length: 6}, (_, index) => START + (index + 1) * HOUR)
    const ran = evaluateAt(hours, {facts, rules})
    assert.equal(shown(ran), 'opened@5 reminder@3605 reminder@7205 closed@9005')
  })

  it('that no server could send are one', () => {
    const rules = [aRule({repeat: '5m'})]
    const ran = evaluateAt([START + MINUTE, START + 24 * HOUR], {
      facts: factsOf('R', START, 1),
      rules,
    })
    assert.equal(shown(ran), 'opened@5 reminder@305')
  })
})

const QUIET = [{days: [], from: '12:00', to: '14:00', timezone: 'UTC', except: 'critical'}]

describe('quiet hours', () => {
  it('end with one digest of what opened and closed', () => {
    const facts = [
      ...factsOf('R', START + MINUTE, 1, 'stays'),
      ...factsOf('RG', START + 2 * MINUTE, MINUTE, 'passes'),
    ].toSorted((a, b) => a.at - b.at)
    const ran = evaluateAt([START + 12 * HOUR], {facts, rules: [aRule({quiet: QUIET})]})
    assert.equal(shown(ran), 'digest@7200')
    const [digest] = ran.messages
    assert.deepEqual(
      digest!.incidents.map(({job, state}) => [job, state]),
      [
        ['stays', 'open'],
        ['passes', 'closed'],
      ],
    )
  })

  it('let a critical rule pass', () => {
    const rules = [aRule({quiet: QUIET, severity: 'critical'})]
    const ran = evaluateAt([START + 12 * HOUR], {facts: factsOf('R', START, 1), rules})
    assert.equal(shown(ran), 'opened@5')
  })
})

describe('a mute', () => {
  const mutes = [{rule: '', jobs: 'lo*', from: START, until: START + HOUR}]
  const table: readonly [sequence: string, everyMs: number, messages: string][] = [
    ['R', MINUTE, 'opened@3600'],
    ['RG', MINUTE, ''],
    ['RG', 2 * HOUR, 'opened@3600 closed@7205'],
  ]
  for (const [sequence, everyMs, messages] of table)
    it(`of an hour: ${sequence}, ${everyMs / MINUTE} min apart`, () => {
      const facts = factsOf(sequence, START, everyMs)
      assert.equal(shown(evaluateAt([START + 12 * HOUR], {facts, mutes})), messages)
    })

  it('that begins after the opening keeps the recovery for its end', () => {
    const later = [{...mutes[0]!, from: START + MINUTE}]
    const facts = factsOf('RG', START, 2 * MINUTE)
    assert.equal(
      shown(evaluateAt([START + 12 * HOUR], {facts, mutes: later})),
      'opened@5 closed@3600',
    )
  })

  it('of other jobs holds nothing', () => {
    const other = [{...mutes[0]!, jobs: 'etl-*'}]
    assert.equal(
      shown(evaluateAt([START + HOUR], {facts: factsOf('R', START, 1), mutes: other})),
      'opened@5',
    )
  })
})

describe('sweeps', () => {
  const sweep = (at: number, subjects: string[], over: string[] = []): Sweep => ({
    at,
    rule: 'rule',
    condition: 'late',
    over,
    found: subjects.map((subject) => {
      const evidence = {at, launch: null, execution: '', sentence: 'It is late.', cause: 'late'}
      return {subject, evidence}
    }),
  })

  it('open what they find and close what they no longer find', () => {
    const sweeps = [
      sweep(START, ['a']),
      sweep(START + 15_000, ['a', 'b']),
      sweep(START + 2 * MINUTE, ['b'], ['a']),
      sweep(START + 4 * MINUTE, [], ['a', 'b']),
    ]
    const rules = [aRule({when: {late: {by: '1m'}}})]
    const ran = evaluateAt([START + HOUR], {facts: [], sweeps, rules})
    assert.equal(shown(ran), 'opened@5 opened@65 closed@125 closed@245')
  })
})

const ROUNDS = Number(process.env.BELFRY_SEEDS ?? 300)

describe('laws of every sequence', () => {
  const LETTERS = 'RRRRGGGCDEXNSMLKF'
  const WHENS: readonly RuleDefinition['when'][] = [
    {failed: {}, missed: {}, skipped: {}, lost: {}},
    {failed: {after: 3}, disabled: {for: '10m'}, deleted: {}},
    {failed_times: {times: 3, within: '10m'}},
  ]
  for (let seed = 1; seed <= ROUNDS; seed += ROUNDS / 30)
    it(`from seed ${seed} on`, () => {
      for (let round = 0; round < ROUNDS / 30; round += 1) checkLaws(seed + round)
    })

  function checkLaws(seed: number): void {
    const random = new SeededRandom(seed)
    const everyMs = random.pick([700, 5_000, 61_000, 7 * MINUTE])
    const facts = ['a', 'b', 'c'].flatMap((name) => {
      const letters = Array.from({length: 30}, () => random.pick([...LETTERS])).join('')
      return factsOf(letters, START + random.between(0, 5_000), everyMs, name)
    })
    facts.sort((one, other) => one.at - other.at)
    const rules = [aRule({when: random.pick(WHENS), quiet: random.chance(0.3) ? QUIET : []})]
    const until = START + random.between(0, 3 * HOUR)
    const mutes = random.chance(0.3) ? [{rule: '', jobs: 'a', from: START, until}] : []
    const input = {facts, rules, mutes}
    const end = START + 72 * HOUR
    const whole = evaluateAt([end], input)

    const instants = Array.from({length: 40}, () => START + random.between(0, 4 * HOUR))
    const sorted = [...new Set(instants)].toSorted((one, other) => one - other)
    const split = evaluateAt([...sorted, end], input)
    assert.deepEqual(messagesOf(split), messagesOf(whole), `seed ${seed}: restarts change messages`)
    assert.deepEqual(
      Object.fromEntries(split.incidents),
      Object.fromEntries(whole.incidents),
      `seed ${seed}: restarts change incidents`,
    )
    checkOrder(whole.messages, seed)
    checkOrder(lateOrder(input, end, random), seed)
    assert.ok(whole.messages.length <= 2 * facts.length + 10, `seed ${seed}: too many messages`)
    for (const incident of whole.incidents.values())
      if (incident.state !== 'open')
        assert.equal(
          incident.isTold,
          false,
          `seed ${seed}: ${incident.key} is over, and was not told`,
        )
  }

  /** Messages when some facts are stored only after a later instant was evaluated. */
  function lateOrder(input: Input, end: number, random: SeededRandom): readonly NewNotice[] {
    const late = new Set(input.facts.filter(() => random.chance(0.2)))
    const early = input.facts.filter((fact) => !late.has(fact))
    const rules = input.rules!.map(compileRule)
    const common = {rules, mutes: input.mutes!, sweeps: []}
    const middle = START + HOUR
    const isBefore = ({at}: NoticeFact) => at <= middle
    const nothing = {incidents: [], newest: new Map()}
    const first = evaluateNotices({
      ...common,
      ...nothing,
      now: middle,
      facts: early.filter(isBefore),
    })
    const rest = [...late, ...early.filter((fact) => !isBefore(fact))]
    const {incidents, newest} = first
    const second = evaluateNotices({...common, incidents, newest, now: end, facts: rest})
    return [...first.messages, ...second.messages]
  }

  function messagesOf({messages}: Ran) {
    return messages.map(({kind, madeAt, incidents}) => {
      return `${kind}@${madeAt}: ${incidents
        .map(({key}) => key)
        .toSorted()
        .join(' ')}`
    })
  }

  /** No recovery without its opening, and one recovery for each. */
  function checkOrder(messages: readonly NewNotice[], seed: number): void {
    const open = new Set<string>()
    for (const {kind, incidents} of messages) {
      for (const {key, state} of incidents) {
        const what = `seed ${seed}: ${kind} of ${key}`
        if (kind === 'opened') {
          assert.ok(!open.has(key) || hasFlapped(messages, key), `${what} was opened already`)
          open.add(key)
        } else if (kind === 'closed') {
          assert.ok(open.delete(key), `${what} without an opening`)
        } else if (kind === 'flapping') open.add(key)
        else if (kind === 'digest') {
          if (state === 'open') open.add(key)
          else open.delete(key)
        }
      }
    }
  }

  function hasFlapped(messages: readonly NewNotice[], key: string): boolean {
    return messages.some(
      ({kind, incidents}) => kind === 'flapping' && incidents.some((each) => each.key === key),
    )
  }
})
