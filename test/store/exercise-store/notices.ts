/** Facts of notices, the incidents and messages that follow, and their delivery. */
import assert from 'node:assert/strict'
import type {NoticeAuthor} from '../../../src/core/notice-channel.ts'
import {RULE_DEFAULTS, type RuleDefinition} from '../../../src/core/notice-rule.ts'
import type {ClaimedNotice} from '../../../src/ports/notice-engine-store.ts'
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
    const channel = {name, kind: 'webhook', config, enabled: true}
    await scene.store.putChannel({channel, author, secret: null})
  }
  const stored = await scene.store.putRule({definition: rule, author})
  assert.equal(stored.kind, 'stored')
}

let seeds = 0

export async function evaluate(scene: Scene, olderThanMs = 0) {
  seeds += 1
  return await scene.store.evaluateNotices({olderThanMs, sweeps: [], seed: `s${seeds}`})
}

async function claim(scene: Scene, sender = 'a', free: Record<string, number> = {}) {
  return await scene.store.claimNotices({sender, free, otherwise: 4})
}

/** Advances, evaluates, and returns what would be sent now; each is marked as sent. */
async function sentAfter(scene: Scene, ms: number): Promise<readonly string[]> {
  scene.advance(ms)
  await evaluate(scene)
  const claimed = await claim(scene)
  for (const notice of claimed) assert(await mark(scene, notice, 'sent'))
  return claimed.map(shown)
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

  when('a message says why, how often, and which launch', async (scene) => {
    await addRule(scene, {severity: 'critical'})
    await scene.submit('a')
    const group = await scene.complete('a', 'failed', {exitCode: 3})
    scene.advance(5_000)
    await evaluate(scene)
    const [claimed] = await claim(scene)
    const {message} = claimed!
    assert.equal(message.summary, 'a: exit status 3')
    assert.equal(message.severity, 'critical')
    const [incident] = message.incidents
    assert.deepEqual(incident!.sentences, [`Launch ${group} failed: exit status 3.`])
    assert.deepEqual([incident!.launch, incident!.count, incident!.closedAt], [group, 1, null])
    assert.equal(incident!.execution, `${group}-node-1-1`)
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
    await scene.store.deleteJob('a')
    assert.deepEqual(await sentAfter(scene, MINUTE), ['opened rule/a/deleted'])
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
