import assert from 'node:assert/strict'
import {mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, test} from 'node:test'
import {createFile, openReplacement, replaceFile} from '../../src/platform/durable-file.ts'

let directory = ''
let path = ''
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'belfry-durable-'))
  path = join(directory, 'file')
})
afterEach(() => rm(directory, {recursive: true, force: true}))

test('a durable write creates and replaces a file, mode 0600, and leaves no draft', async () => {
  for (const text of ['first', 'second']) {
    await replaceFile(path, text)
    assert.equal(await readFile(path, 'utf8'), text)
  }
  assert.equal((await stat(path)).mode & 0o777, 0o600)
  assert.deepEqual(await readdir(directory), ['file'])
})

test('a draft left by a crash does not stop the next durable write', async () => {
  await writeFile(`${path}.new`, 'half of something')
  await replaceFile(path, 'whole')
  assert.equal(await readFile(path, 'utf8'), 'whole')
  assert.deepEqual(await readdir(directory), ['file'])
})

test('a durable write that fails leaves the old file', async () => {
  await replaceFile(path, 'old')
  await mkdir(`${path}.new`)
  await assert.rejects(replaceFile(path, 'new'))
  assert.equal(await readFile(path, 'utf8'), 'old')
})

test('a replacement stays open for appending', async () => {
  const file = await openReplacement(path, ['a', 'b'])
  await file.appendFile('c')
  await file.close()
  assert.equal(await readFile(path, 'utf8'), 'abc')
})

test('creating a file that exists changes nothing and reports it', async () => {
  assert.equal(await createFile(path, 'first', `${path}.1`), true)
  assert.equal(await createFile(path, 'second', `${path}.2`), false)
  assert.equal(await readFile(path, 'utf8'), 'first')
  assert.deepEqual(await readdir(directory), ['file'])
})
