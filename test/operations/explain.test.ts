/** Planted causes: an explanation names the right one, with its numbers, names and times. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {RuleSet, type Principal} from '../../src/core/access/authorization.ts'
import {END_REASONS} from '../../src/core/execution.ts'
import {ABSENCES} from '../../src/core/explain/absences.ts'
import type {Explanation} from '../../src/core/explain/explain.ts'
import type {ExplainSubject} from '../../src/core/explain/facts.ts'
import {JOB_FIELD_LIST} from '../../src/core/job-fields.ts'
import {LAUNCH_REASONS} from '../../src/core/launch-reasons.ts'
import {LOCAL} from '../../src/identity/token-cache.ts'
import {checkedLimits} from '../../src/config/limits.ts'
import {createExplain} from '../../src/operations/explain.ts'
import {DEFINITION_TRAITS} from '../support/definition-traits.ts'
import {aJob, NOON} from '../support/fixtures.ts'
import {World} from '../support/world.ts'

const SECOND = 1_000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

const ALICE = {name: 'alice', accessor: 'x', kind: 'management', address: '10.0.0.7'}

/** Codes that are no names of fields, and no words. */
const CODES = [LAUNCH_REASONS, END_REASONS, ABSENCES]
  .flatMap((table) => Object.keys(table))
  .filter((code) => code.includes('_') && JOB_FIELD_LIST.every(({wire}) => wire !== code))

const SETTINGS = {
  targets: {defaultTarget: 'one', targetWaitMs: 10 * MINUTE},
  limits: checkedLimits(),
} as const

/** At this wall time of the first of March in UTC; a launch by its number; now. */
async function explained(
  world: World,
  job: string,
  at?: string | number,
  caller = LOCAL,
): Promise<Explanation> {
  const {explain} = createExplain({store: world.store, settings: SETTINGS})
  const subject: ExplainSubject =
    at === undefined
      ? {kind: 'now'}
      : typeof at === 'number'
        ? {kind: 'launch', group: at}
        : {kind: 'at', text: `2026-03-01T${at}`}
  const found = await explain(job, subject, caller)
  const unless = found.next.flatMap((each) => each.unless)
  for (const text of [...found.sentences, found.advice, ...found.now.sentences, ...unless])
    for (const code of CODES) assert.ok(!text.includes(code), `${code} in: ${text}`)
  return found
}

/** Code, then sentences in one line. */
async function told(...asked: Parameters<typeof explained>): Promise<string> {
  const {code, sentences} = await explained(...asked)
  return `${code}: ${sentences.join(' ')}`
}

const minutely = (name: string) => aJob(name).scheduled('0 * * * * *')

describe('a launch that ran', () => {
  it('is explained with its attempts, its end and the command that shows its output', async () => {
    const world = new World()
    await world.start({scripts: {job: {ms: 2_000, outcome: 'failed', exitCode: 3}}})
    await world.submit(minutely('job').retrying(1))
    await world.clock.advance(MINUTE + 20 * SECOND)
    assert.equal(
      await told(world, 'job', '12:01'),
      'launched: It was planned for 12:01:00, launched on node-a, and failed after 4s. ' +
        'Attempt 1 on node-a failed after 2s: exit code 3. ' +
        'Attempt 2 on node-a failed after 2s: exit code 3.',
    )
    const {advice, commands, next, now} = await explained(world, 'job')
    assert.deepEqual(
      [advice, commands],
      ['Read its output.', ['belfry runs output job 1-node-a-2']],
    )
    assert.deepEqual(
      next.map(({at, unless}) => [(at - NOON) / MINUTE, unless]),
      [
        [2, []],
        [3, []],
        [4, []],
      ],
    )
    assert.deepEqual([now.state, now.sentences], ['idle', ['Nothing runs or waits.']])
  })

  it('that runs, and one that waits for its retry, are the state of now', async () => {
    const world = new World()
    await world.start({scripts: {long: {ms: Infinity}, bad: {outcome: 'failed'}}})
    await world.submit(aJob('long').manual())
    await world.submit(aJob('bad').manual().retrying(1))
    await world.runByHand('long')
    await world.runByHand('bad')
    await world.clock.advance(100)
    const [long, bad] = [await explained(world, 'long'), await explained(world, 'bad')]
    assert.deepEqual(long.now, {
      state: 'running',
      sentences: ['Launch 1 runs since 12:00:00 on node-a.'],
    })
    assert.equal(bad.now.state, 'backoff')
    assert.match(
      bad.now.sentences[0]!,
      /^Attempt 2 of launch 2 starts on node-a at 12:00:0\d or later\.$/,
    )
  })

  it('that a person cancelled names them', async () => {
    const world = new World()
    await world.start({scripts: {job: {ms: Infinity}}})
    await world.submit(aJob('job').manual())
    await world.runByHand('job')
    await world.store.cancelExecution('job', {group: 1, node: 'node-a', attempt: 1}, ALICE)
    world.notify('cancel')
    await world.clock.advance(5 * SECOND)
    assert.match(
      await told(world, 'job'),
      /^launched: .* and was cancelled.* Attempt 1 on node-a was cancelled by alice/,
    )
  })
})

describe('a planned time that was skipped', () => {
  it('by an open launch names it, its node, and the command that ends it', async () => {
    const world = new World()
    await world.start({scripts: {job: {ms: Infinity}}})
    await world.submit(minutely('job').forbidding())
    await world.clock.advance(2 * MINUTE + SECOND)
    assert.equal(
      await told(world, 'job', '12:02'),
      'forbid: It was planned for 12:02:00, and did not run. ' +
        'Launch 1 was open since 12:01:00 on node-a, and launches of this job must not overlap. ' +
        'It is still open.',
    )
    const {commands, before, next} = await explained(world, 'job', '12:02')
    assert.deepEqual(commands, ['belfry runs cancel --job job --launch 1'])
    assert.equal(before!.launch.group, 1)
    const unless = 'launch 1 is still open: then it is skipped'
    assert.deepEqual(
      next.map((each) => each.unless),
      [[unless], [unless], [unless]],
    )
  })

  it('without a node names the tag, the wait, the nearest tag and the next times', async () => {
    const world = new World()
    await world.start({tags: {group: 'web'}})
    await world.submit(aJob('job').scheduled('0 1 * * * *').tagged({group: 'wbe'}))
    await world.clock.advance(2 * MINUTE)
    const waiting = await explained(world, 'job')
    assert.deepEqual([waiting.kind, waiting.code], ['waiting', 'waits_for_node'])
    assert.equal(waiting.now.state, 'waiting')
    await world.clock.advance(20 * MINUTE)
    assert.equal(
      await told(world, 'job', '12:01'),
      'no_target: It was planned for 12:01:00, and did not run. ' +
        'It waited 10m for a node with group=wbe, and none took it. ' +
        'No member has these tags. Nearest tag: group=web (1 node).',
    )
    const {next, commands, facts, advice} = await explained(world, 'job', '12:01')
    assert.deepEqual(next[0]!.unless, [
      'no node with group=wbe takes it within 10m: then it is skipped',
    ])
    assert.deepEqual(commands, ['belfry jobs edit job'])
    assert.equal(advice, 'Correct the tag, or start a node with --tag group=wbe.')
    assert.equal(facts['nearest_tag'], 'group=web')
  })

  it('by a pause of firing names who, until when and why; so do the next times', async () => {
    const world = new World()
    await world.start()
    await world.submit(minutely('job'))
    const actor = {...ALICE, name: 'ops'}
    const until = {at: NOON + 3 * MINUTE}
    await world.store.pauseFiring({jobs: 'j*', reason: 'new storage', until, actor})
    await world.clock.advance(MINUTE + SECOND)
    assert.equal(
      await told(world, 'job', '12:01'),
      'firing_paused: It was planned for 12:01:00, and did not run. ' +
        'Firing of j* was paused by ops from 12:00:00 until 12:03:00: "new storage".',
    )
    const {next, commands} = await explained(world, 'job', '12:01')
    assert.deepEqual(
      next.map(({unless}) => unless.length),
      [1, 0, 0],
    )
    assert.deepEqual(commands, ["belfry unpause --firing --jobs 'j*'"])
  })

  it('by too many launches that wait for a slot says so', async () => {
    const world = new World()
    await world.start({slots: 1, scripts: {job: {ms: Infinity}}})
    await world.submit(aJob('job').every('1s'))
    await world.clock.advance(3 * MINUTE)
    assert.match(
      await told(world, 'job'),
      /^behind: \d+ planned times from 12:0.* did not run\. 100 earlier launches of it waited/,
    )
  })

  it('by a disabled job names who disabled it, from where and when', async () => {
    const world = new World()
    await world.start()
    await world.submit(minutely('job'))
    await world.clock.advance(90 * SECOND)
    await world.store.toggle('job', null, ALICE, true)
    await world.clock.advance(10 * MINUTE)
    const at = await explained(world, 'job', '12:05')
    assert.equal(at.code, 'disabled')
    assert.deepEqual(at.sentences, [
      '10 planned times from 12:02:00 to 12:11:00 did not run.',
      'alice disabled it at 12:01:30 from 10.0.0.7.',
    ])
    const later = await explained(world, 'job', '18:00')
    assert.deepEqual([later.kind, later.code], ['absent', 'disabled'])
    assert.deepEqual(at.commands, ['belfry jobs enable job'])
    assert.deepEqual([at.now.state, at.next], ['disabled', []])
    assert.match(await told(world, 'job', '12:01'), /^launched: /)
  })
})

describe('a planned time that was missed', () => {
  /** The leader is away from 12:00:30 on, for ten minutes. */
  async function afterOutage(job: ReturnType<typeof minutely>, settings = {}): Promise<World> {
    const world = new World()
    const first = await world.start(settings)
    await world.submit(job)
    await world.clock.advance(30 * SECOND)
    first.crash()
    await world.clock.advance(10 * MINUTE)
    await world.start({incarnation: 'second', ...settings})
    await world.clock.advance(10 * SECOND)
    return world
  }

  it('says how late it was decided, and what catch_up did', async () => {
    const skip = await afterOutage(minutely('job').catchingUp('skip'))
    assert.match(
      await told(skip, 'job', '12:03'),
      /^catch_up_skip: 9 planned .* No server led from 12:00:3\d to 12:10:30\. The job does not/,
    )
    const latest = await afterOutage(minutely('job').catchingUp('latest'))
    assert.match(
      await told(latest, 'job', '12:03'),
      /^catch_up_latest: .* Only the newest missed time ran: launch \d+, planned for 12:09:00\.$/,
    )
    const cap = await afterOutage(minutely('job').catchingUp('all'), {catchUpMax: 2})
    assert.match(
      await told(cap, 'job', '12:03'),
      /^catch_up_cap: .* the newest ran: launch \d+, planned for 12:08:00\.$/,
    )
    const late = await afterOutage(minutely('job').catchingUp('all', '5m'))
    assert.match(
      await told(late, 'job', '12:03'),
      /^max_lateness: .* It was decided at 12:10:3\d, 9m3\ds late\. .*at most 5m late\.$/,
    )
  })

  it('by an edit names who made it', async () => {
    const world = new World()
    const leader = await world.start()
    await world.submit(minutely('job'))
    leader.crash()
    await world.clock.advance(90 * SECOND)
    const {spec} = minutely('job').scheduled('0 0 3 * * *')
    const how = {ifMatch: null, createOnly: false, idempotency: null, runOnCreate: false}
    await world.store.submit({spec, ...how, actor: ALICE})
    assert.equal(
      await told(world, 'job', '12:01'),
      'edited: It was planned for 12:01:00, and did not run. ' +
        'A change of schedule by alice at 12:01:30 moved the schedule past it while it was due.',
    )
  })
})

describe('a job that is not decided', () => {
  it('says that no server leads, and since when', async () => {
    const world = new World()
    const leader = await world.start()
    await world.submit(minutely('job'))
    leader.crash()
    await world.clock.advance(2 * MINUTE)
    assert.match(
      await told(world, 'job', '12:01'),
      /^undecided: It was planned for 12:01:00 and is not decided yet: no server leads since 12:00:0\d\.$/,
    )
    const {now} = await explained(world, 'job', '12:20')
    assert.equal(now.state, 'waiting')
    assert.match(now.sentences.join(' '), /12:01:00 and is not decided yet: no server leads since/)
  })

  it('says that its schedule cannot be read, or why it cannot be decided', async () => {
    const world = new World()
    await world.start()
    await world.submit(minutely('unreadable'))
    await world.submit(minutely('broken'))
    const load = world.store.loadDue
    const spoilt: Readonly<Record<string, object>> = {
      unreadable: {timezone: 'Mars/Olympus'},
      broken: {maxLateness: 'for ever'},
    }
    const loadDue: typeof load = async (request) => {
      const due = await load(request)
      const jobs = due.jobs.map(({job, ...rest}) => {
        const spec = {...job.spec, ...spoilt[job.spec.name]}
        return {job: {...job, spec}, ...rest}
      })
      return {...due, jobs}
    }
    Object.assign(world.store, {loadDue})
    await world.clock.advance(MINUTE + 5 * SECOND)
    assert.match(
      await told(world, 'unreadable'),
      /^schedule_unreadable: .* undecided: .*Mars\/Olympus/,
    )
    assert.match(await told(world, 'broken'), /^undecidable: .* cannot be decided: .*for ever/)
  })

  it('waits for the launch before it, after a late leader', async () => {
    const world = new World()
    const scripts = {job: {ms: 40_000}}
    const first = await world.start({scripts})
    await world.submit(aJob('job').scheduled('*/10 * * * * *').forbidding())
    await world.clock.advance(5 * SECOND)
    first.crash()
    await world.clock.advance(20 * SECOND)
    await world.start({incarnation: 'second', scripts})
    await world.clock.advance(SECOND)
    const [launched, waiting] = await world.launches('job')
    assert.deepEqual([launched!.decision, waiting!.reason], ['launched', 'waits_for_open'])
    const {code, sentences, now} = await explained(world, 'job', waiting!.group)
    assert.equal(code, 'waits_for_open')
    assert.match(
      sentences.join(' '),
      new RegExp(`It waits for launch ${launched!.group}, open since 12:00:\\d\\d on node-a\\.$`),
    )
    assert.equal(now.state, 'running')
  })

  it('is said to kill its nodes, with the launch and the nodes', async () => {
    const world = new World()
    const scripts = {job: {ms: Infinity}}
    let node = await world.start({scripts})
    await world.submit(aJob('job').every('1h').retrying(9))
    await world.runByHand('job')
    for (let death = 1; death <= 3; death += 1) {
      await world.clock.advance(10 * SECOND)
      node.crash()
      node = await world.start({incarnation: `node-${death + 1}`, scripts})
      await world.clock.advance(10 * SECOND)
    }
    const quarantine = (await world.launches('job')).find(({reason}) =>
      reason.startsWith('quarantined'),
    )
    const {code, sentences, commands, now} = await explained(world, 'job', quarantine!.group)
    assert.equal(code, 'quarantined')
    assert.deepEqual(sentences.slice(1), [
      'Node node-a died while executing launch 1.',
      'Belfry disabled the job.',
    ])
    assert.deepEqual(commands, ['belfry jobs enable job'])
    assert.match(now.sentences.join(' '), /^Belfry disabled it at 12:00/)
  })
})

describe('a child', () => {
  it('of a parent that failed, or was skipped, has the cause of the parent', async () => {
    const world = new World()
    await world.start({scripts: {load: {outcome: 'failed', exitCode: 3}}})
    await world.submit(aJob('load').manual())
    await world.submit(aJob('mart').childOf('load'))
    await world.submit(aJob('mail').childOf('mart'))
    await world.runByHand('load')
    await world.clock.advance(SECOND)
    const mart = await explained(world, 'mart')
    assert.equal(mart.code, 'parent_failed')
    assert.match(
      mart.sentences.join(' '),
      /load failed in launch 1\. Attempt 1 on node-a failed: exit code 3\.$/,
    )
    assert.deepEqual(mart.commands, ['belfry explain load --launch 1'])
    assert.deepEqual(mart.now.sentences, ['Nothing runs or waits.', 'It runs after load succeeds.'])
    const mail = await explained(world, 'mail')
    assert.equal(mail.code, 'parent_skipped')
    assert.match(mail.sentences.join(' '), /mart did not run \(launch 2\)\./)
    // The span of a disabled parent leaves no row: the explanation says so.
    await world.store.toggle('load')
    const {now} = await explained(world, 'mart')
    assert.equal(now.sentences.at(-1), 'It runs after load succeeds, and load is disabled.')
  })

  it('names nothing of a parent and of nodes that the caller may not see', async () => {
    const world = new World()
    await world.start({scripts: {load: {outcome: 'failed', exitCode: 3}}})
    await world.submit(aJob('load').manual())
    await world.submit(aJob('mart').childOf('load').tagged({gpu: 'yes'}))
    await world.runByHand('load')
    await world.clock.advance(SECOND)
    const rules = [{glob: '/v1/jobs/mart', capabilities: ['read' as const]}]
    const limits = {executors: null, su: null, tags: null}
    const policy = {name: 'mart', rules, limits}
    const caller: Principal = {
      ...LOCAL,
      kind: 'client',
      rules: new RuleSet([policy], DEFINITION_TRAITS),
    }
    const {sentences, commands, facts, advice} = await explained(world, 'mart', undefined, caller)
    assert.equal(sentences.at(-1), 'Its parent did not succeed.')
    assert.deepEqual([commands, advice], [[], ''])
    assert.doesNotMatch(JSON.stringify([sentences, facts]), /load|node-a/)
  })

  it('outside of its window says when the job runs', async () => {
    const world = new World()
    await world.start()
    await world.submit(aJob('load').manual())
    await world.submit(
      aJob('mart')
        .childOf('load')
        .between(NOON + HOUR, NOON + 2 * HOUR),
    )
    await world.runByHand('load')
    await world.clock.advance(SECOND)
    assert.match(
      await told(world, 'mart'),
      /^outside_window: .* the job runs from 13:00:00 until 14:00:00\.$/,
    )
  })
})

describe('a time without a launch', () => {
  async function aWorld(): Promise<World> {
    const world = new World()
    await world.start()
    const actor = ALICE
    const how = {ifMatch: null, createOnly: false, idempotency: null, runOnCreate: false, actor}
    for (const job of [
      aJob('often').scheduled('0 */10 * * * *'),
      aJob('hand').manual(),
      aJob('child').childOf('hand'),
      aJob('window')
        .scheduled('0 */10 * * * *')
        .between(NOON + 30 * MINUTE, NOON + 50 * MINUTE),
    ])
      await world.store.submit({spec: job.spec, ...how})
    await world.clock.advance(25 * MINUTE)
    return world
  }

  it('is no planned time, before the job, outside of its window, or still to come', async () => {
    const world = await aWorld()
    const expected: readonly (readonly [string, string, string])[] = [
      [
        'often',
        '12:13',
        'not_planned: 12:13:00 is no planned time of the job: the nearest are 12:10:00 and 12:20:00.',
      ],
      [
        'often',
        '11:00',
        'before_created: The job was created at 12:00:00 by alice: it had no planned times before.',
      ],
      ['often', '16:00', 'planned: It is planned for 16:00:00, which is still to come.'],
      ['hand', '12:10', 'manual: The job has no schedule: it runs by hand only.'],
      [
        'child',
        '12:10',
        'follows_parent: The job has no planned times: it runs after hand succeeds.',
      ],
      ['window', '12:10', 'before_starts_at: The job has planned times from 12:30:00 on.'],
      [
        'window',
        '18:00',
        'after_expires_at: The job expires at 12:50:00: it has no planned times after that.',
      ],
    ]
    for (const [job, at, sentence] of expected) assert.equal(await told(world, job, at), sentence)
  })

  it('is of a history that is not kept any more', async () => {
    const world = new World()
    await world.start({prunes: true, keepLaunches: 2})
    await world.submit(minutely('job'))
    await world.clock.advance(15 * MINUTE)
    assert.match(
      await told(world, 'job', '12:02'),
      /^not_kept: The history of the job is kept from 12:\d\d:00 on\.$/,
    )
  })

  it('of a day is the newest that did not run, and the others are counted', async () => {
    const world = new World()
    await world.start({scripts: {job: {ms: 90_000}}})
    await world.submit(minutely('job').forbidding())
    await world.clock.advance(3 * MINUTE + SECOND)
    const {explain} = createExplain({store: world.store, settings: SETTINGS})
    const day = await explain('job', {kind: 'at', text: '2026-03-01'}, LOCAL)
    assert.equal(day.code, 'forbid')
    assert.equal(day.sentences.at(-1), '2 other rows of the history are of this time.')
  })
})
