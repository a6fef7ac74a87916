/** Start log: whatever happens to the file, a started execution never counts as never started. */
import assert from 'node:assert/strict'
import {execFileSync} from 'node:child_process'
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, describe, it} from 'node:test'
import {
  StartLog,
  deletePreviousIncarnations,
  readPreviousIncarnations,
} from '../../src/node/start-log.ts'
import {executionId, type ExecutionKey} from '../../src/core/execution.ts'
import {bootId} from '../../src/platform/boot-id.ts'

const root = mkdtempSync(join(tmpdir(), 'belfry-start-log-'))
after(() => rmSync(root, {recursive: true, force: true}))

const key = (group: number): ExecutionKey => ({group, node: 'web', attempt: 1})

function aLog(directory = join(mkdtempSync(join(root, 'node-')), 'executions')) {
  const reports: string[] = []
  const report = (sentence: string) => void reports.push(sentence)
  const log = new StartLog({directory, incarnation: 'a-incarnation', report})
  const path = join(directory, 'begun-a-incarnation')
  return {directory, path, log, reports}
}

/** Launches of 1 to `last` that are proved never started; `null` = there is no proof. */
function unstarted(directory: string, last: number): number[] | null {
  const [previous] = readPreviousIncarnations(directory)
  if (previous === undefined) return null
  const groups = Array.from({length: last}, (_each, index) => index + 1)
  const {upTo, started} = previous
  return groups.filter((group) => group > upTo && !started.has(executionId(key(group))))
}

describe('start log', {skip: bootId() === '' && 'the system has no boot id'}, () => {
  it('proves that an absent execution never started, for its own incarnation only', async () => {
    const {directory, log, reports} = aLog()
    await Promise.all([log.begin(key(1)), log.begin(key(3))])
    assert.deepEqual(unstarted(directory, 4), [2, 4])
    assert.deepEqual(
      readPreviousIncarnations(directory).map(({incarnation}) => incarnation),
      ['a-incarnation'],
    )
    assert.deepEqual(readPreviousIncarnations(join(directory, 'nowhere')), [])
    assert.deepEqual(reports, [])
    deletePreviousIncarnations(directory)
    assert.deepEqual(readdirSync(directory), [])
  })

  it('executions of one turn are recorded by one write, before any of them starts', async () => {
    const {path, log} = aLog()
    const empty = statSync(path).size
    const writes = [1, 2, 3].map((group) => log.begin(key(group)))
    assert.equal(statSync(path).size, empty)
    await writes[0]
    assert.equal(
      readFileSync(path, 'utf8').split('\n').slice(1).join(' '),
      '1-web-1 2-web-1 3-web-1 ',
    )
    assert.equal(new Set(writes).size, 1, 'one write')
  })

  it('a log torn at any byte keeps its whole lines; without a whole header it proves nothing', async () => {
    const {directory, path, log} = aLog()
    const ends: number[] = []
    for (const group of [1, 2, 3]) {
      await log.begin(key(group))
      ends.push(statSync(path).size)
    }
    const head = readFileSync(path, 'utf8').indexOf('\n')
    for (let size = ends[2]!; size >= 0; size -= 1) {
      truncateSync(path, size)
      const never = unstarted(directory, 3)
      if (size < head) assert.equal(never, null, `${size} bytes`)
      for (const [index, end] of ends.entries())
        if (end <= size) assert.ok(!never!.includes(index + 1), `${size} bytes`)
    }
  })

  it('a log of another boot, of another incarnation or copied proves nothing; a moved one does', async () => {
    const {directory, path, log} = aLog()
    await log.begin(key(1))
    const text = readFileSync(path, 'utf8')
    const rewritten = (from: string, to: string) => writeFileSync(path, text.replace(from, to))
    rewritten(bootId(), 'another boot')
    assert.equal(unstarted(directory, 2), null)
    rewritten('a-incarnation', 'b-incarnation')
    assert.equal(unstarted(directory, 2), null)
    rewritten('', '')
    assert.deepEqual(unstarted(directory, 2), [2])
    const copy = mkdtempSync(join(root, 'copy-'))
    copyFileSync(path, join(copy, 'begun-a-incarnation'))
    assert.equal(unstarted(copy, 2), null)
    renameSync(directory, `${directory}-moved`)
    assert.deepEqual(unstarted(`${directory}-moved`, 2), [2])
  })

  it('a rewrite keeps running executions, and proves nothing for launches that have left', async () => {
    const {directory, path, log} = aLog()
    await log.begin(key(5))
    let largest = 0
    for (let group = 10; group < 30_000; group += 1) {
      await log.begin(key(group))
      if (group % 100 !== 0) log.ended(key(group))
      largest = Math.max(largest, statSync(path).size)
    }
    assert.ok(largest < 100_000, `${largest} bytes`)
    const [previous] = readPreviousIncarnations(directory)
    assert.ok(previous!.started.has('5-web-1') && previous!.started.has('1000-web-1'), 'running')
    assert.ok(!previous!.started.has('11-web-1'), 'ended')
    assert.deepEqual(unstarted(directory, 30_001), [30_000, 30_001])
    assert.deepEqual(readdirSync(directory), ['begun-a-incarnation'])
  })

  it('a crash within a rewrite leaves the old log in force', async () => {
    const {directory, path, log} = aLog()
    await log.begin(key(1))
    copyFileSync(path, `${path}.new`)
    truncateSync(`${path}.new`, 20)
    assert.deepEqual(unstarted(directory, 2), [2])
    copyFileSync(path, `${path}.new`)
    assert.deepEqual(unstarted(directory, 2), [2])
    deletePreviousIncarnations(directory)
    assert.deepEqual(readdirSync(directory), [])
  })

  it('a log that cannot be rewritten keeps growing and stays correct', async () => {
    const {directory, path, log, reports} = aLog()
    // A directory where the draft would be.
    mkdirSync(`${path}.new`)
    for (let group = 1; group < 6_000; group += 1) {
      await log.begin(key(group))
      log.ended(key(group))
    }
    assert.deepEqual(unstarted(directory, 6_000), [6_000])
    assert.deepEqual(reports, [])
  })

  it('a log that cannot be created is reported once, and executions still start', async () => {
    const nowhere = join(mkdtempSync(join(root, 'file-')), 'taken')
    writeFileSync(nowhere, '')
    const {directory, log, reports} = aLog(join(nowhere, 'executions'))
    await log.begin(key(1))
    log.ended(key(1))
    assert.deepEqual(readPreviousIncarnations(directory), [])
    assert.equal(reports.length, 1)
    assert.match(
      reports[0]!,
      /^started executions cannot be recorded \(.+\): if this node is killed/,
    )
  })

  it('a full disk makes the log prove nothing, and executions still start', () => {
    const directory = join(mkdtempSync(join(root, 'full-')), 'executions')
    const writer = join(import.meta.dirname, 'start-log-writer.ts')
    // Limits the length of a file, which acts like a full disk.
    const script = `ulimit -f 2 && exec "${process.execPath}" "${writer}" "${directory}"`
    const said = execFileSync('/bin/sh', ['-c', script], {encoding: 'utf8', timeout: 20_000})
    const {started, reports} = JSON.parse(said) as {started: number; reports: string[]}
    assert.ok(started > 10 && started < 1_000, `${started} started before the disk was full`)
    assert.equal(reports.length, 1)
    assert.equal(unstarted(directory, started), null)
  })
})
