import assert from 'node:assert/strict'
import {mkdtemp, readdir, readFile, rm, stat, writeFile} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, test} from 'node:test'
import {NODE_ID_FILE, nodeIdentity} from '../../src/platform/data-directory.ts'
import {systemRandom} from '../../src/platform/random.ts'

const random = systemRandom()
let directory = ''
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'belfry-identity-'))
})
afterEach(() => rm(directory, {recursive: true, force: true}))

test('the node id is created once, mode 0600, and read at every later start', async () => {
  const first = await nodeIdentity(directory, random)
  const second = await nodeIdentity(directory, random)
  assert.ok(first.ok)
  assert.deepEqual(second, first)
  const file = join(directory, NODE_ID_FILE)
  assert.equal((await readFile(file, 'utf8')).trim(), first.id)
  assert.equal((await stat(file)).mode & 0o777, 0o600)
  assert.deepEqual(await readdir(directory), [NODE_ID_FILE], 'no draft is left')
})

test('processes that start at the same time use one node id', async () => {
  const all = await Promise.all(Array.from({length: 20}, () => nodeIdentity(directory, random)))
  assert.equal(new Set(all.map((identity) => identity.ok && identity.id)).size, 1)
  assert.deepEqual(await readdir(directory), [NODE_ID_FILE])
})

test('a damaged node id file is refused and left unchanged', async () => {
  const file = join(directory, NODE_ID_FILE)
  for (const content of ['', 'short', 'two words that are long enough', '\0'.repeat(30)]) {
    await writeFile(file, content)
    const identity = await nodeIdentity(directory, random)
    assert.ok(!identity.ok)
    assert.match(identity.problem, /must contain a node id: it is damaged\. Remove it/)
    assert.equal(await readFile(file, 'utf8'), content)
  }
})

test('a missing data directory is reported, not thrown', async () => {
  const identity = await nodeIdentity(join(directory, 'absent'), random)
  assert.ok(!identity.ok)
  assert.match(identity.problem, /^The node id in .* cannot be used: ENOENT/)
})
