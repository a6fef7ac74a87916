/**
 * Rules for the whole tree: floors, cycles, sizes, banned calls, dead files, leftovers, plain language. The
 * rules are in `tidy/`; `planted.test.ts` proves that each of them finds a planted violation.
 */
import assert from 'node:assert/strict'
import {join} from 'node:path'
import {test} from 'node:test'
import {checkBanned, checkSleeps} from './tidy/banned.ts'
import {checkCycles, checkDead, checkFloors, checkTargets} from './tidy/floors.ts'
import {checkHeads, checkPages, checkProse, readPages} from './tidy/prose.ts'
import {
  checkBarrels,
  checkCasts,
  checkErrors,
  checkMarkers,
  checkNames,
  checkOpenings,
  checkSizes,
  checkSwitchedOff,
  FILE_LINES_LISTED,
  FILE_LINES_MAX,
  FUNCTION_LINES_MAX,
  listLong,
} from './tidy/shape.ts'
import {checkNever} from './tidy/never.ts'
import {readSources, type Finding} from './tidy/source.ts'

const ROOT = join(import.meta.dirname, '..')
const all = await readSources(ROOT, ['src', 'test', 'bin', 'scripts', 'tools'])
const under = (folder: string) => all.filter(({path}) => path.startsWith(`${folder}/`))
const program = [...under('src'), ...under('bin')]
const tests = under('test')
const tools = [...under('scripts'), ...under('tools')]

/** Entry points of processes, threads and pages. */
const STARTED = [
  'src/main.ts',
  'src/executors/process/helper/main.ts',
  'src/store/sqlite/writer-worker.ts',
  'src/store/sqlite/check-worker.ts',
  'src/store/postgres/backup-worker.ts',
  'src/http/ui/page.js',
  'bin/belfry.js',
]

/** Files that may use real time, random numbers and the process, and which names. */
const REAL_WORLD: readonly (readonly [place: RegExp, what: RegExp])[] = [
  [/^src\/(platform|telemetry)\//, /./],
  [/^src\/main\.ts$/, /^process\./],
  [/^bin\//, /^process\./],
  // Passes the environment to the executors, which hand a part of it to commands.
  [/^src\/app\/server\.ts$/, /^process\.env$/],
  // A separate process; tests of the main process replace it as a whole.
  [/^src\/executors\/process\/helper\//, /./],
  // Finds ps(1) through PATH on systems without /proc.
  [/^src\/executors\/process\/process-table\.ts$/, /^process\.env$/],
  // Runs in the browser.
  [/^src\/http\/ui\/page\.js$/, /./],
]

function none(found: readonly Finding[]): void {
  if (found.length > 0) assert.fail(`\n${found.join('\n')}`)
}

test('the checks read the files they should', () => {
  for (const path of [...STARTED, 'test/tidy.test.ts', 'scripts/check.ts'])
    assert.ok(
      all.some((source) => source.path === path),
      path,
    )
})

test('imports resolve to existing files', () => none(checkTargets(all)))
test('imports go down the floors', () => none(checkFloors(under('src'))))
test('folders keep to the column "Never" of ARCHITECTURE.md', () => none(checkNever(under('src'))))
test('imports form no cycle', () => none(checkCycles(all)))
test('every source file is reachable from an entry point', () =>
  none(checkDead(program, [...STARTED, ...tools.map(({path}) => path)])))
test('every test file is reachable from a test', () => {
  const entries = tests.filter(({path}) => !path.startsWith('test/support/'))
  none(
    checkDead(
      tests,
      entries.map(({path}) => path),
    ),
  )
})
test('clock, random numbers and process access go through ports', () =>
  none(checkBanned(program, REAL_WORLD)))
test('tests do not sleep', () =>
  none(checkSleeps(tests.filter(({path}) => path.endsWith('.test.ts')))))
test('no test is skipped', () => none(checkSwitchedOff(tests)))
test('file and class names have a meaning', () => none(checkNames(all)))
test('no file only re-exports', () => none(checkBarrels(all)))
test('source files open with a header comment', () => none(checkOpenings(program)))
test('source files, functions and lines are within limits', (context) => {
  const limits = {fileLines: FILE_LINES_MAX, functionLines: FUNCTION_LINES_MAX}
  none(checkSizes([...program, ...tools], limits))
  for (const long of listLong([...program, ...tools], FILE_LINES_LISTED)) context.diagnostic(long)
})
test('test files and lines are within limits', () =>
  none(checkSizes(tests, {fileLines: FILE_LINES_MAX, functionLines: Infinity})))
test('no leftover markers of unfinished work', () => {
  // The rules themselves name the markers.
  const looking = /^test\/tidy(\/|\.)/
  none(checkMarkers(all.filter(({path}) => !looking.test(path))))
})
test('double casts carry a reason', () => none(checkCasts([...program, ...tools])))
test('no error is swallowed', () => none(checkErrors([...program, ...tools])))

// These pages and files name the words they look for, or are not ours to word.
const QUOTES_WORDS = /^test\/tidy\/(prose|planted)/
test('comments, errors and test titles use plain words', () =>
  none(checkProse(all.filter(({path}) => !QUOTES_WORDS.test(path)))))
test('comments open with the thing they are about', () => none(checkHeads(all)))
test('pages use plain words', async () => none(checkPages(await readPages(ROOT))))
