/** Writer of the SQLite store: a full disk, failed writes and locked files within one batch. */
import assert from 'node:assert/strict'
import {mkdtempSync, rmSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {describe, it, type TestContext} from 'node:test'
import {DEFAULT_LIMITS, type Statement} from '../../src/store/sql/query.ts'
import {policies} from '../../src/store/sql/access/tokens.ts'
import {Connection, sqliteDialect} from '../../src/store/sqlite/connection.ts'
import {Engine, type WriteAnswer, type WriteRequest} from '../../src/store/sqlite/engine.ts'
import {errorOf} from '../../src/store/sqlite/errors.ts'
import {prepareSchema} from '../../src/store/sqlite/schema.ts'
import {PLAIN_SPEC} from '../support/fixtures.ts'

function engineOn(context: TestContext): {engine: Engine; connection: Connection} {
  const folder = mkdtempSync(join(tmpdir(), 'belfry-engine-'))
  const connection = new Connection(join(folder, 'store'), {readOnly: false})
  context.after(() => {
    connection.close()
    rmSync(folder, {recursive: true})
  })
  const fresh = {clusterId: 'c', incarnation: 'i'}
  assert(prepareSchema(connection, {fresh, check: true, now: 0}).ok)
  return {engine: new Engine(connection, DEFAULT_LIMITS), connection}
}

function put(name: string, bytes: number): WriteRequest {
  return {name: 'putPolicy', input: [{name, rules: 'x'.repeat(bytes)}], now: 0}
}

function kinds(answers: readonly WriteAnswer[]): string[] {
  return answers.map((answer) => (answer.ok ? 'ok' : answer.failure.kind))
}

function stored(connection: Connection): string[] {
  const tx = {now: 0, dialect: sqliteDialect, limits: DEFAULT_LIMITS}
  return connection.snapshot(policies(tx)).map(({name}) => name)
}

describe('the SQLite engine', () => {
  it('a full disk rejects only the write that is too large, and accepts it once there is room', (context) => {
    const {engine, connection} = engineOn(context)
    const pages = Number(connection.pragma('page_count'))
    connection.execute(`PRAGMA max_page_count = ${pages + 4}`)
    const answers = engine.commit([put('a', 10), put('huge', 1_000_000), put('b', 10)])
    assert.deepEqual(kinds(answers), ['ok', 'unavailable', 'ok'])
    const [, refused] = answers
    assert(refused !== undefined && !refused.ok)
    assert.equal(errorOf(refused.failure).name, 'StoreUnavailable')
    assert.match(refused.failure.message, /has no space left/)
    assert.deepEqual(stored(connection), ['a', 'b'])
    connection.execute('PRAGMA max_page_count = 100000')
    assert.deepEqual(kinds(engine.commit([put('huge', 1_000_000)])), ['ok'])
    assert.deepEqual(stored(connection), ['a', 'b', 'huge'])
  })

  it('a failed write is rolled back alone, with all it has written', (context) => {
    const {engine, connection} = engineOn(context)
    const bad: WriteRequest = {
      name: 'putPolicy',
      input: [{name: 'bad', rules: Symbol('x')}],
      now: 0,
    }
    const fenced = {
      name: 'applyLaunches',
      input: [{term: 7, dues: [], requests: []}],
      now: 0,
    } as const
    const answers = engine.commit([put('a', 1), bad, fenced, put('b', 1)])
    assert.deepEqual(kinds(answers), ['ok', 'other', 'term_over', 'ok'])
    assert.deepEqual(stored(connection), ['a', 'b'])
  })

  it('submits without a conflict run as one query, and each alone if one of them fails', (context) => {
    const {engine, connection} = engineOn(context)
    const submit = (name: string, changes: object = {}): WriteRequest => {
      const spec = {...PLAIN_SPEC, name, ...changes}
      const once = {ifMatch: null, createOnly: false, runOnCreate: false, idempotency: null}
      return {name: 'submit', input: [{spec, ...once}], now: 0}
    }
    const revisions = (requests: readonly WriteRequest[]) => {
      const sql: string[] = []
      const answer = connection.answer.bind(connection)
      context.mock.method(connection, 'answer', (statement: Statement) => {
        if (statement.kind === 'all') sql.push(statement.sql)
        return answer(statement)
      })
      const answers = engine.commit(requests)
      context.mock.restoreAll()
      const savepoints = sql.filter((text) => text.startsWith('SAVEPOINT')).length
      const stored = answers.map((each) => {
        return each.ok ? (each.result as {job: {revision: number}}).job.revision : each.failure.kind
      })
      return {stored, savepoints}
    }
    const again = submit('a', {schedule: '@daily'})
    assert.deepEqual(revisions([submit('a'), submit('b'), again, submit('c')]), {
      stored: [1, 1, 2, 1],
      savepoints: 2,
    })
    const bad = submit('d', {displayname: Symbol('x')})
    assert.deepEqual(revisions([submit('b'), bad, submit('e')]), {
      stored: [1, 'other', 1],
      savepoints: 4,
    })
    const [parent, child] = [submit('p'), submit('q', {schedule: '', parentJob: 'p'})]
    assert.deepEqual(revisions([parent, child, submit('r')]), {stored: [1, 1, 1], savepoints: 3})
  })

  it('a file locked by another connection rejects every write as unavailable', (context) => {
    const {engine, connection} = engineOn(context)
    connection.execute('PRAGMA busy_timeout = 0')
    const other = new Connection(connection.database.location()!, {readOnly: false})
    other.execute('BEGIN IMMEDIATE')
    assert.deepEqual(kinds(engine.commit([put('a', 1), put('b', 1)])), [
      'unavailable',
      'unavailable',
    ])
    other.execute('ROLLBACK')
    other.close()
    assert.deepEqual(kinds(engine.commit([put('a', 1)])), ['ok'])
  })
})
