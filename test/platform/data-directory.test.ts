import assert from 'node:assert/strict'
import {chmod, mkdir, mkdtemp, rm, stat, writeFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, test} from 'node:test'
import {prepareDataDirectory} from '../../src/platform/data-directory.ts'

let directory = ''
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'belfry-data-'))
})
afterEach(() => rm(directory, {recursive: true, force: true}))

async function problemOf(path: string): Promise<string> {
  const prepared = await prepareDataDirectory(path)
  assert.ok(!prepared.ok, 'refused')
  return prepared.problem
}

test('it is created for its owner only, with its parents', async () => {
  const path = join(directory, 'a', 'b')
  assert.deepEqual(await prepareDataDirectory(path), {ok: true})
  assert.equal((await stat(path)).mode & 0o777, 0o700)
  assert.deepEqual(await prepareDataDirectory(path), {ok: true}, 'and accepted as it is')
})

test('a file in its place, or above it, is refused with a sentence', async () => {
  const file = join(directory, 'file')
  await writeFile(file, '')
  assert.match(await problemOf(file), /file is not a directory; choose another with --data/)
  assert.match(await problemOf(join(file, 'data')), /lies under something that is not a directory/)
})

test('a directory this user may not write is refused with a sentence', async () => {
  if (process.getuid?.() === 0) {
    // Root may write anywhere, except where nobody can.
    assert.match(await problemOf('/proc/belfry-data'), /^The data directory \/proc\/belfry-data /)
    return
  }
  const path = join(directory, 'locked')
  await mkdir(path)
  await chmod(path, 0o500)
  assert.match(await problemOf(path), /may not be written by this user/)
})
