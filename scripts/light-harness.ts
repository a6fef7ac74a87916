/**
 * Preloaded into the test files of `npm test`: Node's test harness without its async hook. The hook follows
 * every promise to name the test of an uncaught error; it takes half the time of a simulated history. Without
 * it, an uncaught error still fails its file. It is printed, and as a second reporter this file shows it.
 */
import asyncHooks, {type AsyncHook} from 'node:async_hooks'
import {syncBuiltinESMExports} from 'node:module'
import {inspect} from 'node:util'
import {isMainThread} from 'node:worker_threads'

const {createHook} = asyncHooks
const NOT_TRACKING: AsyncHook = {enable: () => NOT_TRACKING, disable: () => NOT_TRACKING}
const UNCAUGHT = 'uncaught error: '

asyncHooks.createHook = (callbacks) => {
  const isOfHarness = new Error('who asks').stack?.includes('node:internal/test_runner/') === true
  return isOfHarness ? NOT_TRACKING : createHook(callbacks)
}
syncBuiltinESMExports()

/** The runner passes standard error on line by line. */
function print(error: unknown): void {
  const text = `in ${process.argv[1]}: ${inspect(error)}`
  for (const line of text.split('\n')) console.error(`${UNCAUGHT}${line}`)
}
if (isMainThread) {
  process.on('uncaughtExceptionMonitor', print)
  process.on('unhandledRejection', print)
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
