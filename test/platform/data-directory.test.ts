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

test('a missing data directory is created with its parents, mode 0700', async () => {
  const path = join(directory, 'a', 'b')
  assert.deepEqual(await prepareDataDirectory(path), {ok: true, warning: null})
  assert.equal((await stat(path)).mode & 0o777, 0o700)
  await chmod(path, 0o755)
  const again = await prepareDataDirectory(path)
  assert.deepEqual(again, {ok: true, warning: null}, 'an existing one is accepted')
})

test('a data directory that other users may change is warned of, and left as it is', async () => {
  for (const mode of [0o777, 0o770, 0o702]) {
    await chmod(directory, mode)
    const prepared = await prepareDataDirectory(directory)
    assert.ok(prepared.ok)
    assert.match(prepared.warning ?? '', /Other users .* can replace files .* Run chmod 700/)
    assert.equal((await stat(directory)).mode & 0o777, mode)
  }
})

test('a file at the path of the data directory, or above it, is refused', async () => {
  const file = join(directory, 'file')
  await writeFile(file, '')
  assert.match(
    await problemOf(file),
    /cannot be used: it is not a directory\. Choose another with --data/,
  )
  assert.match(await problemOf(join(file, 'data')), /a part of its path is not a directory/)
})

test('a data directory without write permission is refused', async () => {
  if (process.getuid?.() === 0) {
    // Root has write permission everywhere but in /proc.
    assert.match(await problemOf('/proc/belfry-data'), /^The data directory \/proc\/belfry-data /)
    return
  }
  const path = join(directory, 'locked')
  await mkdir(path)
  await chmod(path, 0o500)
  assert.match(await problemOf(path), /this user may not write to it/)
})
