/**
 * A primary that was replaced and comes back as one by mistake, with the promoted one in use: nobody ever
 * goes back to it, and who starts while both are there finds the promoted one.
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

describe('an old primary that came back', () => {
  it('is not found by whoever starts while both are there', async () => {
    const {store: other} = await openAt(url)
    assert.deepEqual(await names(other), ['after', 'before'])
    await other.close()
  })

  it('is not gone back to while the promoted one is away', async () => {
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

  it('is the primary again for one that starts with nothing else there: it cannot know', async () => {
    await promoted.kill()
    const {store: other} = await openAt(url)
    assert.deepEqual(await names(other), ['before'])
    await other.close()
    await promoted.resume()
  })
})

describe('a role with no rights but its own', () => {
  it('is told the timeline too', async () => {
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
