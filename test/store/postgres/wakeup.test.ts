/**
 * Notifications between servers: each reaches every server, over a connection with one request at a time,
 * however slow it is.
 */
import assert from 'node:assert/strict'
import {EventEmitter} from 'node:events'
import {after, before, describe, it} from 'node:test'
import {postgresWakeup} from '../../../src/store/postgres/wakeup.ts'
import type {Topic} from '../../../src/ports/runtime.ts'
import type {Session} from '../../../src/store/postgres/connection.ts'
import {localWakeup} from '../../../src/platform/wakeup.ts'
import {systemRandom} from '../../../src/platform/random.ts'
import {freshSchema, openAt} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'
import {VirtualClock} from '../../support/virtual-clock.ts'

describe('notifications over a real database', () => {
  let postgres: TestPostgres
  before(async () => {
    postgres = await TestPostgres.start()
  })
  after(() => postgres.close())

  for (const topic of ['launch', 'run', 'cancel', 'lead', 'access'] as const)
    it(`${topic} reaches another server`, async () => {
      const url = freshSchema(postgres.url())
      const [one, other] = [await openAt(url), await openAt(url)]
      const wakeups = [one.wakeupOver(localWakeup()), other.wakeupOver(localWakeup())] as const
      // Both notify every topic after they connect.
      await Promise.all(wakeups.map((wakeup) => nextNotification(wakeup.subscribe, topic)))
      const notified = nextNotification(wakeups[1].subscribe, topic)
      wakeups[0].notify(topic)
      await notified
      await Promise.all(wakeups.map((wakeup) => wakeup.close()))
      await Promise.all([one.store.close(), other.store.close()])
    })
})

function nextNotification(
  subscribe: (topic: Topic, listener: () => void) => () => void,
  topic: Topic,
): Promise<void> {
  return new Promise((resolve) => {
    const unsubscribe = subscribe(topic, () => {
      unsubscribe()
      resolve()
    })
  })
}

/** A connection that replies when the test says so. */
class SlowSession {
  readonly host = {host: '127.0.0.1', port: 1}
  readonly client = new EventEmitter()
  readonly asked: string[] = []
  readonly #waiting: ((result: unknown) => void)[] = []
  atOnceMax = 0

  run(sql: string): Promise<unknown> {
    return this.#ask(sql)
  }

  rows(_sql: string, values: readonly string[]): Promise<unknown> {
    return this.#ask(values[1]!.split(' ').slice(1).join(' '))
  }

  answer(): void {
    this.#waiting.shift()?.([])
  }

  async close(): Promise<void> {}
  destroy(): void {
    this.client.emit('end')
  }

  #ask(what: string): Promise<unknown> {
    this.asked.push(what)
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.atOnceMax = Math.max(this.atOnceMax, this.#waiting.length)
    })
  }
}

it('topics notified during a request are sent together with the next one', async () => {
  const clock = new VirtualClock()
  const slow = new SlowSession()
  // The part of a session that the wakeup uses.
  const session = slow as unknown as Session
  const primary = {connect: async () => session, host: slow.host}
  const options = {primary, schema: 'one', clock, random: systemRandom(), local: localWakeup()}
  const wakeup = postgresWakeup(options)
  await clock.settle()
  for (const topic of ['launch', 'run', 'cancel', 'run'] as const) {
    wakeup.notify(topic)
    await clock.advance(10)
  }
  assert.deepEqual(slow.asked, ['LISTEN "belfry_one"'])
  slow.answer()
  await clock.settle()
  wakeup.notify('lead')
  await clock.advance(10)
  slow.answer()
  await clock.advance(10)
  assert.deepEqual(slow.asked.slice(1), ['launch run cancel', 'lead'])
  assert.equal(slow.atOnceMax, 1)
  slow.answer()
  await wakeup.close()
})

it('a replaced primary is disconnected, though it still responds', async () => {
  const clock = new VirtualClock()
  const old = new SlowSession()
  const promoted = new SlowSession()
  let current = old
  const primary = {
    // The part of a session that the wakeup uses.
    connect: async () => current as unknown as Session,
    get host() {
      return current.host
    },
  }
  const options = {primary, schema: 'one', clock, random: systemRandom(), local: localWakeup()}
  const wakeup = postgresWakeup(options)
  await clock.settle()
  old.answer()
  await clock.settle()
  current = promoted
  await clock.advance(5_000)
  old.answer()
  await clock.advance(1_000)
  assert.deepEqual(promoted.asked, ['LISTEN "belfry_one"'])
  promoted.answer()
  await wakeup.close()
})
