/**
 * `npm test`: everything that must hold before a change is kept; `npm run test:quick` (`--quick`): the part
 * for the loop while editing. Every step runs even if an earlier one failed, so that one run reports all
 * problems. A step that exceeds its time limit is killed. The last line says how the run ended.
 */
import {type ChildProcess, execFileSync, spawn} from 'node:child_process'
import {existsSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {delimiter, join} from 'node:path'

const ROOT = join(import.meta.dirname, '..')
/**
 * Compile cache of Node, shared by all test processes and the servers they start: without it every process
 * strips and compiles the same files again, about half a second of processor time each.
 */
const CACHE = join(ROOT, 'node_modules', '.cache')
const COMPILED = join(CACHE, 'compiled')
const FOLDERS = ['src', 'test', 'bin', 'tools', 'scripts']
const SECOND_MS = 1000
/** Ten times what a tool takes alone: the tests use the cores meanwhile. */
const TOOL_LIMIT_MS = 180 * SECOND_MS
/** Three times what two cores need: a slow machine is not a failure. */
const TESTS_LIMIT_MS = 900 * SECOND_MS
const ONE_TEST_LIMIT_MS = 180 * SECOND_MS
/** Time for a killed step to end its own children. */
const KILL_AFTER_MS = 5 * SECOND_MS
/** `--at-once=N`: test files that run at the same time. */
const AT_ONCE = '--at-once='
/** `--sources`: test files run without a bundle. */
const SOURCES = '--sources'
/** Test files that start processes mostly wait for them: on two cores, two at once leave a core idle. */
const TEST_FILES_AT_ONCE = Math.min(8, availableParallelism() + 2)
/** Tests that start no process and simulate no long history. */
const UNIT_TESTS = [
  'test/tidy.test.ts',
  'test/docs.test.ts',
  'test/{lib,core,wire,config,platform,telemetry,processors,operations,tidy}/**/*.test.ts',
  'test/node/{membership,clock-watch,finisher,output-buffer}.test.ts',
  'test/scheduler/{leadership,failure-detector,reassigner}.test.ts',
]

/** Files that have not changed since the last run are not checked again. */
const TYPES_CACHE = ['--incremental', '--tsBuildInfoFile', join(CACHE, 'types.tsbuildinfo')]
const FORMAT_CACHE = [
  '--cache',
  '--cache-strategy=content',
  `--cache-location=${join(CACHE, 'prettier', 'files.json')}`,
]

interface Step {
  readonly name: string
  readonly command: readonly [string, ...string[]]
  readonly limitMs: number
}

const isQuick = process.argv.includes('--quick')
/** A bundle takes longer than the unit tests gain from it. */
const runsSources = isQuick || process.argv.includes(SOURCES)
const atOnce = process.argv.find((argument) => argument.startsWith(AT_ONCE))?.slice(AT_ONCE.length)
const chosenTests = process.argv
  .slice(2)
  .filter((argument) => !['--quick', SOURCES].includes(argument) && !argument.startsWith(AT_ONCE))
const allTests = isQuick ? UNIT_TESTS : ['test/**/*.test.ts']

/**
 * Steps that run one after the other. The steps of one list run at once: tests wait for processes and timers,
 * and the tools use the cores meanwhile.
 */
const STEPS: readonly (readonly Step[])[] = [
  // The servers of the tests run the build, which starts faster than the sources.
  [{name: 'build', command: ['node', 'scripts/build.js'], limitMs: TOOL_LIMIT_MS}],
  [
    {
      name: 'types',
      command: ['tsc', '-p', 'tsconfig.json', ...TYPES_CACHE],
      limitMs: TOOL_LIMIT_MS,
    },
    {name: 'pure types', command: ['tsc', '-p', 'tsconfig.pure.json'], limitMs: TOOL_LIMIT_MS},
    {
      name: 'lint',
      command: ['oxlint', '--type-aware', '--deny-warnings', ...FOLDERS],
      limitMs: TOOL_LIMIT_MS,
    },
    {
      name: 'format',
      command: [
        'prettier',
        '--check',
        '--ignore-unknown',
        ...FORMAT_CACHE,
        ...(isQuick ? changedFiles() : ['.']),
      ],
      limitMs: TOOL_LIMIT_MS,
    },
    {
      name: 'tests',
      command: [
        'node',
        'scripts/run-tests.ts',
        `${AT_ONCE}${atOnce ?? TEST_FILES_AT_ONCE}`,
        `--limit=${ONE_TEST_LIMIT_MS}`,
        ...(runsSources ? [SOURCES] : []),
        ...(chosenTests.length > 0 ? chosenTests : allTests),
      ],
      limitMs: TESTS_LIMIT_MS,
    },
  ],
]

/** Files changed since the last commit, and new ones; at least one, because prettier needs an argument. */
function changedFiles(): readonly string[] {
  const git = (...parameters: readonly string[]) =>
    execFileSync('git', parameters, {cwd: ROOT, encoding: 'utf8'}).split('\n').filter(Boolean)
  const changed = [
    ...git('diff', '--name-only', 'HEAD'),
    ...git('ls-files', '--others', '--exclude-standard'),
  ]
  return ['package.json', ...changed.filter((file) => existsSync(join(ROOT, file)))]
}

/** PATH starts with the pinned runtime; the caller's own Belfry settings are removed. */
function environment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('BELFRY_'))
  const path = `${join(ROOT, 'node_modules', '.bin')}${delimiter}${process.env['PATH'] ?? ''}`
  return {...Object.fromEntries(kept), PATH: path, NODE_COMPILE_CACHE: COMPILED}
}

/** Resolves with the problem, or `null` on success. */
function run(step: Step): Promise<string | null> {
  const [program, ...rest] = step.command
  return new Promise((resolve) => {
    // The step stays in our own process group: a signal to the group ends the step too.
    const child = spawn(program, rest, {
      cwd: ROOT,
      env: environment(),
      stdio: ['ignore', 'inherit', 'inherit'],
    })
    running.add(child)
    let isLate = false
    const end = () => {
      isLate = true
      child.kill('SIGTERM')
      killTimer = setTimeout(() => child.kill('SIGKILL'), KILL_AFTER_MS)
    }
    const timer = setTimeout(end, step.limitMs)
    let killTimer: NodeJS.Timeout | undefined
    const settle = (problem: string | null) => {
      clearTimeout(timer)
      clearTimeout(killTimer)
      running.delete(child)
      resolve(problem)
    }
    child.on('error', (error) => settle(error.message))
    child.on('exit', (code, signal) => {
      if (isLate) settle(`not done after ${step.limitMs / SECOND_MS} s`)
      else settle(code === 0 ? null : `exit ${code ?? signal}`)
    })
  })
}

const running = new Set<ChildProcess>()
// A signal to this process alone ends the steps too: the tests end the servers that they started.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
  process.once(signal, () => {
    for (const child of running) child.kill('SIGTERM')
    process.exit(1)
  })

const started = performance.now()
const failed: string[] = []
for (const steps of STEPS) {
  console.log(`\n▶ ${steps.map(({name}) => name).join(', ')}`)
  await Promise.all(
    steps.map(async (step) => {
      const problem = await run(step)
      if (problem !== null) failed.push(`${step.name} (${problem})`)
    }),
  )
}
const seconds = Math.round((performance.now() - started) / SECOND_MS)
if (failed.length === 0) console.log(`\nPASSED: all ${STEPS.flat().length} steps, ${seconds} s`)
else console.log(`\nFAILED: ${failed.join(', ')}; ${seconds} s`)
process.exitCode = failed.length === 0 ? 0 : 1
