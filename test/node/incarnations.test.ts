/** Record of incarnations: a restart proves that its predecessors have ended, a copy proves nothing. */
import assert from 'node:assert/strict'
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {after, describe, it} from 'node:test'
import {INCARNATIONS_KEPT_MAX, recordIncarnation} from '../../src/node/incarnations.ts'
import {bootId} from '../../src/platform/boot-id.ts'

const root = mkdtempSync(join(tmpdir(), 'belfry-incarnations-'))
after(() => rmSync(root, {recursive: true, force: true}))
const aDirectory = () => mkdtempSync(join(root, 'node-'))
const fileIn = (directory: string) => join(directory, 'incarnations')

describe('record of incarnations', () => {
  it('returns those that ran before on the same directory', () => {
    const directory = aDirectory()
    assert.deepEqual(recordIncarnation(directory, 'a'), [])
    assert.deepEqual(recordIncarnation(directory, 'b'), ['a'])
    assert.deepEqual(recordIncarnation(directory, 'c'), ['a', 'b'])
    assert.equal(statSync(fileIn(directory)).mode & 0o777, 0o600)
  })

  it('proves nothing in a copy of the directory', () => {
    const directory = aDirectory()
    recordIncarnation(directory, 'a')
    const copy = aDirectory()
    copyFileSync(fileIn(directory), fileIn(copy))
    assert.deepEqual(recordIncarnation(copy, 'b'), [])
    assert.deepEqual(recordIncarnation(copy, 'c'), ['b'])
    assert.deepEqual(recordIncarnation(directory, 'd'), ['a'])
  })

  it('proves nothing after a reboot', {skip: bootId() === '' && 'no boot id'}, () => {
    const directory = aDirectory()
    recordIncarnation(directory, 'a')
    const text = readFileSync(fileIn(directory), 'utf8')
    writeFileSync(fileIn(directory), text.replace(bootId(), 'an-earlier-boot'))
    assert.deepEqual(recordIncarnation(directory, 'b'), [])
  })

  it('proves nothing when it is damaged, and works again after that', () => {
    const directory = aDirectory()
    for (const text of ['', '{"boot', '[]', 'null']) {
      writeFileSync(fileIn(directory), text)
      assert.deepEqual(recordIncarnation(directory, 'a'), [])
      assert.deepEqual(recordIncarnation(directory, 'b'), ['a'])
    }
  })

  it('does not stop a start when it cannot be written', () => {
    const directory = aDirectory()
    recordIncarnation(directory, 'a')
    mkdirSync(`${fileIn(directory)}.new`)
    assert.deepEqual(recordIncarnation(directory, 'b'), ['a'])
    assert.deepEqual(recordIncarnation(directory, 'c'), ['a'])
  })

  it('keeps the newest ones', () => {
    const directory = aDirectory()
    for (let count = 0; count < INCARNATIONS_KEPT_MAX + 3; count += 1)
      recordIncarnation(directory, `i-${count}`)
    const kept = recordIncarnation(directory, 'last')
    assert.deepEqual([kept.length, kept[0]], [INCARNATIONS_KEPT_MAX, 'i-3'])
  })
})
