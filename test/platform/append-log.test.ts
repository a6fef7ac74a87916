import assert from 'node:assert/strict'
import {mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, test} from 'node:test'
import {AppendLog, parseRecord} from '../../src/platform/append-log.ts'

let directory = ''
let path = ''
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'belfry-append-log-'))
  path = join(directory, 'log')
})
afterEach(() => rmSync(directory, {recursive: true, force: true}))

const live = () => new Map([['kept', 7]])

function aLog(entries: ReadonlyMap<string, number>): AppendLog<number> {
  return new AppendLog({
    path,
    header: () => 'header',
    live: entries,
    lineOf: (id, entry) => `${id} ${entry}`,
  })
}

test('an append log holds its header and then every line, for its owner only', () => {
  const log = aLog(new Map())
  log.append(['a', 'b'])
  log.append(['c'])
  assert.equal(readFileSync(path, 'utf8'), 'header\na\nb\nc\n')
  assert.equal(statSync(path).mode & 0o777, 0o600)
})

test('an append log is rewritten with its live entries before it grows without bound', () => {
  const log = aLog(live())
  let largest = 0
  for (let line = 0; line < 20_000; line += 1) {
    log.append([`line ${line}`])
    largest = Math.max(largest, statSync(path).size)
  }
  assert.ok(largest < 60_000, `${largest} bytes`)
  const lines = readFileSync(path, 'utf8').split('\n')
  assert.deepEqual([...lines.slice(0, 2), lines.at(-2)], ['header', 'kept 7', 'line 19999'])
  assert.deepEqual(readdirSync(directory), ['log'])
})

test('an append log that cannot be rewritten keeps growing and loses no line', () => {
  mkdirSync(`${path}.new`)
  const log = aLog(live())
  for (let line = 0; line < 5_000; line += 1) log.append([`${line}`])
  assert.equal(readFileSync(path, 'utf8').split('\n').length, 5_002)
})

test('a discarded append log is empty', () => {
  const log = aLog(live())
  log.append(['a'])
  log.discard()
  assert.equal(readFileSync(path, 'utf8'), '')
})

test('a torn line, and JSON that is no object, is no record', () => {
  for (const line of ['', '{"a":', '7', 'null', '"text"']) assert.equal(parseRecord(line), null)
  assert.deepEqual(parseRecord('{"a":1}'), {a: 1})
})
