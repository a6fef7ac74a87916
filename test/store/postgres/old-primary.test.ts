/**
 * A replaced primary that restarts as a primary by mistake while the promoted one is in use. No process
 * returns to it, and a process that starts while both run finds the promoted one.
 */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {OutcomeUnknown, StoreUnavailable} from '../../../src/ports/store-errors.ts'
import type {Store} from '../../../src/ports/store.ts'
import {freshSchema, openAt} from '../../support/postgres-cluster.ts'
import {TestPostgres} from '../../support/postgres.ts'

let old: TestPostgres
let promoted: TestPostgres
let url: string
let store: Store

before(async () => {
  old = await TestPostgres.start()
  promoted = await old.standby('standby')
  const first = freshSchema(old.url())
  url = first.replace(`:${old.port}`, `:${old.port},127.0.0.1:${promoted.port}`)
  store = (await openAt(url)).store
  await store.putPolicy({name: 'before', rules: ''})
  const there = `SELECT FROM ${url.split('schema=')[1]}.policies`
  // The standby is asynchronous.
  while ((await promoted.run(there).catch(() => [])).length === 0);
  await old.kill()
  await promoted.run('SELECT pg_promote()')
  await untilItWorks()
  await store.putPolicy({name: 'after', rules: ''})
  await old.resume()
})
after(async () => {
  await store.close()
  await promoted.close()
  await old.close()
})

async function untilItWorks(): Promise<void> {
  for (;;) {
    const worked = await store.probe().then(
      () => true,
      (error: unknown) => {
        assert(error instanceof StoreUnavailable || error instanceof OutcomeUnknown)
        return false
      },
    )
    if (worked) return
  }
}

async function names(of: Store): Promise<string[]> {
  return (await of.policies()).map(({name}) => name)
}

describe('an old primary that returned', () => {
  it('is not used by a process that starts while both run', async () => {
    const {store: other} = await openAt(url)
    assert.deepEqual(await names(other), ['after', 'before'])
    await other.close()
  })

  it('is not used while the promoted one is down', async () => {
    await promoted.kill()
    await assert.rejects(store.policies(), {
      name: 'StoreUnavailable',
      message: /is an old primary \(timeline 1, and 2 was in use\)/,
    })
    await assert.rejects(store.putPolicy({name: 'lost', rules: ''}), StoreUnavailable)
    await promoted.resume()
    await untilItWorks()
    assert.deepEqual(await names(store), ['after', 'before'])
  })

  it('is used by a process that starts while no other primary runs', async () => {
    await promoted.kill()
    const {store: other} = await openAt(url)
    assert.deepEqual(await names(other), ['before'])
    await other.close()
    await promoted.resume()
  })
})

describe('a role without extra privileges', () => {
  it('can read the timeline', async () => {
    await promoted.run('CREATE ROLE modest LOGIN; CREATE SCHEMA modest AUTHORIZATION modest')
    const hosts = `127.0.0.1:${old.port},127.0.0.1:${promoted.port}`
    const {store: other} = await openAt(`postgres://modest@${hosts}/postgres?schema=modest`)
    await promoted.kill()
    await old.run('CREATE ROLE modest LOGIN; CREATE SCHEMA modest AUTHORIZATION modest')
    await assert.rejects(other.probe(), /is an old primary/)
    await other.close()
    await promoted.resume()
  })
})
