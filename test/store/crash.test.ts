/**
 * A writer killed with SIGKILL at random moments, repeatedly on the same store: every acknowledged write must
 * be there, the file must be undamaged, and counters must match. `BELFRY_CRASH_ROUNDS` sets the rounds.
 */
import assert from 'node:assert/strict'
import {execFileSync, spawn} from 'node:child_process'
import {mkdirSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {createInterface} from 'node:readline'
import {DatabaseSync} from 'node:sqlite'
import {after, before, describe, it} from 'node:test'
import * as esbuild from 'esbuild'
import {bundle} from '../../scripts/build.js'

const ROUNDS = Number(process.env['BELFRY_CRASH_ROUNDS'] ?? 40)
/** Stores tested at the same time. */
const STORES = 2
/** The writer is killed after at most this many acknowledgements. */
const LINES_MAX = 200

/** Writes of one store that were acknowledged. */
interface Acknowledged {
  readonly texts: Map<string, number>
  readonly asked: Set<number>
  readonly ended: Set<number>
}

/** Build of the writer and its compile cache, which save most of the time of a round. */
const CODE = mkdtempSync(join(tmpdir(), 'belfry-crash-code-'))
const WRITER = join(CODE, 'program', 'crash-writer.js')
const ENVIRONMENT = {...process.env, NODE_COMPILE_CACHE: CODE}

describe('SQLite after kill -9', {concurrency: true}, () => {
  before(async () => {
    const entries = {'crash-writer': join(import.meta.dirname, 'crash-writer.ts')}
    await bundle(esbuild, CODE, {entries})
    writeFileSync(join(CODE, 'package.json'), '{"type": "module"}')
    // A killed process does not save its compile cache, so one process ends normally first.
    const dataDir = join(CODE, 'store')
    mkdirSync(dataDir)
    execFileSync(process.execPath, [WRITER, dataDir, 'once'], {env: ENVIRONMENT})
  })
  after(() => rmSync(CODE, {recursive: true, force: true}))

  for (let index = 0; index < STORES; index += 1) {
    const rounds = Math.ceil(ROUNDS / STORES)
    it(`loses no acknowledged write in ${rounds} kills`, async () => {
      const dataDir = mkdtempSync(join(tmpdir(), 'belfry-crash-'))
      after(() => rmSync(dataDir, {recursive: true, force: true}))
      const known: Acknowledged = {texts: new Map(), asked: new Set(), ended: new Set()}
      for (let round = 0; round < rounds; round += 1) {
        // Some are killed while they open the store, before they print anything.
        const lines = round % 10 === 9 ? 1 : 1 + Math.floor(Math.random() * LINES_MAX)
        const acknowledged = await writeUntilKilled(dataDir, lines)
        for (const line of acknowledged) note(known, line)
        verify(dataDir, known, `round ${round}, killed after ${lines} lines`)
      }
      assert(known.ended.size > 0 && known.texts.size > 0, 'something was written')
    })
  }
})

/** Starts a writer and kills it after `lines` lines; returns every complete line it printed. */
async function writeUntilKilled(dataDir: string, lines: number): Promise<string[]> {
  const child = spawn(process.execPath, [WRITER, dataDir], {
    env: ENVIRONMENT,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const complaints: Buffer[] = []
  child.stderr.on('data', (data: Buffer) => complaints.push(data))
  const acknowledged: string[] = []
  const ended = new Promise<NodeJS.Signals | null>((resolve) => {
    child.once('close', (_code, signal) => resolve(signal))
  })
  for await (const line of createInterface({input: child.stdout})) {
    acknowledged.push(line)
    if (acknowledged.length === lines) child.kill('SIGKILL')
  }
  const signal = await ended
  assert.equal(
    signal,
    'SIGKILL',
    `the writer ran until it was killed: ${Buffer.concat(complaints).toString()}`,
  )
  return acknowledged
}

function note(known: Acknowledged, line: string): void {
  const [kind, name, number] = line.split(' ')
  if (kind === 'text') known.texts.set(name!, Number(number))
  if (kind === 'asked') known.asked.add(Number(number))
  if (kind === 'ended') known.ended.add(Number(number))
}

interface Books {
  readonly name: string
  readonly success_count: number
  readonly succeeded: number
  readonly error_count: number
  readonly failed: number
}

/** Checks the file itself, as the next process will open it. */
function verify(dataDir: string, known: Acknowledged, when: string): void {
  const database = new DatabaseSync(join(dataDir, 'belfry.sqlite'))
  try {
    const [check] = database.prepare('PRAGMA quick_check').all()
    assert.deepEqual({...check}, {quick_check: 'ok'}, when)
    if (known.texts.size === 0 && known.asked.size === 0) return
    const text = database.prepare('SELECT rules FROM policies WHERE name = ?')
    for (const [name, count] of known.texts) {
      const row = text.get(name)
      assert(Number(row?.['rules']) >= count, `${name} is at least ${count}, ${when}`)
    }
    const numbers = (sql: string) =>
      new Set(
        database
          .prepare(sql)
          .all()
          .map((row) => Number(row['group_id'])),
      )
    const launches = numbers('SELECT group_id FROM launches')
    assert.deepEqual([...known.asked.difference(launches)], [], `requests, ${when}`)
    const ended = numbers(`SELECT group_id FROM executions WHERE status IN ('succeeded', 'failed')`)
    assert.deepEqual([...known.ended.difference(ended)], [], `ends, ${when}`)
    const books = database.prepare(BOOKS).all() as unknown as Books[]
    for (const {name, success_count: won, succeeded, error_count: lost, failed} of books)
      assert.deepEqual([won, lost], [succeeded, failed], `the books of ${name}, ${when}`)
    assert.deepEqual(database.prepare(UNTOLD).all(), [], `rows of dependents, ${when}`)
  } finally {
    database.close()
  }
}

const BOOKS = `SELECT name, success_count, error_count,
  (SELECT count(*) FROM executions e WHERE e.job_id = j.id AND e.status = 'succeeded') AS succeeded,
  (SELECT count(*) FROM executions e WHERE e.job_id = j.id AND e.status IN ('lost', 'failed')) AS failed
  FROM jobs j`
/** Launches that ended, or did not run, without exactly one row for each dependent. */
const UNTOLD = `SELECT group_id, job_name FROM launches p WHERE open = 0 AND
  (SELECT count(*) FROM launches c WHERE c.parent_group = p.group_id) <>
  (SELECT count(*) FROM jobs d WHERE d.parent = p.job_name)`
