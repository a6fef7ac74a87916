/**
 * Failure scenarios of a replicated PostgreSQL: the primary dies, the synchronous standby fails, an old
 * primary returns after a promotion. Each ends with all servers healthy.
 */
import {elapse} from '../faults/load.ts'
import type {Pair} from './pair.ts'
import type {Patroni} from './patroni.ts'
import {say, seconds, type Stage} from './stage.ts'

/** Load before and after each fault. */
const CALM_MS = 8_000
/** Time that a failover manager takes to detect a dead primary, before it promotes. */
const DETECTION_MS = 5_000
/** Exceeds any commit timeout of Belfry. */
const GONE_MS = 20_000
/** Belfry's share of a failover. */
const RESUMED_WITHIN_MS = 5_000

export type Scenario = (stage: Stage, pair: Pair) => Promise<void>

/** Kills the primary under load, promotes the standby, and rebuilds the old primary as a standby. */
export async function failover(stage: Stage, pair: Pair): Promise<void> {
  await elapse(CALM_MS)
  await loseThePrimary(stage, pair)
  await elapse(CALM_MS)
  await pair.rebuild()
  say(`  ${pair.standby.name} follows ${pair.primary.name}, synchronously`)
  await elapse(CALM_MS)
  await stage.ready()
}

async function loseThePrimary(stage: Stage, pair: Pair): Promise<void> {
  const {name} = pair.primary
  const killedAt = Date.now()
  await pair.primary.kill()
  await elapse(DETECTION_MS)
  const acknowledged = stage.write()
  const promotedAt = Date.now()
  await pair.promote()
  const tookMs = Date.now() - promotedAt
  say(`  ${name} killed, ${pair.primary.name} promoted after ${seconds(promotedAt - killedAt)}`)
  say(`  promotion took ${seconds(tookMs)}`)
  await resumed(stage, promotedAt, promotedAt + tookMs, acknowledged)
}

/**
 * Prints how soon Belfry resumed. The database's part of the failover lasted from `since` to `writableAt`,
 * both ms since the epoch.
 */
async function resumed(
  stage: Stage,
  since: number,
  writableAt: number,
  acknowledged: Promise<number>,
): Promise<void> {
  const launchedMs = Math.max(0, (await stage.firstLaunch(since)) - writableAt)
  const answeredMs = Math.max(0, (await acknowledged) - writableAt)
  await stage.ready()
  const readyMs = Date.now() - writableAt
  say(`  then the first launch after ${seconds(launchedMs)}, the first write acknowledged`)
  say(`  after ${seconds(answeredMs)}, every server ready after ${seconds(readyMs)}`)
  if (launchedMs > RESUMED_WITHIN_MS) stage.note(`launching resumed only after ${launchedMs} ms`)
}

/** Kills the primary and its Patroni under load; the others elect a new primary, and the old one returns. */
export async function patroniFailover(stage: Stage, patroni: Patroni): Promise<void> {
  await elapse(CALM_MS)
  const old = await patroni.primary()
  const killedAt = Date.now()
  await patroni.kill(old)
  const acknowledged = stage.write()
  const next = await patroni.primary()
  say(`  ${old} killed, ${next} is the primary after ${seconds(Date.now() - killedAt)}`)
  await patroni.commit(next)
  const writableAt = Date.now()
  say(`  and has a synchronous standby after ${seconds(writableAt - killedAt)}`)
  await resumed(stage, killedAt, writableAt, acknowledged)
  await elapse(CALM_MS)
  patroni.start(old)
  await patroni.whole()
  say(`  ${old} follows again, by itself`)
  await elapse(CALM_MS)
  await stage.ready()
}

/** Kills the only synchronous standby: no write is acknowledged until it returns or is no longer required. */
export async function standbyGone(stage: Stage, pair: Pair): Promise<void> {
  for (const remedy of ['it is back', 'it is taken out of synchronous_standby_names'] as const) {
    await elapse(CALM_MS)
    await pair.standby.kill()
    const calls = {...numbers(stage)}
    const startsBefore = stage.starts()
    await elapse(GONE_MS)
    const now = numbers(stage)
    const {status} = await stage.cluster.running()[0]!.get('/jobs')
    if (status !== 200) stage.note(`jobs cannot be read: ${status}`)
    const waiting = await pair.waiting()
    say(
      `  no standby for ${seconds(GONE_MS)}: ${stage.starts() - startsBefore} executions started,`,
    )
    say(
      `  ${now.acknowledged - calls.acknowledged} calls acknowledged, ` +
        `${now.refused - calls.refused} refused, ${waiting} commits wait in the database`,
    )
    const acknowledged = stage.write()
    const healedAt = Date.now()
    if (remedy === 'it is back') {
      await pair.standby.start()
      await pair.primary.untilSynchronous()
    } else await pair.primary.waitFor('')
    const launchedMs = (await stage.firstLaunch(healedAt)) - healedAt
    const answeredMs = (await acknowledged) - healedAt
    say(`  ${remedy}: launch after ${seconds(launchedMs)}, a write after ${seconds(answeredMs)}`)
    await stage.ready()
  }
  await pair.standby.start()
  await pair.synchronise()
}

function numbers({calls: {acknowledged, refused}}: Stage) {
  return {acknowledged, refused}
}

/**
 * Split brain: the standby is promoted although the primary is healthy. Then the old one restarts as a
 * primary by mistake while the promoted one is down, finally without waiting for a standby.
 */
export async function splitBrain(stage: Stage, pair: Pair): Promise<void> {
  await elapse(CALM_MS)
  const old = pair.primary
  await pair.promote()
  const promotedAt = Date.now()
  const launchedMs = (await pair.launchAfter(promotedAt)) - promotedAt
  await stage.ready()
  await pair.deserted(old)
  say(
    `  ${pair.primary.name} promoted beside ${old.name}: launches there after ${seconds(launchedMs)}`,
  )
  await old.kill()
  await old.start()
  for (const isCareless of [false, true]) {
    if (isCareless) await old.waitFor('')
    const how = isCareless ? 'waiting for no standby' : 'waiting for its standby'
    say(`  ${old.name} is back as a second primary, ${how}`)
    const before = await pair.traces(old)
    await elapse(CALM_MS)
    const name = stage.cluster.serverNames.at(-1)!
    await stage.cluster.server(name).stop()
    await stage.cluster.startServer(name)
    say(`  a Belfry server started while both are up`)
    await pair.primary.kill()
    await elapse(DETECTION_MS)
    await pair.primary.start()
    say(`  the promoted one was down for ${seconds(DETECTION_MS)}`)
    await stage.firstLaunch(Date.now())
    await stage.ready()
    const after = await pair.traces(old)
    if (after.launches !== before.launches)
      stage.note(`${after.launches - before.launches} launches were decided at the old primary`)
    if (after.connections > 0) stage.note(`${after.connections} connections to the old primary`)
  }
  await old.kill()
  await pair.rebuild()
  await stage.ready()
}
