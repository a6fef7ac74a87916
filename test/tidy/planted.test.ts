/** Each tidy rule against planted code: violations are found, allowed code is not. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {checkBanned, checkSleeps} from './banned.ts'
import {checkCycles, checkDead, checkFloors, checkTargets} from './floors.ts'
import {
  checkBarrels,
  checkCasts,
  checkErrors,
  checkMarkers,
  checkNames,
  checkOpenings,
  checkSizes,
  checkSwitchedOff,
  listLong,
} from './shape.ts'
import {checkNever} from './never.ts'
import {checkHeads, checkPages, checkProse} from './prose.ts'
import {parseSource, type Finding, type Source} from './source.ts'

const at = (path: string, text: string): Source => parseSource(path, text)
const importing = (path: string, ...targets: readonly string[]): Source =>
  at(path, targets.map((target) => `import '${target}'\n`).join(''))

type Check = (sources: readonly Source[]) => readonly Finding[]

/** `found` are the findings without their place. */
function expectFindings(check: Check, sources: readonly Source[], found: readonly RegExp[]): void {
  const findings = check(sources)
  assert.equal(findings.length, found.length, findings.join('\n'))
  for (const [index, pattern] of found.entries()) assert.match(findings[index]!, pattern)
}

/** Import, and what is wrong with it; `null` = nothing. */
const IMPORTS: readonly (readonly [path: string, target: string, wrong: RegExp | null])[] = [
  ['src/core/job.ts', '../lib/assert.ts', null],
  ['src/core/job.ts', './next-time.ts', null],
  ['src/core/schedule/cron.ts', './zone.ts', null],
  ['src/core/job.ts', '../ports/runtime.ts', /imports go down only/],
  ['src/lib/loop.ts', '../core/job.ts', /imports go down only/],
  ['src/wire/job.ts', '../ports/runtime.ts', null],
  ['src/wire/job.ts', '../config/limits.ts', /folders on one floor do not import each other/],
  ['src/node/runner.ts', '../scheduler/leadership.ts', /imports go down only/],
  [
    'src/executors/shell.ts',
    '../telemetry/log.ts',
    /folders on one floor do not import each other/,
  ],
  ['src/http/server.ts', '../operations/jobs.ts', null],
  ['src/http/server.ts', '../cli/client.ts', /folders on one floor do not import each other/],
  ['src/node/runner.ts', '../executors/shell.ts', /only the composition roots name adapters/],
  ['src/http/server.ts', '../store/sqlite/store.ts', /only the composition roots name adapters/],
  ['src/operations/jobs.ts', '../telemetry/log.ts', /only the composition roots name adapters/],
  ['src/app/server.ts', '../store/sqlite/store.ts', null],
  ['src/app/node.ts', '../executors/registry.ts', null],
  ['src/main.ts', './config/server.ts', null],
  ['src/node/runner.ts', '../main.ts', /imports go down only/],
  ['src/platform/version.ts', '../../package.json', null],
  ['src/node/runner.ts', '../../test/support/world.ts', /src imports nothing outside of src/],
  ['src/node/runner.ts', 'fastify', null],
  ['test/node/runner.test.ts', '../../src/store/sqlite/store.ts', null],
]

for (const [path, target, wrong] of IMPORTS)
  test(`${path} importing ${target} is ${wrong === null ? 'fine' : 'found'}`, () => {
    expectFindings(checkFloors, [importing(path, target)], wrong === null ? [] : [wrong])
  })

test('imports count in every form', () => {
  for (const text of [
    "import type {A} from '../ports/runtime.ts'",
    "export {A} from '../ports/runtime.ts'",
    "export * from '../ports/runtime.ts'",
    "const a = await import('../ports/runtime.ts')",
  ])
    expectFindings(checkFloors, [at('src/core/job.ts', text)], [/imports go down only/])
})

test('a folder that is on no floor is found', () => {
  expectFindings(checkFloors, [at('src/misplaced/a.ts', '')], [/src\/misplaced is on no floor/])
})

test('a cycle is reported once; a diamond of imports is no cycle', () => {
  const circle = [
    importing('src/core/a.ts', './b.ts'),
    importing('src/core/b.ts', './c.ts'),
    importing('src/core/c.ts', './a.ts'),
    importing('src/core/d.ts', './a.ts'),
  ]
  expectFindings(checkCycles, circle, [
    /a\.ts → src\/core\/b\.ts → src\/core\/c\.ts → src\/core\/a/,
  ])
  const diamond = [
    importing('src/core/a.ts', './b.ts', './c.ts'),
    importing('src/core/b.ts', './d.ts'),
    importing('src/core/c.ts', './d.ts'),
    at('src/core/d.ts', ''),
  ]
  expectFindings(checkCycles, diamond, [])
})

test('dead files, also those that only know each other, and imports into nothing are found', () => {
  const files = [
    importing('src/main.ts', './a.ts'),
    at('src/a.ts', ''),
    importing('src/b.ts', './c.ts'),
    importing('src/c.ts', './gone.ts'),
  ]
  expectFindings((sources) => checkDead(sources, ['src/main.ts']), files, [
    /^src\/b\.ts:1 is dead/,
    /^src\/c\.ts:1 is dead/,
  ])
  expectFindings(checkTargets, files, [/^src\/c\.ts:1 imports \.\/gone\.ts: not there/])
})

/** Code, and what the message tells to use instead; `null` = allowed. */
const CALLS: readonly (readonly [code: string, instead: RegExp | null])[] = [
  ['const a = Date.now()', /Date\.now: take a Clock .*: now\(\)/],
  ['const a = new Date()', /new Date\(\): take a Clock/],
  ['const a = Date()', /Date\(\): take a Clock/],
  ['const a = new Date(5)', null],
  ['const a = Date.parse(b)', null],
  ['const now = Date.now', /Date\.now/],
  ['performance.now()', /monotonicMs\(\)/],
  ['process.hrtime.bigint()', /monotonicMs\(\)/],
  ['Temporal.Now.instant()', /Temporal\.Now/],
  ['Temporal.Instant.from(a)', null],
  ['setTimeout(a, 5)', /setTimeout: take a Clock .*after\(\)/],
  ['globalThis.setInterval(a, 5)', /setInterval/],
  ['const later = setImmediate', /setImmediate/],
  ['clock.setTimeout(a)', null],
  ['const a = {setTimeout: 5}', null],
  ['type A = {setTimeout: number}', null],
  ['AbortSignal.timeout(5)', /AbortSignal\.timeout/],
  ['Math.random()', /Math\.random: take a Random/],
  ['Math.round(a)', null],
  ['crypto.randomUUID()', /crypto\.randomUUID: take a Random/],
  ["import {randomBytes} from 'node:crypto'", /randomBytes of node:crypto/],
  ["import * as all from 'node:crypto'", /\* of node:crypto/],
  ["import {createHash} from 'crypto'", null],
  [
    "import {setTimeout as pause} from 'node:timers/promises'",
    /setTimeout of node:timers\/promises/,
  ],
  ["import {performance} from 'node:perf_hooks'", /performance of node:perf_hooks/],
  ["import {monitorEventLoopDelay} from 'node:perf_hooks'", null],
  ['const a = process.env.HOME', /process\.env: read it in src\/main\.ts/],
  ['process.exit(1)', /process\.exit: return, or throw/],
  ['// Date.now() in a comment, "Date.now()" in a text\nconst a = "Date.now()"', null],
]

for (const [code, instead] of CALLS)
  test(`${JSON.stringify(code)} is ${instead === null ? 'allowed' : 'found'}`, () => {
    const source = at('src/node/runner.ts', code)
    expectFindings((all) => checkBanned(all, []), [source], instead === null ? [] : [instead])
    expectFindings((all) => checkBanned(all, [[/^src\/node\//, /./]]), [source], [])
  })

test('an exception for one name does not allow another', () => {
  const source = at('src/app/server.ts', 'process.env.A + Date.now()')
  const allowed = [[/^src\/app\/server\.ts$/, /^process\.env$/]] as const
  expectFindings((all) => checkBanned(all, allowed), [source], [/Date\.now/])
})

test('a test that sleeps is found', () => {
  for (const code of [
    "import {setTimeout as pause} from 'node:timers/promises'",
    'await new Promise((resolve) => setTimeout(resolve, 50))',
    'Atomics.wait(a, 0, 0, 50)',
  ])
    expectFindings(
      checkSleeps,
      [at('test/a.test.ts', code)],
      [/waits by the clock: advance a virtual/],
    )
  expectFindings(checkSleeps, [at('test/a.test.ts', 'clock.turn(50); clock.after(5, f)')], [])
})

test('a test that does not run is found, a platform that lacks something is allowed', () => {
  for (const code of [
    "test.skip('a', () => {})",
    "describe.only('a', () => {})",
    "test('a', {skip: true}, () => {})",
    "it('a', {todo: 'later'}, () => {})",
  ])
    expectFindings(checkSwitchedOff, [at('test/a.test.ts', code)], [/every test runs/])
  for (const code of [
    "test('a', {skip: ON_LINUX ? false : 'reads /proc'}, () => {})",
    "test('a', {skip: false}, () => {})",
    'const rows = {skip: 5, only: true}',
    'list.skip(5)',
  ])
    expectFindings(checkSwitchedOff, [at('test/a.test.ts', code)], [])
})

test('names that say nothing are found', () => {
  for (const path of ['src/std/utils.ts', 'src/core/types.ts', 'test/helpers.ts', 'src/index.ts'])
    expectFindings(checkNames, [at(path, '')], [/says nothing/])
  expectFindings(checkNames, [at('src/core/jobPlan.ts', '')], [/lower case with dashes/])
  expectFindings(checkNames, [at('src/core/a.ts', 'class JobManager {}')], [/"JobManager"/])
  expectFindings(checkNames, [at('test/core/job-plan.test.ts', 'class Jobs {}')], [])
})

/** Code in a file, and what it never does there; `null` = nothing. */
const NEVER: readonly (readonly [path: string, code: string, wrong: RegExp | null])[] = [
  ['src/core/job.ts', 'export async function a() {}', /core decides without promises/],
  ['src/core/job.ts', 'export const a = 1', null],
  ['src/core/job.ts', "a.executor === 'shell'", /core names no executor or processor/],
  ['src/store/a.ts', "a.executor === 'shell'", null],
  ['src/ports/events.ts', 'export const STEPS = []', /ports has types and error classes only/],
  ['src/ports/store.ts', 'export interface A {}\nexport type B = A', null],
  ['src/ports/errors.ts', 'export class A extends Error {}\nexport class B extends A {}', null],
  ['src/ports/errors.ts', 'export class A {}', /ports has types and error classes only/],
  ['src/wire/job.ts', "import 'node:fs'", /wire imports no module of Node/],
  ['src/executors/a.ts', "import 'node:child_process'", /only executors\/process/],
  ['src/executors/process/a.ts', "import 'node:child_process'", null],
  ['src/operations/a.ts', "import 'fastify'", /operations know no HTTP/],
  ['src/operations/a.ts', "import '../wire/member.ts'", /routes decode and encode/],
  ['src/operations/a.ts', "import '../wire/decode-job.ts'", null],
  ['src/http/a.ts', "import 'fastify'", null],
]

test('what a folder never does is found', () => {
  for (const [path, code, wrong] of NEVER)
    expectFindings(checkNever, [at(path, code)], wrong === null ? [] : [wrong])
})

test('a barrel is found; a file with code of its own is no barrel', () => {
  expectFindings(checkBarrels, [at('src/a.ts', "export {a} from './b.ts'")], [/is a barrel/])
  expectFindings(checkBarrels, [at('src/a.ts', "export * from './b.ts'\nf()")], [/exports \*/])
  expectFindings(checkBarrels, [at('src/a.ts', "export {a} from './b.ts'\nexport const c = 1")], [])
})

test('long lines, functions and files are found', () => {
  const sizes = (sources: readonly Source[]) =>
    checkSizes(sources, {fileLines: 5, functionLines: 3})
  const long = at('src/a.ts', 'f()\n'.repeat(6))
  expectFindings(sizes, [long], [/has 6 lines; split it by subject/])
  const short = at('src/a.ts', 'f()\n'.repeat(5))
  expectFindings(sizes, [short], [])
  assert.deepEqual(listLong([short, long], 5), ['6 src/a.ts'])
  expectFindings(sizes, [at('src/a.ts', `// ${'word '.repeat(25)}`)], [/128 characters/])
  expectFindings(sizes, [at('src/a.ts', `// https://${'x'.repeat(110)}`)], [])
  for (const code of [
    'function a() {\n\n\n}',
    'const a = () => {\n\n\n}',
    'class A {\n  #b() {\n\n\n}}',
    'const a = {b() {\n\n\n}}',
  ])
    expectFindings(sizes, [at('src/a.ts', code)], [/a function of 4 lines/])
})

test('a file without a header comment is found', () => {
  expectFindings(checkOpenings, [at('src/a.ts', "import 'a'")], [/does not open with a comment/])
  expectFindings(checkOpenings, [at('src/a.ts', '/** What. */\n')], [])
  expectFindings(checkOpenings, [at('bin/a.js', '#!/usr/bin/env node\n// What.\n')], [])
  const shell = "#!/bin/sh\n':' //; exec node\n\n"
  expectFindings(checkOpenings, [at('bin/a.js', `${shell}// What.\n`)], [])
  expectFindings(checkOpenings, [at('bin/a.js', `${shell}import 'a'`)], [/does not open/])
})

test('leftover markers are found', () => {
  for (const mark of [
    'TODO',
    'FIXME: x',
    'XXX',
    '@ts-ignore',
    '@ts-expect-error',
    'eslint-disable',
  ])
    expectFindings(checkMarkers, [at('src/a.ts', `// ${mark}\n`)], [/^src\/a\.ts:1 /])
  expectFindings(checkMarkers, [at('src/a.ts', '// eslint-disable-next-line a -- why\n')], [])
})

test('a double cast without a reason is found', () => {
  const cast = 'const a = b as unknown as C\n'
  expectFindings(checkCasts, [at('src/a.ts', cast)], [/a double cast/])
  expectFindings(checkCasts, [at('src/a.ts', `// The library types it as text.\n${cast}`)], [])
})

test('swallowed errors and errors recognised by message are found', () => {
  for (const [code, what] of [
    ['try { f() } catch {}', /caught and dropped/],
    ['try { f() } catch (error) {\n}', /caught and dropped/],
    ['f().catch(() => {})', /caught and dropped/],
    ['f().catch(() => undefined)', /caught and dropped/],
    ["if (error.message.includes('busy')) f()", /told by its words/],
    ['if (/busy/.test(error.message)) f()', /told by its words/],
  ] as const)
    expectFindings(checkErrors, [at('src/a.ts', code)], [what])
  for (const code of [
    'try { f() } catch (error) { report(error) }',
    'try { f() } catch {\n// The file may be absent.\n}',
    'f().catch(report)',
    'f().catch(() => null)',
    "if (error.code === 'BUSY') f()",
  ])
    expectFindings(checkErrors, [at('src/a.ts', code)], [])
})

test('a banned word is found in comments, errors and test titles, with the plain word', () => {
  for (const [code, plain] of [
    ['/** Whoever asks is answered. */', /"Whoever": write name the actor/],
    ["throw new Error('a second stop is told at once')", /"is told": write receive/],
    ['throw new Error(`the ${name} hears of it`)', /"hears": write receive/],
    ["test('rings for a request that waits', run)", /"rings": write notify/],
    ['const a = 1 // an earlier life of the node', /"earlier life": write incarnation/],
  ] as const)
    expectFindings(checkProse, [at('src/a.ts', code)], [plain])
})

test('a comment that does not open with the thing it is about is found', () => {
  for (const [code, word] of [
    ['/** Of the last claim. */', 'Of'],
    ['/**\n * Whether it runs.\n */', 'Whether'],
    ['f() // As written', 'As'],
    ['/** Its own times. */', 'Its'],
    ['f() // a call\n// One row a job,\n// for lists', 'One'],
  ] as const)
    expectFindings(checkHeads, [at('src/a.ts', code)], [new RegExp(`opens with "${word}"`)])
  for (const code of [
    '/** Officers of the watch. */',
    '/** Rows.\n * Of all jobs. */',
    '// Rows of jobs, sorted\n// As they are listed.',
    "f('Of // As')",
  ])
    expectFindings(checkHeads, [at('src/a.ts', code)], [])
})

test('identifiers, code in comments, single words and SQL are not prose', () => {
  for (const code of [
    'const stray = lane.bury(dice)',
    '/** The `begun` field of the agent protocol. */',
    "const kind = 'stray'",
    'const sql = `SELECT begun FROM strays WHERE nobody = 1`',
    '/** See docs/forget-me.md. */',
  ])
    expectFindings(checkProse, [at('src/a.ts', code)], [])
})

test('a banned word is found on a page, but not in its code blocks', () => {
  const page = (text: string) => [{path: 'README.md', text}]
  const check = (text: string) => () => checkPages(page(text))
  expectFindings(check('Fine.\n\nThe node goes on.'), [], [/^README.md:3 "goes on"/])
  expectFindings(check('```bash\nwhoever\n```\n`whoever`'), [], [])
})
