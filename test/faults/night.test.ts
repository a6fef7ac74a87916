/**
 * A bad night, and the questions of the person on call: two real servers, one PostgreSQL, and a receiver of
 * notices. Six causes are planted: a killed leader, a disabled job, a tag that no node has, a chain that
 * fails, a pause of firing, and a full disk of the store. `belfry problems`, `explain`, `trace` and the
 * notices must name each with its cause and state, and say that it is over once it is repaired.
 */
import assert from 'node:assert/strict'
import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {systemClock} from '../../src/platform/clock.ts'
import {ClusterProcess} from '../../tools/faults/cluster-process.ts'
import {runHere} from '../cli/run-cli.ts'
import {type HttpReceiver, startHttp} from '../notices/receivers.ts'
import {type Answer, type ServerProcess, temporaryDirectory} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

const TOKEN = 'the-token-of-the-configuration'
/** The shortest that each condition allows, but for `no_leader`, which must not last that long. */
const CONDITIONS = {
  failed: {},
  skipped: {},
  missed: {},
  lost: {},
  disabled: {},
  no_leader: {for: '5m'},
  node_failed: {},
  firing_paused: {for: '1m'},
  store: {for: '10s'},
}
/** Exceeds the shortest length of `firing_paused` and of `no_success_for`, and a sweep. */
const SLOW_NOTICE_MS = 150_000
const OUTPUT = 'relation orders does not exist'

type Json = Answer['json']

interface Night {
  readonly cluster: ClusterProcess
  readonly receiver: HttpReceiver
  /** The leader at first, which is killed. */
  readonly killed: string
  /** The server that survives, and its name. */
  readonly server: ServerProcess
  readonly survivor: string
  /** Token of Alice. */
  readonly secret: string
  /** While this file does not exist, the chain fails. */
  readonly repaired: string
}

test('a bad night: each cause is named, and what is over is said to be over', async (t) => {
  const night = await startNight(t)
  await storeRules(night)
  await storeJobs(night)
  const failed = await breakThings(night)
  await untilOpened(night, 'disabled/sync/disabled')
  await untilOpened(night, 'failed/extract/failed')
  await untilOpened(night, 'skipped/report/skipped')
  await untilOpened(night, `node_failed/${night.killed}/node_failed`)
  await fillDisk(night)
  await untilOpened(night, 'firing_paused/backup-*/firing_paused')
  await untilOpened(night, 'fresh/report/no_success_for')
  await t.test('problems names each cause', () => problemsAtNight(night, failed))
  await t.test('explain and trace say why each job did not run', () => explained(night, failed))
  await repair(night)
  await t.test('all is over', () => problemsInTheMorning(night, failed))
  await t.test('each notice was sent once', () => noticesOfTheNight(night))
})

async function startNight(t: TestContext): Promise<Night> {
  const cluster = await ClusterProcess.start(t, {
    servers: ['north', 'south'],
    flags: ['--token', TOKEN, '--tag', 'group=web', '--target-wait', '10s'],
  })
  const receiver = await startHttp(t)
  const known = cluster.server('south')
  const killed = await until('a leader', async () => {
    const {status, json} = await known.ask('GET', '/leader', undefined, header(TOKEN))
    return status === 200 && String(json.Name)
  })
  const survivor = killed === 'north' ? 'south' : 'north'
  const server = cluster.server(survivor)
  const token = {name: 'alice', type: 'management'}
  const {json} = await server.ask('POST', '/acl/tokens', token, header(TOKEN))
  const repaired = join(temporaryDirectory(t), 'repaired')
  return {cluster, receiver, killed, server, survivor, secret: json.secret, repaired}
}

function header(token: string) {
  return {'x-service-token': token}
}

/** A request of Alice. */
async function ask(night: Night, method: string, path: string, body?: unknown): Promise<Json> {
  const answer = await night.server.ask(method, path, body, header(night.secret))
  assert(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`)
  return answer.json
}

/** A command of Alice, in this process. */
async function belfry({server, secret}: Night, ...argv: string[]) {
  const env = {BELFRY_SERVER: server.url, BELFRY_TOKEN: secret}
  const {code, out, err} = await runHere(argv, {env, clock: systemClock()})
  assert.equal(err.replace(/^error: problems that are not over\n/, ''), '', argv.join(' '))
  return {code, out}
}

/** Rules, one for each condition: the second message of a rule waits for a minute. */
async function storeRules(night: Night): Promise<void> {
  const hook = {kind: 'webhook', config: {url: night.receiver.url}}
  await ask(night, 'PUT', '/notices/channels/hook', hook)
  const common = {to: ['hook'], group_wait: '1s'}
  for (const [name, parameters] of Object.entries(CONDITIONS))
    await ask(night, 'PUT', `/notices/rules/${name}`, {...common, when: {[name]: parameters}})
  const when = {no_success_for: {for: '1m'}}
  await ask(night, 'PUT', '/notices/rules/fresh', {...common, jobs: 'report', when})
}

/** Jobs run on the survivor: none is lost with the leader. */
async function storeJobs(night: Night): Promise<void> {
  const job = (name: string, schedule: string, more: object = {}, command = 'true') =>
    ask(night, 'POST', '/jobs', {
      name,
      schedule,
      catch_up: 'all',
      tags: {node: night.survivor},
      executor: 'shell',
      executor_config: {shell: 'true', command},
      ...more,
    })
  await job('tick', '* * * * * *')
  await job('sync', '* * * * * *')
  await job('backup-db', '* * * * * *')
  await job('report', '@every 5s', {tags: {group: 'wbe'}})
  const test = `test -e ${night.repaired} || { echo '${OUTPUT}'; exit 3; }`
  await job('extract', '@manually', {}, test)
  await job('load', '', {parent_job: 'extract'})
  await job('mail', '', {parent_job: 'load'})
}

/** Number of the launch that fails. */
async function breakThings(night: Night): Promise<number> {
  const {server, cluster, killed, secret} = night
  const end = new Date(Date.now() + 3_600_000).toISOString()
  await ask(night, 'POST', '/firing/pause', {jobs: 'backup-*', reason: 'new storage', until: end})
  await until('a launch', async () => (await launches(night, 'tick')).length > 0)
  cluster.program(killed).signal('SIGKILL')
  await belfry(night, 'jobs', 'disable', 'sync')
  const run = await server.ask('POST', '/jobs/extract/run', undefined, header(secret))
  return Number(run.headers.get('x-launch-id'))
}

/** Launches of the job, oldest first. */
async function launches(night: Night, job: string): Promise<Json[]> {
  return (await ask(night, 'GET', `/jobs/${job}/launches?_end=1000`)).toReversed()
}

/**
 * Each write fails as on a full disk, until the notice about that arrives. Triggers raise that
 * error: they are made once, and their function is replaced, which waits for no lock of a table.
 */
async function fillDisk(night: Night): Promise<void> {
  const {cluster} = night
  const database = new URL(cluster.store).pathname.slice(1)
  const run = (sql: string) => cluster.postgres.run(sql, database)
  const onWrite = (body: string) =>
    run(`CREATE OR REPLACE FUNCTION on_write() RETURNS trigger LANGUAGE plpgsql
      AS $$ BEGIN ${body} RETURN NULL; END $$`)
  await onWrite('')
  const tables = await run(`SELECT format('%I.%I', schemaname, tablename) AS name FROM pg_tables
    WHERE schemaname NOT IN ('pg_catalog', 'information_schema')`)
  for (const {name} of tables)
    await run(`CREATE TRIGGER on_write AFTER INSERT OR UPDATE OR DELETE ON ${String(name)}
      FOR EACH STATEMENT EXECUTE FUNCTION on_write()`)
  await onWrite(`RAISE EXCEPTION USING ERRCODE = 'disk_full',
    MESSAGE = 'could not extend file "base/5/16398": No space left on device';`)
  await untilOpened(night, 'store/cluster/store')
  const {code, out} = await belfry(night, 'problems', '--since', '1h')
  assert.equal(code, 1)
  assert.match(sectionsOf(out)['NOT OVER']!, /cluster +The store cannot be written: nothing/)
  assert.doesNotMatch(out, /No server has led/, 'that is the same problem')
  const {out: tick} = await belfry(night, 'explain', 'tick')
  assert.match(tick, /is not decided yet: no server leads since/)
  await onWrite('')
  await untilClosed(night, 'store/cluster/store')
}

/** Messages in the order in which they arrived. */
function sent({receiver}: Night): Json[] {
  return receiver.received.map(({body}) => JSON.parse(body))
}

function incidents(night: Night, kind: string, key: string): Json[] {
  return sent(night)
    .filter((message) => message.kind === kind)
    .flatMap((message) => message.incidents)
    .filter((incident) => incident.key === key)
}

function untilOpened(night: Night, key: string): Promise<Json> {
  return until(`${key} opened`, () => incidents(night, 'opened', key)[0], SLOW_NOTICE_MS)
}

function untilClosed(night: Night, key: string): Promise<Json> {
  return until(`${key} closed`, () => incidents(night, 'closed', key)[0], SLOW_NOTICE_MS)
}

/** Text below each headline of `belfry problems`; keys: headlines. */
function sectionsOf(out: string): Record<string, string> {
  const [, ...parts] = out.split(/^(NOT OVER|OVER|ON PURPOSE)$/m)
  return Object.fromEntries(
    parts.flatMap((part, at) => (at % 2 === 0 ? [[part, parts[at + 1]!]] : [])),
  )
}

const NO_LEADER = /No server led for \ds\. (\w+) ended, (\w+) took over\./
const LATE = /[1-9]\d* planned times? (?:was|were) late, 0 missed\./
const DISK = /No server led for \d+s, because the store took no writes\. (\w+) leads now\./

async function problemsAtNight(night: Night, failed: number): Promise<void> {
  const {killed, survivor} = night
  const {code, out} = await belfry(night, 'problems', '--since', '1h')
  assert.equal(code, 1)
  assert.match(out, /^4 problems since .*, 3 not over\n/)
  const {'NOT OVER': open, OVER: over, 'ON PURPOSE': meant} = sectionsOf(out)
  assert.deepEqual(NO_LEADER.exec(open!)?.slice(1), [killed, survivor], out)
  assert.match(open!, new RegExp(`${killed} failed, and is not back\\. ${LATE.source}`))
  assert.match(open!, /failed +extract failed: exit code 3\./)
  const chain = `3 jobs \\(extract, load and mail\\), launch ${failed}, .*, 2 dependents did not run`
  assert.match(open!, new RegExp(`${chain}\n.*: ${OUTPUT}\n[^]*belfry trace ${failed}\n`))
  assert.match(open!, /skipped +No node has group=wbe\.\n +report, \d+ planned times/)
  assert.match(open!, /Nearest tag: group=web \(2 nodes\)\./)
  assert.equal(DISK.exec(over!)?.[1], survivor, out)
  assert.match(meant!, /disabled +alice disabled sync\./)
  assert.match(meant!, /paused +Firing was paused by alice: "new storage"\./)
  assert.match(meant!, /backup-db, \d+ planned times, since .*, until /)
  await countsAtNight(night, failed)
}

/** The numbers are those of the rows. */
async function countsAtNight(night: Night, failed: number): Promise<void> {
  const {out} = await belfry(night, '--json', 'problems', '--since', '1h')
  const {problems, on_purpose: onPurpose, to} = JSON.parse(out)
  const byCode = new Map<string, Json>(
    [...problems, ...onPurpose].map((each: Json) => [`${each.code} ${each.over}`, each]),
  )
  const of = (key: string) => byCode.get(key) ?? assert.fail(`no ${key} in ${out}`)
  assert.deepEqual([...byCode.keys()].toSorted(), [
    'disabled false',
    'failed false',
    'firing_paused false',
    'no_leader false',
    'no_leader true',
    'no_target false',
  ])
  const {exit_code: exitCode, dependents, last_line: lastLine} = of('failed false').cause
  assert.deepEqual([exitCode, dependents, lastLine], [3, 2, OUTPUT])
  assert.deepEqual(of('failed false').launches, [failed])
  assert.deepEqual(of('no_target false').cause.tags, {group: 'wbe'})
  for (const [key, job] of [
    ['disabled false', 'sync'],
    ['firing_paused false', 'backup-db'],
  ] as const) {
    const {since, planned_times: count, jobs, cause} = of(key)
    assert.deepEqual([jobs, cause.by], [[job], 'alice'])
    const seconds = Math.floor((Date.parse(to) - Date.parse(since)) / 1_000) + 1
    assert(Math.abs(count - seconds) <= 2, `${job}: ${count} planned times in ${seconds} s`)
  }
  assert.equal(of('no_leader false').cause.missed, 0)
  assert.deepEqual(of('no_leader false').jobs, ['tick'])
}

async function explained(night: Night, failed: number): Promise<void> {
  const {survivor, killed} = night
  const says = async (job: string, ...sentences: RegExp[]) => {
    const {out} = await belfry(night, 'explain', job)
    for (const sentence of sentences) assert.match(out, sentence)
  }
  await says('tick', new RegExp(`launched on ${survivor}`))
  await says('sync', /alice disabled it at \S+ from 127\.0\.0\.1\./, /belfry jobs enable sync/)
  const paused = /paused by alice from \S+ until \S+: "new storage"\.[^]*unpause --firing --jobs/
  await says('backup-db', /\d+ planned times from .* did not run/, paused)
  await says('report', /node with group=wbe/, /Nearest tag: group=web/, /jobs edit report/)
  await says('extract', /exit code 3\./, new RegExp(OUTPUT), /belfry runs output extract/)
  await says('load', new RegExp(`extract failed in launch ${failed}\\.`), /explain extract/)
  await says('mail', /load did not run \(launch \d+\)\./, /explain load/)
  const {out} = await belfry(night, 'trace', `${failed}`)
  assert.match(out, new RegExp(`^extract +${failed} .* failed +exit code 3$`, 'm'))
  assert.match(out, new RegExp(`load .* not run +extract failed in launch ${failed}\\.`))
  assert.match(out, /mail .* not run +load did not run/)
  const rows = await launches(night, 'tick')
  for (const [at, {scheduled_at: time, decision}] of rows.entries()) {
    assert.equal(Date.parse(time), Date.parse(rows[0].scheduled_at) + at * 1_000)
    assert.equal(decision, 'launched', `${killed} was killed before ${time}`)
  }
}

async function repair(night: Night): Promise<void> {
  writeFileSync(night.repaired, '')
  await belfry(night, 'unpause', '--firing', '--jobs', 'backup-*')
  await belfry(night, 'jobs', 'enable', 'sync')
  const {revision: _revision, ...report} = await ask(night, 'GET', '/jobs/report')
  await ask(night, 'POST', '/jobs', {...report, tags: {group: 'web'}})
  await belfry(night, 'jobs', 'run', 'extract')
  await ask(night, 'DELETE', `/members/${night.killed}`)
  await until('all incidents are closed', () => opened(night).length === closed(night).length)
}

function keysOf(night: Night, kind: string): string[] {
  const first = sent(night).filter((message) => message.kind === kind && !message.repeat)
  const keys: string[] = first.flatMap(({incidents: all}) => all.map(({key}: Json) => key))
  return keys.toSorted()
}

const opened = (night: Night) => keysOf(night, 'opened')
const closed = (night: Night) => keysOf(night, 'closed')

async function problemsInTheMorning(night: Night, failed: number): Promise<void> {
  const {killed, survivor} = night
  const {code, out} = await belfry(night, 'problems', '--since', '1h')
  assert.equal(code, 0, out)
  assert.match(out, /^4 problems since .*, 0 not over\n/)
  const {'NOT OVER': open, OVER: over, 'ON PURPOSE': meant} = sectionsOf(out)
  assert.equal(open, undefined)
  assert.deepEqual(NO_LEADER.exec(over!)?.slice(1), [killed, survivor], out)
  assert.equal(DISK.exec(over!)?.[1], survivor, out)
  assert.match(over!, new RegExp(`extract failed: exit code 3\\.\n.*, launch ${failed}, .* to `))
  assert.match(over!, /No node has group=wbe\./, 'the tag is web by now')
  assert.doesNotMatch(out, /is not back|Correct the tag/)
  assert.match(meant!, /alice disabled sync\.\n/)
  assert.doesNotMatch(meant!, /until/, 'the pause ended before its end')
  const skipped = (await launches(night, 'report')).find(({decision}) => decision === 'skipped')
  const then = await belfry(night, 'explain', 'report', '--launch', `${skipped.group}`)
  assert.match(then.out, /for a node with group=wbe, and none took it\.\nIts tags were changed/)
}

async function noticesOfTheNight(night: Night): Promise<void> {
  const keys = [
    'disabled/sync/disabled',
    'failed/extract/failed',
    'firing_paused/backup-*/firing_paused',
    'fresh/report/no_success_for',
    `node_failed/${night.killed}/node_failed`,
    'skipped/report/skipped',
    'store/cluster/store',
  ]
  assert.deepEqual(opened(night), keys)
  assert.deepEqual(closed(night), keys)
  const messages = sent(night)
  const ids = messages.filter(({repeat}) => !repeat).map(({id}) => id)
  assert.equal(new Set(ids).size, ids.length, 'a repetition has the id of its message')
  for (const {id, repeat} of messages) assert(!repeat || ids.includes(id), id)
  const summaries = messages.map(({summary}) => String(summary))
  assert(summaries.includes('the store cannot be written: over'), summaries.join('\n'))
  const told = (kind: string, key: string) => {
    const [{sentences, advice}] = incidents(night, kind, key)
    return [...sentences, advice].join(' ')
  }
  const says = (key: string, sentence: RegExp, over: RegExp) => {
    assert.match(told('opened', key), sentence)
    assert.match(told('closed', key), over)
  }
  says(keys[0]!, /alice disabled it at .* belfry jobs enable sync$/, /The job was enabled\./)
  says(keys[1]!, /exit code 3\. 2 dependents did not run: load and mail\./, /and succeeded/)
  says(keys[2]!, /Firing of backup-\* was paused by alice .*"new storage"/, /It is over\./)
  says(keys[3]!, /has not since .*; no node has its tags\./, /succeeded/)
  says(keys[4]!, new RegExp(`Node ${night.killed} has sent no heartbeats`), /It is over\./)
  says(keys[5]!, /group=wbe.* Nearest tag: group=web/, /launched \d+s later|launched on/)
  says(
    keys[6]!,
    /The store accepts no writes, .*the disk/,
    /^The store accepts writes again\. .*Z\. $/,
  )
}
