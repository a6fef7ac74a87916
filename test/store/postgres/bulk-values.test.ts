/** Values that are sent for many rows at once reach PostgreSQL unchanged, whatever their columns share. */
import assert from 'node:assert/strict'
import {after, before, describe, it} from 'node:test'
import {systemClock} from '../../../src/platform/clock.ts'
import {Session} from '../../../src/store/postgres/connection.ts'
import {Statements} from '../../../src/store/postgres/statements.ts'
import {parseAddress} from '../../../src/store/postgres/url.ts'
import {all, each, sendEach, type Values} from '../../../src/store/sql/query.ts'
import {TestPostgres} from '../../support/postgres.ts'

/** Texts that an array could mistake for something else. */
const TEXTS = [
  '',
  ' ',
  'null',
  'NULL',
  '"',
  '\\',
  '\\"',
  '{}',
  '{a,b}',
  ',',
  "'",
  'a\nb',
  '$1',
  '?',
  'ä😀',
  'x'.repeat(5_000),
  'job-1',
  '2026-11-22T09:00:00Z',
]

let postgres: TestPostgres
let session: Session
const statements = new Statements()

before(async () => {
  postgres = await TestPostgres.start()
  const parsed = parseAddress(await postgres.database())
  assert(parsed.ok)
  const [host] = parsed.address.hosts
  session = await Session.connect(parsed.address, host!, systemClock(), 'test')
  await session.run('CREATE TABLE t (id bigint, text text, bytes bytea, same bigint, state text)')
})
after(async () => {
  await session.close()
  await postgres.close()
})

const INSERT = 'INSERT INTO t (id, text, bytes, same, state) VALUES (?, ?, ?, ?, ?)'

async function stored(rows: readonly Values[]): Promise<unknown[]> {
  await session.run('TRUNCATE t')
  await statements.run(session, sendEach(INSERT, rows))
  const found = await statements.run(session, all('SELECT * FROM t ORDER BY id'))
  return found.map(({id, text, bytes, same, state}) => [id, text, bytes, same, state])
}

/** `count` rows whose texts repeat; the last two columns have one value in all rows. */
function rowsOf(count: number, state: string | null): Values[] {
  return Array.from({length: count}, (_, id) => {
    const text = id % 25 === 24 ? null : TEXTS[(id % 25) % TEXTS.length]!
    return [id, text, Buffer.from([id % 256, 0, 255]), 7, state]
  })
}

describe('values of many rows', () => {
  for (const [what, count] of [
    ['few rows', 30],
    ['many rows, whose shared values are sent once', 200],
    ['more rows than one message takes', 4_500],
  ] as const)
    it(`are stored unchanged: ${what}`, async () => {
      for (const state of ['a "state"', '', null]) {
        const rows = rowsOf(count, state)
        assert.deepEqual(await stored(rows), rows)
      }
    })

  it('are stored unchanged if all of them are equal', async () => {
    const rows = Array.from({length: 100}, () => [1, 'a', Buffer.from('b'), 2, null])
    assert.equal((await stored(rows)).length, 100)
  })

  it('are stored unchanged whatever was shared before', async () => {
    for (let shared = 0; shared < 32; shared += 1) {
      const rows = Array.from({length: 70}, (_, id): Values => {
        const or = (bit: number) => ((shared >> bit) & 1 ? 0 : id)
        return [id, `t${or(1)}`, Buffer.from([or(2)]), or(3), `s${or(4)}`]
      })
      assert.deepEqual(await stored(rows), rows)
    }
  })

  it('set by an update belong to their rows', async () => {
    await stored(rowsOf(100, 'old'))
    const update = 'UPDATE t SET state = ?, same = ? WHERE id = ?'
    await statements.run(
      session,
      sendEach(
        update,
        Array.from({length: 80}, (_, id) => ['new', id * 2, id]),
      ),
    )
    const found = await statements.run(
      session,
      each(
        'SELECT state, same FROM t WHERE id = ?',
        Array.from({length: 100}, (_, id) => [id]),
      ),
    )
    found.forEach(([row], id) => {
      const {state, same} = row as unknown as {state: string; same: number}
      assert.deepEqual([state, same], id < 80 ? ['new', id * 2] : ['old', 7])
    })
  })
})
