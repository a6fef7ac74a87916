/**
 * Stores that were put back, with real servers: what their jobs write outside the data directory shows what
 * ran, and how often.
 */
import assert from 'node:assert/strict'
import {cpSync, copyFileSync, readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {aServer, type ServerProcess, temporaryDirectory} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

const shell = (command: string) => ({
  executor: 'shell',
  executor_config: {shell: 'true', command},
})

/** Lines of the file, each written by one execution; `[]` = no file yet. */
function linesOf(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').trimEnd().split('\n')
  } catch {
    return []
  }
}

function doubled(lines: readonly string[]): string[] {
  return lines.filter((line, index) => lines.indexOf(line) !== index)
}

async function firing(server: ServerProcess): Promise<string> {
  return (await server.get('/')).json.gossip.firing
}

async function storeTicks(server: ServerProcess, marks: string): Promise<void> {
  await server.store({
    name: 'tick',
    schedule: '* * * * * *',
    catch_up: 'all',
    ...shell(`echo $BELFRY_SCHEDULED_AT >> ${marks}`),
  })
  await until('it ticks', () => linesOf(marks).length >= 2)
}

async function moreTicks(marks: string): Promise<void> {
  const before = linesOf(marks).length
  await until('it ticks on', () => linesOf(marks).length >= before + 3)
}

test('the copy of a directory whose server runs starts nothing that the original runs', async (t) => {
  const place = temporaryDirectory(t)
  const marks = join(place, 'marks')
  const original = await aServer(t)
  const byHand = {schedule: '@manually'}
  const long = `echo long-$BELFRY_ATTEMPT >> ${marks}; sleep 600`
  const failing = `echo failing-$BELFRY_ATTEMPT >> ${marks}; exit 1`
  await original.store({name: 'long', ...byHand, retries: 2, ...shell(long)})
  await original.store({name: 'failing', ...byHand, retries: 5, ...shell(failing)})
  const launch = await original.run('long')
  await original.run('failing')
  await until('one runs, one waits', () => linesOf(marks).length >= 2)
  await until(
    'the failure is stored',
    async () => (await original.executions('failing')).length > 1,
  )

  const copied = join(place, 'copy')
  cpSync(original.data, copied, {recursive: true, filter: (path) => !path.includes('pipes-')})
  const copy = await aServer(t, {data: copied})
  assert.equal(await firing(copy), 'paused (put_back)')
  assert.match(copy.program.stderr(), /Planned times are not launched/)
  for (const name of ['long', 'failing']) {
    const open = (await copy.executions(name)).filter(
      ({status}) => status === 'running' || status === 'pending',
    )
    assert.deepEqual(open, [], `${name} does not continue in the copy`)
  }
  const next = await copy.run('failing')
  assert.ok(next > launch + 1_000_000_000, 'the copy uses no number again')
  assert.equal(await firing(original), 'active')
  const [running] = await original.executions('long')
  assert.equal(running.status, 'running', 'the copy ended nothing of the original')
})

test('the file of a stopped server, copied back over it, runs no planned time twice', async (t) => {
  const place = temporaryDirectory(t)
  const marks = join(place, 'marks')
  const first = await aServer(t)
  const {data} = first
  await storeTicks(first, marks)
  await first.stop()
  const backup = join(place, 'backup')
  cpSync(data, backup, {recursive: true, preserveTimestamps: true})
  const second = await aServer(t, {data})
  assert.equal(await firing(second), 'active')
  await moreTicks(marks)
  await second.stop()
  copyFileSync(join(backup, 'belfry.sqlite'), join(data, 'belfry.sqlite'))
  const before = linesOf(marks)
  const third = await aServer(t, {data})
  assert.equal(await firing(third), 'paused (put_back)')
  assert.equal((await third.post('/resume')).status < 300, true)
  await moreTicks(marks)
  assert.deepEqual(doubled(linesOf(marks)), [])
  assert.deepEqual(linesOf(marks).slice(0, before.length), before)
})

for (const [what, isCopied] of [
  ['files of SQLite', (path: string) => path.includes('belfry.sqlite')],
  ['whole directory', (path: string) => !path.includes('pipes-')],
] as const)
  test(`a copy of the ${what} from before kill -9 runs no planned time twice`, async (t) => {
    const place = temporaryDirectory(t)
    const marks = join(place, 'marks')
    const first = await aServer(t)
    const {data} = first
    await storeTicks(first, marks)
    const backup = join(place, 'backup')
    cpSync(data, backup, {
      recursive: true,
      filter: (path) => path === data || isCopied(path),
    })
    await moreTicks(marks)
    await first.crash()
    // The copy overwrites the files, as `cp` does.
    for (const entry of readdirSync(backup, {withFileTypes: true}))
      if (entry.isFile()) copyFileSync(join(backup, entry.name), join(data, entry.name))
    const before = linesOf(marks)
    const second = await aServer(t, {data})
    assert.equal(await firing(second), 'paused (put_back)')
    assert.equal((await second.post('/resume')).status < 300, true)
    await moreTicks(marks)
    assert.deepEqual(doubled(linesOf(marks)), [])
    assert.deepEqual(linesOf(marks).slice(0, before.length), before)
  })

test('a restart after kill -9 continues, and runs each planned time once', async (t) => {
  const marks = join(temporaryDirectory(t), 'marks')
  const first = await aServer(t)
  const {data} = first
  await storeTicks(first, marks)
  await first.crash()
  const second = await aServer(t, {data})
  assert.equal(await firing(second), 'active')
  await moreTicks(marks)
  await second.crash()
  const third = await aServer(t, {data})
  assert.equal(await firing(third), 'active')
  await moreTicks(marks)
  assert.deepEqual(doubled(linesOf(marks)), [])
})
