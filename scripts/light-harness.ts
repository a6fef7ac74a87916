/**
 * Preloaded into the test files of `npm test`: Node's test harness, whose async hook ignores promises. The
 * hook knows the suite that a test belongs to, and names the test of an uncaught error. To follow every
 * promise takes half the time of a simulated history. Without them, an uncaught error may fail its file
 * instead of its test. It is printed, and as a second reporter this file shows it. A file that does not
 * end, such as after a failed test that left its store open, fails instead of holding up the run. A file
 * whose runner is gone ends.
 */
import asyncHooks from 'node:async_hooks'
import {syncBuiltinESMExports} from 'node:module'
import {basename} from 'node:path'
import {inspect} from 'node:util'
import {isMainThread} from 'node:worker_threads'

const {createHook} = asyncHooks
const UNCAUGHT = 'uncaught error: '

asyncHooks.createHook = (callbacks) => {
  const isOfHarness = new Error('who asks').stack?.includes('node:internal/test_runner/') === true
  return createHook(isOfHarness ? {...callbacks, trackPromises: false} : callbacks)
}
syncBuiltinESMExports()

/** The test file, also if its bundle runs (`nameOf` in bundle-tests.ts). */
const FILE = basename(process.argv[1] ?? '').replaceAll('--', '/')

/** The runner passes standard error on line by line. */
function print(error: unknown): void {
  const text = `in ${FILE}: ${inspect(error)}`
  for (const line of text.split('\n')) console.error(`${UNCAUGHT}${line}`)
}
if (isMainThread) {
  process.on('uncaughtExceptionMonitor', print)
  process.on('unhandledRejection', print)
}

/** Far above the time of any file: three times that of the longest on two busy cores. */
const FILE_LIMIT_MS = 240_000
const RUNNER_CHECK_MS = 2_000

// The runner and the processes that a test forks have the same flags.
const isTestFile = /\.test\.[jt]s$/.test(FILE)
if (isMainThread && isTestFile && process.env['NODE_TEST_CONTEXT'] !== undefined) {
  setTimeout(exitLate, FILE_LIMIT_MS).unref()
  // A runner that is killed cannot end its files.
  const runner = process.ppid
  setInterval(() => process.ppid !== runner && process.exit(1), RUNNER_CHECK_MS).unref()
}

function exitLate(): void {
  const open = process.getActiveResourcesInfo().join(', ')
  print(new Error(`the file has not ended after ${FILE_LIMIT_MS / 1_000} s. Still open: ${open}`))
  process.exit(1)
}

interface Event {
  readonly type: string
  readonly data: {readonly message?: string}
}

// oxlint-disable-next-line import/no-default-export -- the runner takes the default export of a reporter.
export default async function* uncaughtErrors(
  events: AsyncIterable<Event>,
): AsyncGenerator<string> {
  for await (const {type, data} of events)
    if (type === 'test:stderr' && data.message?.includes(UNCAUGHT) === true) yield data.message
}
