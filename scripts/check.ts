/**
 * `npm test`: everything that must hold before a change is kept. Runs each step whatever became of the one
 * before, so that one run names all that is wrong, and closes with one line that says how it went. A step
 * that hangs is ended.
 */
import {spawn} from 'node:child_process'
import {existsSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {delimiter, join} from 'node:path'

const ROOT = join(import.meta.dirname, '..')
const FOLDERS = ['src', 'test', 'bin', 'tools', 'scripts']
const SECOND_MS = 1000
const TOOL_LIMIT_MS = 60 * SECOND_MS
/** Three times what two cores need: a slow machine is no failure. */
const TESTS_LIMIT_MS = 900 * SECOND_MS
const ONE_TEST_LIMIT_MS = 180 * SECOND_MS
/** For a step that is ended to end its own children. */
const KILL_AFTER_MS = 5 * SECOND_MS
/**
 * Test files wait for disks and processes as well as they compute: one more than a small machine has cores.
 * With four on two cores nothing is gained.
 */
const TEST_FILES_AT_ONCE = Math.min(8, Math.max(3, availableParallelism()))

interface Step {
  readonly name: string
  readonly command: readonly [string, ...string[]]
  readonly limitMs: number
}

const STEPS: readonly Step[] = [
  {name: 'types', command: ['tsc', '-p', 'tsconfig.json'], limitMs: TOOL_LIMIT_MS},
  {name: 'pure types', command: ['tsc', '-p', 'tsconfig.pure.json'], limitMs: TOOL_LIMIT_MS},
  {
    name: 'lint',
    command: ['oxlint', '--type-aware', '--deny-warnings', ...FOLDERS.filter(isThere)],
    limitMs: TOOL_LIMIT_MS,
  },
  {name: 'format', command: ['prettier', '--check', '.'], limitMs: TOOL_LIMIT_MS},
  {
    name: 'tests',
    command: [
      'node',
      '--test',
      `--test-concurrency=${TEST_FILES_AT_ONCE}`,
      `--test-timeout=${ONE_TEST_LIMIT_MS}`,
      '--test-reporter=dot',
      ...process.argv.slice(2).concat(process.argv.length > 2 ? [] : ['test/**/*.test.ts']),
    ],
    limitMs: TESTS_LIMIT_MS,
  },
]

function isThere(folder: string): boolean {
  return existsSync(join(ROOT, folder))
}

/** Ours first in PATH, so that the pinned runtime is used; nothing of the caller's Belfry settings. */
function environment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('BELFRY_'))
  const path = `${join(ROOT, 'node_modules', '.bin')}${delimiter}${process.env['PATH'] ?? ''}`
  return {...Object.fromEntries(kept), PATH: path}
}

/** Resolves with what went wrong, `null` when nothing did. */
function run(step: Step): Promise<string | null> {
  const [program, ...rest] = step.command
  return new Promise((resolve) => {
    // In our own process group, so that whoever ends the group ends the step too.
    const child = spawn(program, rest, {
      cwd: ROOT,
      env: environment(),
      stdio: ['ignore', 'inherit', 'inherit'],
    })
    let late = false
    const end = () => {
      late = true
      child.kill('SIGTERM')
      killTimer = setTimeout(() => child.kill('SIGKILL'), KILL_AFTER_MS)
    }
    const timer = setTimeout(end, step.limitMs)
    let killTimer: NodeJS.Timeout | undefined
    const settle = (problem: string | null) => {
      clearTimeout(timer)
      clearTimeout(killTimer)
      resolve(problem)
    }
    child.on('error', (error) => settle(error.message))
    child.on('exit', (code, signal) => {
      if (late) settle(`not done after ${step.limitMs / SECOND_MS} s`)
      else settle(code === 0 ? null : `exit ${code ?? signal}`)
    })
  })
}

const started = performance.now()
const failed: string[] = []
for (const step of STEPS) {
  console.log(`\n▶ ${step.name}`)
  const problem = await run(step)
  if (problem !== null) failed.push(`${step.name} (${problem})`)
}
const seconds = Math.round((performance.now() - started) / SECOND_MS)
if (failed.length === 0) console.log(`\nPASSED: all ${STEPS.length} steps, ${seconds} s`)
else console.log(`\nFAILED: ${failed.join(', ')}; ${seconds} s`)
process.exitCode = failed.length === 0 ? 0 : 1
