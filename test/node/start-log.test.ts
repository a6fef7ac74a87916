/**
 * The record of what was begun: whatever becomes of the file, nothing that was begun is ever taken for never
 * started.
 */
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

const root = mkdtempSync(join(tmpdir(), 'belfry-begun-'))
after(() => rmSync(root, {recursive: true, force: true}))

const key = (group: number): ExecutionKey => ({group, node: 'web', attempt: 1})

function aLife(directory = join(mkdtempSync(join(root, 'node-')), 'executions')) {
  const reports: string[] = []
  const report = (sentence: string) => void reports.push(sentence)
  const file = new StartLog({directory, incarnation: 'a-life', report})
  const path = join(directory, 'begun-a-life')
  return {directory, path, file, reports}
}

/** What the next life may take for never started, of launches 1 to `last`; `null` = there is no proof. */
function unstarted(directory: string, last: number): number[] | null {
  const [life] = readPreviousIncarnations(directory)
  if (life === undefined) return null
  const groups = Array.from({length: last}, (_each, index) => index + 1)
  return groups.filter((group) => group > life.upTo && !life.begun.has(executionId(key(group))))
}

describe('the record of what was begun', {skip: bootId() === '' && 'no boot is named'}, () => {
  it('proves what is not in it, and nothing of other lives', async () => {
    const {directory, file, reports} = aLife()
    await Promise.all([file.begin(key(1)), file.begin(key(3))])
    assert.deepEqual(unstarted(directory, 4), [2, 4])
    assert.deepEqual(
      readPreviousIncarnations(directory).map(({incarnation}) => incarnation),
      ['a-life'],
    )
    assert.deepEqual(readPreviousIncarnations(join(directory, 'nowhere')), [])
    assert.deepEqual(reports, [])
    deletePreviousIncarnations(directory)
    assert.deepEqual(readdirSync(directory), [])
  })

  it('is written once for all that begin in one turn, before they do', async () => {
    const {path, file} = aLife()
    const empty = statSync(path).size
    const begun = [1, 2, 3].map((group) => file.begin(key(group)))
    assert.equal(statSync(path).size, empty)
    await begun[0]
    assert.equal(
      readFileSync(path, 'utf8').split('\n').slice(1).join(' '),
      '1-web-1 2-web-1 3-web-1 ',
    )
    assert.equal(new Set(begun).size, 1, 'they wait for the same write')
  })

  it('torn at any byte takes nothing whole away, and without a whole head proves nothing', async () => {
    const {directory, path, file} = aLife()
    const ends: number[] = []
    for (const group of [1, 2, 3]) {
      await file.begin(key(group))
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

  it('of another boot, another life, or copied proves nothing; moved it does', async () => {
    const {directory, path, file} = aLife()
    await file.begin(key(1))
    const text = readFileSync(path, 'utf8')
    const rewritten = (from: string, to: string) => writeFileSync(path, text.replace(from, to))
    rewritten(bootId(), 'another boot')
    assert.equal(unstarted(directory, 2), null)
    rewritten('a-life', 'b-life')
    assert.equal(unstarted(directory, 2), null)
    rewritten('', '')
    assert.deepEqual(unstarted(directory, 2), [2])
    const copy = mkdtempSync(join(root, 'copy-'))
    copyFileSync(path, join(copy, 'begun-a-life'))
    assert.equal(unstarted(copy, 2), null)
    renameSync(directory, `${directory}-moved`)
    assert.deepEqual(unstarted(`${directory}-moved`, 2), [2])
  })

  it('is rewritten with what is in hand, and proves nothing of launches that left it', async () => {
    const {directory, path, file} = aLife()
    await file.begin(key(5))
    let largest = 0
    for (let group = 10; group < 30_000; group += 1) {
      await file.begin(key(group))
      if (group % 100 !== 0) file.ended(key(group))
      largest = Math.max(largest, statSync(path).size)
    }
    assert.ok(largest < 100_000, `${largest} bytes`)
    const [life] = readPreviousIncarnations(directory)
    assert.ok(life!.begun.has('5-web-1') && life!.begun.has('1000-web-1'), 'in hand')
    assert.ok(!life!.begun.has('11-web-1'), 'ended')
    assert.deepEqual(unstarted(directory, 30_001), [30_000, 30_001])
    assert.deepEqual(readdirSync(directory), ['begun-a-life'])
  })

  it('killed while it is rewritten is the old one still', async () => {
    const {directory, path, file} = aLife()
    await file.begin(key(1))
    copyFileSync(path, `${path}.new`)
    truncateSync(`${path}.new`, 20)
    assert.deepEqual(unstarted(directory, 2), [2])
    copyFileSync(path, `${path}.new`)
    assert.deepEqual(unstarted(directory, 2), [2])
    deletePreviousIncarnations(directory)
    assert.deepEqual(readdirSync(directory), [])
  })

  it('that cannot be rewritten grows on and stays true', async () => {
    const {directory, path, file, reports} = aLife()
    // Neither a file nor removed like one.
    mkdirSync(`${path}.new`)
    for (let group = 1; group < 6_000; group += 1) {
      await file.begin(key(group))
      file.ended(key(group))
    }
    assert.deepEqual(unstarted(directory, 6_000), [6_000])
    assert.deepEqual(reports, [])
  })

  it('that cannot be made is said once, and work goes on', async () => {
    const nowhere = join(mkdtempSync(join(root, 'file-')), 'taken')
    writeFileSync(nowhere, '')
    const {directory, file, reports} = aLife(join(nowhere, 'executions'))
    await file.begin(key(1))
    file.ended(key(1))
    assert.deepEqual(readPreviousIncarnations(directory), [])
    assert.equal(reports.length, 1)
    assert.match(
      reports[0]!,
      /^what is begun cannot be recorded \(.+\); should this node be killed/,
    )
  })

  it('on a disk that is full proves nothing any more, and work goes on', () => {
    const directory = join(mkdtempSync(join(root, 'full-')), 'executions')
    const writer = join(import.meta.dirname, 'begun-writer.ts')
    // A file may be so many blocks long, no longer: what a full disk does, without one.
    const script = `ulimit -f 2 && exec "${process.execPath}" "${writer}" "${directory}"`
    const said = execFileSync('/bin/sh', ['-c', script], {encoding: 'utf8', timeout: 20_000})
    const {begun, reports} = JSON.parse(said) as {begun: number; reports: string[]}
    assert.ok(begun > 10 && begun < 1_000, `${begun} were begun before the disk was full`)
    assert.equal(reports.length, 1)
    assert.equal(unstarted(directory, begun), null)
  })
})
