/**
 * What goes wrong with a replicated PostgreSQL: its primary dies, its synchronous standby is gone, and an old
 * primary comes back though another has taken its place. Each ends with everything healthy again.
 */
import {elapse} from '../real-cluster/load.ts'
import type {Pair} from './pair.ts'
import {say, seconds, type Stage} from './stage.ts'

/** Load before and after each fault. */
const CALM_MS = 8_000
/** What finds out that a primary is gone takes so long; then it promotes. */
const DETECTION_MS = 5_000
/** Longer than any limit of Belfry's for one commit. */
const GONE_MS = 20_000
/** Belfry's share of a failover. */
const RESUMED_WITHIN_MS = 5_000

export type Scenario = (stage: Stage, pair: Pair) => Promise<void>

/** kill -9 for the primary under load, the standby is promoted, and the old one made its standby. */
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
  const acknowledged = stage.nextAcknowledged()
  const promotedAt = Date.now()
  await pair.promote()
  const tookMs = Date.now() - promotedAt
  say(`  ${name} killed, ${pair.primary.name} promoted after ${seconds(promotedAt - killedAt)}`)
  // The store's own part of it is over when it takes writes.
  const writableAt = promotedAt + tookMs
  const launchedMs = Math.max(0, (await stage.firstLaunch(promotedAt)) - writableAt)
  const answeredMs = Math.max(0, (await acknowledged) - writableAt)
  await stage.ready()
  const readyMs = Date.now() - writableAt
  say(`  promotion took ${seconds(tookMs)}; after it the first launch at ${seconds(launchedMs)},`)
  say(`  the first write acknowledged at ${seconds(answeredMs)}, all ready at ${seconds(readyMs)}`)
  if (launchedMs > RESUMED_WITHIN_MS) stage.note(`launching resumed only after ${launchedMs} ms`)
}

/** The only synchronous standby is gone: nothing is acknowledged until it is back, or not waited for. */
export async function standbyGone(stage: Stage, pair: Pair): Promise<void> {
  for (const remedy of ['it is back', 'it is taken out of synchronous_standby_names'] as const) {
    await elapse(CALM_MS)
    await pair.standby.kill()
    const calls = {...numbers(stage)}
    const startsBefore = stage.starts()
    await elapse(GONE_MS)
    const now = numbers(stage)
    const waiting = await pair.waiting()
    say(`  no standby for ${seconds(GONE_MS)}: ${stage.starts() - startsBefore} executions began,`)
    say(
      `  ${now.acknowledged - calls.acknowledged} calls acknowledged, ` +
        `${now.refused - calls.refused} refused, ${waiting} commits wait in the database`,
    )
    const acknowledged = stage.nextAcknowledged()
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
 * The old primary is started again as one while the promoted one is in use, by mistake; then the promoted one
 * is away for a while, so that the old one is all there is. `careless`: it does not even wait for a standby.
 */
export async function splitBrain(stage: Stage, pair: Pair): Promise<void> {
  await elapse(CALM_MS)
  await loseThePrimary(stage, pair)
  const old = pair.standby
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
    say(`  a server started anew while both are there`)
    await pair.primary.kill()
    await elapse(DETECTION_MS)
    await pair.primary.start()
    say(`  the promoted one was away for ${seconds(DETECTION_MS)}`)
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
