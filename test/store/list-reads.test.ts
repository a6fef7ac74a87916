/** Lists of executions: the output of any number of rows is read with a few statements. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {METHODS} from '../../src/store/sql/methods.ts'
import type {StatementResult, Statement, Row, Transaction} from '../../src/store/sql/query.ts'
import {sqliteDialect} from '../../src/store/sqlite/connection.ts'

const ROWS = 4_000
const TX: Transaction = {now: 0, dialect: sqliteDialect, limits: {outputTailBytes: 256 * 1024}}

function aRow(index: number): Row {
  return {
    group_id: index,
    node_name: 'node-1',
    attempt: 1,
    status: 'running',
    // Every second one has output.
    output_bytes: index % 2 === 0 ? 5 : 0,
  }
}

/** Replies as an engine: every execution has its launch number as output. */
function answer(command: Statement): StatementResult {
  if (command.kind === 'together') return command.statements.map(answer)
  if (command.kind !== 'all' && command.kind !== 'each') return undefined
  if (command.kind === 'each') {
    return command.rows.map(([group]) => {
      return [{at_byte: 0, bytes: Buffer.from(String(group).padStart(5))}]
    })
  }
  if (command.sql.includes('count(*)')) return [{total: ROWS}]
  return Array.from({length: ROWS}, (_, index) => aRow(index))
}

test('a list reads the output of all its executions with a few statements', () => {
  const commands: Statement[] = []
  const step = METHODS.busy.query(TX, {start: 0, end: null, outputBytes: 1_000})
  let next = step.next()
  while (next.done !== true) {
    commands.push(next.value)
    next = step.next(answer(next.value))
  }
  const asked = commands.filter(({kind}) => kind !== 'yield')
  assert.ok(asked.length <= 2 + ROWS / 500, `${asked.length} commands for ${ROWS} rows`)
  assert.equal(next.value.rows.length, ROWS)
  for (const {group, output, outputTruncated} of next.value.rows) {
    const text = group % 2 === 0 ? String(group).padStart(5) : ''
    assert.deepEqual([Buffer.from(output).toString(), outputTruncated], [text, false])
  }
})
