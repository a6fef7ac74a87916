/** Facts of notices, the incidents and messages that follow, and their delivery. */
import assert from 'node:assert/strict'
import type {NoticeAuthor} from '../../../src/core/notice-channel.ts'
import {RULE_DEFAULTS, type RuleDefinition} from '../../../src/core/notice-rule.ts'
import {BELFRY} from '../../../src/core/audit.ts'
import type {
  ClaimedNotice,
  NoticeReport,
  SweepStep,
} from '../../../src/ports/notice-engine-store.ts'
import type {Case} from './case.ts'
import {aRow, HOUR, MINUTE, type Scene} from './scene.ts'

function aRule(fields: Partial<RuleDefinition> = {}): RuleDefinition {
  return {...RULE_DEFAULTS, name: 'rule', to: ['mail'], when: {failed: {}}, ...fields}
}

/** Adds the channels of the rule, and the rule. */
export async function addRule(
  scene: Scene,
  fields: Partial<RuleDefinition> = {},
  author: NoticeAuthor = {name: 'ops', kind: 'management', policies: []},
): Promise<void> {
  const rule = aRule(fields)
  for (const name of rule.to) {
    const config = {url: 'https://example.org'}
    const kind = name === 'pager' ? 'pagerduty' : 'webhook'
    const channel = {name, kind, config, enabled: true}
    await scene.store.putChannel({channel, author, secret: null})
  }
  const stored = await scene.store.putRule({definition: rule, author})
  assert.equal(stored.kind, 'stored')
}

let seeds = 0

export const REPORT = {
  publicUrl: '',
  defaultTarget: 'one',
  targetWaitMs: 600_000,
  queuedMax: 100,
  perIncidentKinds: [],
} as const

export async function evaluate(
  scene: Scene,
  olderThanMs = 0,
  report: NoticeReport = REPORT,
  sweep: SweepStep | null = null,
) {
  seeds += 1
  return await scene.store.evaluateNotices({olderThanMs, sweep, seed: `s${seeds}`, report})
}

async function claim(scene: Scene, sender = 'a', free: Record<string, number> = {}) {
  return await scene.store.claimNotices({sender, free, otherwise: 4})
}

/** Advances, evaluates, and returns what would be sent now; each is marked as sent. */
async function sentAfter(scene: Scene, ms: number): Promise<readonly string[]> {
  scene.advance(ms)
  await evaluate(scene)
  const sent: string[] = []
  for (;;) {
    const claimed = await claim(scene)
    if (claimed.length === 0) return sent
    for (const notice of claimed) assert(await mark(scene, notice, 'sent'))
    sent.push(...claimed.map(shown))
  }
}

async function mark(
  scene: Scene,
  {channel, message}: ClaimedNotice,
  outcome: 'sent' | 'retry' | 'permanent',
  sender = 'a',
) {
  const {id, attempt} = message
  return await scene.store.markNotice({id, channel, attempt, outcome, cause: 'why', sender})
}

function shown({message: {kind, incidents}}: ClaimedNotice): string {
  return `${kind} ${incidents.map(({key}) => key).join(' ')}`
}

export function noticeCases(when: Case): void {
  when('red, red, green within three seconds are two messages', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed', {exitCode: 3})
    scene.advance(1_000)
    await scene.complete('a', 'failed', {exitCode: 3})
    scene.advance(1_000)
    await scene.complete('a', 'succeeded')
    assert.deepEqual(await sentAfter(scene, MINUTE), [
      'opened rule/a/failed',
      'closed rule/a/failed',
    ])
    assert.deepEqual(await sentAfter(scene, HOUR), [])
  })

  when('the recovery is sent also if each end was evaluated at once', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed', {exitCode: 3})
    const {opened} = await evaluate(scene)
    assert.deepEqual(opened, [{key: 'rule/a/failed', rule: 'rule'}])
    const claimed = await sentAfter(scene, 5_000)
    assert.deepEqual(claimed, ['opened rule/a/failed'])
    await scene.complete('a', 'succeeded')
    const {closed} = await evaluate(scene)
    assert.deepEqual(closed, [{key: 'rule/a/failed', rule: 'rule'}])
    assert.deepEqual(await sentAfter(scene, 5_000), ['closed rule/a/failed'])
  })

  when('a message says why as an explanation does, with the end of the output', async (scene) => {
    await addRule(scene, {severity: 'critical', output_lines: 2})
    await scene.submit('a', {ownerEmail: 'anna@example.org'})
    const output = 'one\ntwo\nthree\n'
    const group = await scene.complete('a', 'failed', {exitCode: 3, output})
    scene.advance(5_000)
    await evaluate(scene, 0, {...REPORT, publicUrl: 'https://belfry.example.org'})
    const [claimed] = await claim(scene)
    const {message} = claimed!
    assert.equal(message.summary, 'a failed: exit code 3')
    assert.equal(message.severity, 'critical')
    const [incident] = message.incidents
    const [first, second, ...others] = incident!.sentences
    assert.match(first!, /^It was requested at 12:00:0\d, launched on node-1, and failed/)
    assert.equal(second, 'Attempt 1 on node-1 failed: exit code 3.')
    assert.deepEqual(others, [])
    const id = `${group}-node-1-1`
    assert.equal(incident!.advice, `Read its output. Try: belfry runs output a ${id}`)
    assert.equal(incident!.outputTail, 'two\nthree')
    assert.equal(incident!.url, 'https://belfry.example.org/ui/')
    assert.equal(incident!.ownerEmail, 'anna@example.org')
    assert.deepEqual([incident!.launch, incident!.count, incident!.closedAt], [group, 1, null])
    assert.equal(incident!.execution, id)
  })

  when('a recovery is about the launch that succeeded', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed', {exitCode: 3})
    await sentAfter(scene, MINUTE)
    const group = await scene.complete('a', 'succeeded')
    scene.advance(MINUTE)
    await evaluate(scene)
    const [{message}] = (await claim(scene)) as [ClaimedNotice]
    const [incident] = message.incidents
    assert.equal(message.summary, 'a: over')
    assert.deepEqual([incident!.launch, incident!.execution], [group, `${group}-node-1-1`])
    assert.match(incident!.sentences[0]!, /launched on node-1, and succeeded/)
    assert.match(incident!.sentences[1]!, /^It was open for 1m\d*s? since 12:0\d:\d\d\.$/)
    assert.deepEqual([incident!.outputTail, incident!.advice], ['', ''])
  })

  when(
    'a message names the cause of a row that did not run, and who disabled a job',
    async (scene) => {
      await addRule(scene, {when: {skipped: {}, disabled: {}, deleted: {}}})
      const job = await scene.submit('a', {tags: {group: 'wbe:1'}})
      const first = job.nextAt!
      scene.advance(2 * MINUTE)
      await scene.decide(job, [aRow(first, 'skipped', {reason: 'no_target'})], first + MINUTE)
      const alice = {...BELFRY, name: 'alice', address: '192.0.2.7'}
      await scene.store.toggle('a', undefined, alice)
      scene.advance(MINUTE)
      await evaluate(scene)
      const [{message}] = (await claim(scene)) as [ClaimedNotice]
      assert.equal(message.summary, 'a did not run: no node took it; a disabled')
      const told = Object.fromEntries(message.incidents.map(({key, ...each}) => [key, each]))
      const skipped = told['rule/a/skipped']!
      assert.match(skipped.sentences[0]!, /^It was planned for .*, and did not run\.$/)
      assert.match(skipped.sentences.join(' '), /for a node with group=wbe, and none took it/)
      assert.match(
        told['rule/a/disabled']!.sentences[0]!,
        /^alice disabled it at .* from 192.0.2.7\.$/,
      )
      assert.equal(
        told['rule/a/disabled']!.advice,
        'Enable the job: then it runs as planned. Try: belfry jobs enable a',
      )
      await scene.store.deleteJob('a', undefined, alice)
      scene.advance(MINUTE)
      await evaluate(scene)
      const closed = (await claim(scene)).flatMap(({message: {incidents}}) => incidents)
      const deleted = closed.filter(({key}) => key === 'rule/a/deleted')
      assert.deepEqual(
        deleted.map(({sentences}) => sentences),
        [['alice deleted it from 192.0.2.7.']],
      )
    },
  )

  when('dependents that did not run belong to the failure above them', async (scene) => {
    const reasons = ['parent_failed', 'parent_skipped']
    await addRule(scene, {when: {failed: {}, skipped: {reasons}}})
    await scene.submit('extract')
    for (const [name, parentJob] of [
      ['load', 'extract'],
      ['mart', 'load'],
    ] as const)
      await scene.submit(name, {schedule: '', parentJob})
    await scene.complete('extract', 'failed', {exitCode: 3})
    scene.advance(MINUTE)
    await evaluate(scene)
    const [{message}] = (await claim(scene)) as [ClaimedNotice]
    assert.equal(message.summary, 'extract failed: exit code 3; 2 dependents did not run')
    const [incident, ...others] = message.incidents
    assert.equal(incident!.sentences.at(-1), '2 dependents did not run: load and mart.')
    assert.deepEqual(others, [])
  })

  when('a rule about other reasons stores no fact of dependents', async (scene) => {
    await addRule(scene, {when: {skipped: {}}})
    await scene.submit('extract')
    await scene.submit('load', {schedule: '', parentJob: 'extract'})
    await scene.complete('extract', 'failed')
    const sweepEveryMs = {cluster: 1, executions: 1, jobs: 1}
    assert.equal((await scene.store.noticesDue({olderThanMs: 0, sweepEveryMs})).evaluate, false)
  })

  when('a channel with a state of each incident gets all of them, in parts', async (scene) => {
    await addRule(scene, {to: ['chat', 'pager']})
    const names = Array.from({length: 23}, (_, index) => `job-${index}`)
    for (const name of names) {
      await scene.submit(name)
      await scene.complete(name, 'failed', {exitCode: 3})
    }
    scene.advance(MINUTE)
    await evaluate(scene, 0, {...REPORT, perIncidentKinds: ['pagerduty']})
    const claimed = await claim(scene)
    const shapes = claimed.map(({channel, message: {incidents, more, part}}) => {
      return `${channel} ${part}: ${incidents.length} and ${more}`
    })
    assert.deepEqual(shapes.toSorted(), [
      'chat 0: 20 and 3',
      'pager 0: 20 and 3',
      'pager 1: 3 and 0',
    ])
    const ids = new Set(claimed.map(({message: {id}}) => id))
    assert.equal(ids.size, 3)
  })

  when('a job that no rule covers leaves no fact', async (scene) => {
    await addRule(scene, {jobs: 'etl-*'})
    await scene.submit('a')
    await scene.complete('a', 'failed')
    assert.deepEqual(await sentAfter(scene, HOUR), [])
  })

  when('a rule about metadata and owner covers the job as it is', async (scene) => {
    await addRule(scene, {metadata: {team: 'a'}, owner: 'data'})
    await scene.submit('a', {metadata: {team: 'a'}, owner: 'data'})
    await scene.submit('b', {metadata: {team: 'b'}, owner: 'data'})
    await scene.complete('b', 'failed')
    await scene.complete('a', 'failed')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/a/failed'])
  })

  when('skipped and missed times open, and the next launch closes', async (scene) => {
    await addRule(scene, {when: {skipped: {}, missed: {}}})
    const job = await scene.submit('a')
    const [first, second] = [job.nextAt!, job.nextAt! + MINUTE]
    scene.advance(2 * MINUTE)
    await scene.decide(job, [aRow(first, 'skipped', {reason: 'no_target'})], second)
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/a/skipped'])
    const missed = aRow(second, 'missed', {reason: 'max_lateness'})
    await scene.decide(await scene.job('a'), [missed], second + MINUTE)
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/a/missed'])
    await scene.run('a')
    const both = ['closed rule/a/skipped rule/a/missed', 'closed rule/a/missed rule/a/skipped']
    const sent = await sentAfter(scene, MINUTE)
    assert(sent.length === 1 && both.includes(sent[0]!), String(sent))
  })

  when('a disabled, enabled, deleted and created job', async (scene) => {
    await addRule(scene, {when: {disabled: {}, deleted: {}}})
    await scene.submit('a')
    await scene.store.toggle('a')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/a/disabled'])
    await scene.store.toggle('a')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['closed rule/a/disabled'])
    const anna = {name: 'anna', accessor: 'x', kind: 'client', address: '192.0.2.1'}
    await scene.store.deleteJob('a', null, anna)
    scene.advance(MINUTE)
    await evaluate(scene)
    const [opened] = await claim(scene)
    assert.equal(shown(opened!), 'opened rule/a/deleted')
    assert.deepEqual(opened!.message.incidents[0]!.sentences, ['anna deleted it from 192.0.2.1.'])
    await mark(scene, opened!, 'sent')
    await scene.submit('a')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['closed rule/a/deleted'])
  })

  when('deleting a failing job closes its incident', async (scene) => {
    await addRule(scene, {metadata: {team: 'a'}})
    await scene.submit('a', {metadata: {team: 'a'}})
    await scene.complete('a', 'failed')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/a/failed'])
    await scene.store.deleteJob('a')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['closed rule/a/failed'])
  })

  when('a lost execution opens until the job succeeds', async (scene) => {
    await addRule(scene, {when: {lost: {}}})
    await scene.submit('a', {retries: 1})
    await scene.run('a')
    await scene.claimOne()
    await scene.fail('n1', 'n1-incarnation-1')
    const lost = {term: scene.term, nodeId: 'n1', exceptIncarnation: null, limit: 10}
    await scene.store.markLost({...lost, reason: 'node_lost', jitter: 0.5, observed: null})
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/a/lost'])
  })

  when('a deleted rule closes its incidents without a message', async (scene) => {
    await addRule(scene, {repeat: '5m'})
    await scene.submit('a')
    await scene.complete('a', 'failed')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/a/failed'])
    assert.notEqual(await scene.store.deleteRule('rule'), null)
    assert.equal((await evaluate(scene)).closed.length, 1)
    assert.deepEqual(await sentAfter(scene, HOUR), [])
  })

  when('a rule tells nothing that its author may not read', async (scene) => {
    const path = {'/v1/jobs/team-a-*': {capabilities: ['read']}}
    const policy = {name: 'team-a', rules: JSON.stringify({path})}
    await scene.store.putPolicy(policy)
    await addRule(scene, {}, {name: 'anna', kind: 'client', policies: ['team-a']})
    await scene.submit('team-a-load')
    await scene.submit('team-b-load')
    await scene.complete('team-a-load', 'failed')
    await scene.complete('team-b-load', 'failed')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/team-a-load/failed'])
    await scene.store.deletePolicy('team-a')
    await scene.complete('team-a-load', 'succeeded')
    assert.deepEqual(await sentAfter(scene, MINUTE), [])
  })

  when('output is in a message only if the author of the rule may read it', async (scene) => {
    const policyOf = (name: string, path: object) =>
      scene.store.putPolicy({name, rules: JSON.stringify({path})})
    const read = {capabilities: ['read']}
    await policyOf('jobs', {'/v1/jobs/*': read})
    await policyOf('all', {'/v1/jobs/**': read})
    await scene.submit('a')
    for (const [policy, tail] of [
      ['jobs', ''],
      ['all', 'kept'],
    ] as const) {
      await addRule(scene, {name: policy}, {name: 'anna', kind: 'client', policies: [policy]})
      await scene.complete('a', 'failed', {output: 'kept'})
      scene.advance(MINUTE)
      await evaluate(scene)
      const sent = (await claim(scene)).map(({message}) => message)
      const own = sent.find(({rule}) => rule === policy)!
      assert.equal(own.incidents[0]!.outputTail, tail, policy)
    }
  })

  when('followers leave what is new to the leader', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed')
    assert.deepEqual((await evaluate(scene, 15_000)).opened, [])
    scene.advance(15_000)
    assert.equal((await evaluate(scene, 15_000)).opened.length, 1)
  })

  when('servers that evaluate at once send nothing twice', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed')
    scene.advance(MINUTE)
    const results = await Promise.all([evaluate(scene), evaluate(scene), evaluate(scene)])
    assert.equal(
      results.reduce((sum, {messages}) => sum + messages, 0),
      1,
    )
    const claims = await Promise.all([claim(scene, 'a'), claim(scene, 'b')])
    assert.equal(claims.flat().length, 1)
  })

  when('a claim that expires is sent again with the same id, as a repetition', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed')
    scene.advance(5_000)
    await evaluate(scene)
    const [first] = await claim(scene, 'a')
    assert.equal(first!.message.repeat, false)
    assert.deepEqual(await claim(scene, 'b'), [])
    scene.advance(61_000)
    const [second] = await claim(scene, 'b')
    assert.deepEqual(
      [second!.message.id, second!.message.repeat, second!.message.attempt],
      [first!.message.id, true, 2],
    )
    assert.equal(await mark(scene, first!, 'sent', 'a'), false)
    assert.equal(await mark(scene, second!, 'sent', 'b'), true)
    scene.advance(HOUR)
    assert.deepEqual(await claim(scene, 'a'), [])
  })

  when('a recovery waits while another server sends the opening', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed')
    scene.advance(5_000)
    await evaluate(scene)
    const [opening] = await claim(scene, 'a')
    await scene.complete('a', 'succeeded')
    scene.advance(6_000)
    await evaluate(scene)
    assert.deepEqual(await claim(scene, 'b'), [])
    assert(await mark(scene, opening!, 'sent', 'a'))
    assert.deepEqual((await claim(scene, 'b')).map(shown), ['closed rule/a/failed'])
  })

  when('messages wait in order while a receiver is away', async (scene) => {
    await addRule(scene, {to: ['mail', 'chat']})
    await scene.submit('a')
    await scene.complete('a', 'failed')
    scene.advance(5_000)
    await evaluate(scene)
    const [first, other] = await claim(scene)
    assert.deepEqual([first!.channel, other!.channel].toSorted(), ['chat', 'mail'])
    const mail = first!.channel === 'mail' ? first! : other!
    assert(await mark(scene, mail, 'retry'))
    assert(await mark(scene, mail === first ? other! : first!, 'sent'))
    await scene.complete('a', 'succeeded')
    scene.advance(6_000)
    await evaluate(scene)
    const again = await claim(scene)
    assert.deepEqual(again.map(({channel, message}) => `${channel} ${message.kind}`).toSorted(), [
      'chat closed',
      'mail opened',
    ])
    const opened = again.find(({channel}) => channel === 'mail')!
    assert(await mark(scene, opened, 'sent'))
    assert.deepEqual((await claim(scene)).map(shown), ['closed rule/a/failed'])
  })

  when('a message that no receiver takes for 24 hours is dead', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed')
    scene.advance(5_000)
    await evaluate(scene)
    const [first] = await claim(scene)
    assert(await mark(scene, first!, 'retry'))
    scene.advance(25 * HOUR)
    const [last] = await claim(scene)
    assert.equal(last!.message.id, first!.message.id)
    assert(await mark(scene, last!, 'retry'))
    scene.advance(HOUR)
    assert.deepEqual(
      (await claim(scene)).filter(({message}) => message.id === first!.message.id),
      [],
    )
  })

  when('incidents and messages are listed by page, and a message is sent again', async (scene) => {
    await addRule(scene)
    for (const name of ['a', 'b', 'c_1']) {
      await scene.submit(name)
      await scene.complete(name, 'failed', {exitCode: 3})
      await sentAfter(scene, 2 * MINUTE)
    }
    await scene.complete('a', 'succeeded')
    await evaluate(scene)
    const {store} = scene
    const all = {state: null, rule: null, job: null, names: null, seesNodes: true} as const
    const incidentsOf = async (over: Partial<Parameters<typeof store.incidents>[0]>) => {
      const page = await store.incidents({...all, after: null, limit: 10, ...over})
      return page.items.map(({job}) => job).join(' ')
    }
    assert.equal(await incidentsOf({}), 'c_1 b a')
    assert.equal(await incidentsOf({state: 'open'}), 'c_1 b')
    assert.equal(await incidentsOf({job: 'c_*'}), 'c_1')
    assert.equal(await incidentsOf({names: [{pattern: 'a', shown: true}]}), 'a')
    assert.equal(await incidentsOf({rule: 'other'}), '')
    const first = await store.incidents({...all, after: null, limit: 2})
    assert.equal(await incidentsOf({after: first.next}), 'a')
    const some = {state: null, rule: null, channel: null, job: null, after: null, limit: 10}
    const {items} = await store.messages(some)
    assert.deepEqual(
      items.map(({state, attempts, channel}) => [state, attempts, channel]),
      Array.from({length: 3}, () => ['sent', 1, 'mail']),
    )
    const [found] = (await store.messages({...some, job: 'c_1'})).items
    assert.deepEqual((await store.messages({...some, state: 'dead'})).items, [])
    const {id} = found!.message
    const again = await store.resendMessage(id)
    assert.deepEqual([again!.state, again!.attempts, again!.message.repeat], ['waiting', 0, true])
    assert.deepEqual((await claim(scene)).map(shown), ['opened rule/c_1/failed'])
    assert.equal(await store.resendMessage('none'), null)
    const request = {rule: aRule({when: {failed: {}, lost: {}}}), names: null, lastMs: HOUR}
    const history = await store.noticeHistory(request)
    assert.deepEqual([history.jobs, history.jobsTotal], [['a', 'b', 'c_1'], 3])
    const ends = history.facts.filter(({kind}) => kind === 'ended')
    assert.deepEqual(
      ends.map(({job}) => job.name),
      ['a', 'b', 'c_1', 'a'],
    )
    const owned = {...request, rule: {...request.rule, owner: 'x', metadata: {team: 'a'}}}
    assert.deepEqual((await store.noticeHistory(owned)).facts, [])
  })

  when('old messages and incidents are removed', async (scene) => {
    await addRule(scene)
    await scene.submit('a')
    await scene.complete('a', 'failed')
    await scene.complete('a', 'succeeded')
    assert.equal((await sentAfter(scene, MINUTE)).length, 2)
    scene.advance(31 * 24 * HOUR)
    await scene.store.pruneNotices()
    assert.deepEqual(await claim(scene), [])
  })
}
