/**
 * The house in order: floors, circles, sizes, banned calls, dead files, leftovers. The rules stand in
 * `tidy/`, and are themselves tried on small planted violations, since a rule that finds nothing may be a
 * rule that looks at nothing.
 */
import assert from 'node:assert/strict'
import {join} from 'node:path'
import {test} from 'node:test'
import {checkBanned, checkSleeps} from './tidy/banned.ts'
import {checkCycles, checkDead, checkFloors, checkTargets} from './tidy/floors.ts'
import {
  checkBarrels,
  checkCasts,
  checkErrors,
  checkMarkers,
  checkNames,
  checkOpenings,
  checkSizes,
  checkSwitchedOff,
  FILE_LINES_MAX,
  FUNCTION_LINES_MAX,
} from './tidy/shape.ts'
import {readSources, type Finding} from './tidy/source.ts'

const ROOT = join(import.meta.dirname, '..')
const all = await readSources(ROOT, ['src', 'test', 'bin', 'scripts', 'tools'])
const under = (folder: string) => all.filter(({path}) => path.startsWith(`${folder}/`))
const program = [...under('src'), ...under('bin')]
const tests = under('test')
const tools = [...under('scripts'), ...under('tools')]

/** Started as processes, threads or pages of their own, not imported. */
const STARTED = [
  'src/main.ts',
  'src/executors/process/helper/main.ts',
  'src/store/sqlite/writer-worker.ts',
  'src/http/ui/page.js',
  'bin/belfry.js',
]

/** Where real time, dice and processes live, and what of them. */
const REAL_WORLD: readonly (readonly [place: RegExp, what: RegExp])[] = [
  [/^src\/(platform|telemetry)\//, /./],
  [/^src\/main\.ts$/, /^process\./],
  [/^bin\//, /^process\./],
  // The executors are given the environment here, which they hand on in part.
  [/^src\/app\/server\.ts$/, /^process\.env$/],
  // A process of its own, which the simulator replaces as a whole.
  [/^src\/executors\/process\/helper\//, /./],
  // Only to find ps(1) where there is no /proc.
  [/^src\/executors\/process\/process-table\.ts$/, /^process\.env$/],
  // Runs in a browser.
  [/^src\/http\/ui\/page\.js$/, /./],
]

/** Tables of cases are long, and read row by row. */
const TEST_LINES_MAX = 600

/** Files that may be longer than the rest, and why. */
const LONGER: Readonly<Record<string, string>> = {}

function none(found: readonly Finding[]): void {
  if (found.length > 0) assert.fail(`\n${found.join('\n')}`)
}

test('every file is looked at', () => {
  for (const path of [...STARTED, 'test/tidy.test.ts', 'scripts/check.ts'])
    assert.ok(
      all.some((source) => source.path === path),
      path,
    )
})

test('imports lead to files that are there', () => none(checkTargets(all)))
test('imports go down the floors', () => none(checkFloors(under('src'))))
test('imports make no circle', () => none(checkCycles(all)))
test('every file of the program is reached by what is started', () =>
  none(checkDead(program, [...STARTED, ...tools.map(({path}) => path)])))
test('every file of the tests is reached by a test', () => {
  const entries = tests.filter(({path}) => !path.startsWith('test/support/'))
  none(
    checkDead(
      tests,
      entries.map(({path}) => path),
    ),
  )
})
test('time, dice and processes come through ports', () => none(checkBanned(program, REAL_WORLD)))
test('tests do not sleep', () =>
  none(checkSleeps(tests.filter(({path}) => path.endsWith('.test.ts')))))
test('every test runs', () => none(checkSwitchedOff(tests)))
test('names say something', () => none(checkNames(all)))
test('nothing is handed on by a barrel', () => none(checkBarrels(all)))
test('files open by saying what they are', () => none(checkOpenings(program)))
test('files, functions and lines of the program are of a size', () =>
  none(
    checkSizes(
      [...program, ...tools],
      {fileLines: FILE_LINES_MAX, functionLines: FUNCTION_LINES_MAX},
      LONGER,
    ),
  ))
test('lines and files of the tests are of a size', () =>
  none(checkSizes(tests, {fileLines: TEST_LINES_MAX, functionLines: Infinity}, LONGER)))
test('nothing is left half done', () => {
  // These name the marks they look for.
  const looking = /^test\/tidy(\/|\.)/
  none(checkMarkers(all.filter(({path}) => !looking.test(path))))
})
test('what silences the compiler says why', () => none(checkCasts([...program, ...tools])))
test('no error vanishes', () => none(checkErrors([...program, ...tools])))
