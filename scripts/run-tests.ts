/**
 * Runs test files in processes of their own, from bundles: `node scripts/run-tests.ts --at-once=4
 * --limit=180000 'test/**\/*.test.ts'`. The limit is in ms and for one test. `--sources` runs the files
 * themselves. Files that take long start first: the run would otherwise end with one of them, alone.
 */
import {globSync} from 'node:fs'
import {join} from 'node:path'
import {run} from 'node:test'
import {dot} from 'node:test/reporters'
import {parseArgs} from 'node:util'
import {ROOT} from '../bin/build-id.js'
import {bundleTests} from './bundle-tests.ts'
import uncaughtErrors from './light-harness.ts'

const HARNESS = join(import.meta.dirname, 'light-harness.ts')
/**
 * Each took more than half a minute on two busy cores. Their order here is that of their starts. The first
 * share the cores with the tools, which the trial, whose lags are checked, does not.
 */
const LONG = [
  'test/store/postgres.test.ts',
  'test/store/sqlite.test.ts',
  'test/agents/cluster.test.ts',
  'test/store/crash.test.ts',
  'test/faults/store-outage.test.ts',
  'test/faults/night.test.ts',
  'test/app/migrate.test.ts',
  'test/faults/trial.test.ts',
  'test/faults/features-away.test.ts',
  'test/app/put-back.test.ts',
  'test/faults/features.test.ts',
  'test/agents/process.test.ts',
  'test/store/sqlite-mark.test.ts',
  'test/agents/rejoin.test.ts',
  'test/app/build.test.ts',
  'test/http/authorization.test.ts',
  'test/scheduler/notices.test.ts',
  'test/app/crash.test.ts',
  'test/faults/features-start.test.ts',
  'test/app/membership.test.ts',
  'test/agents/hostile-peers.test.ts',
  'test/bench/cluster.test.ts',
  'test/bench/peer.test.ts',
]

const {values, positionals} = parseArgs({
  allowPositionals: true,
  options: {
    'at-once': {type: 'string', default: '1'},
    limit: {type: 'string', default: '180000'},
    sources: {type: 'boolean', default: false},
  },
})
const found = globSync(positionals, {cwd: ROOT}).toSorted()
if (found.length === 0) throw new Error(`No test file matches ${positionals.join(' ')}.`)
const files = [
  ...LONG.filter((file) => found.includes(file)),
  ...new Set(found).difference(new Set(LONG)),
]
const bundles = values.sources ? null : await bundleTests(files)

const interrupt = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => interrupt.abort())
const events = run({
  files: bundles ?? files,
  cwd: ROOT,
  concurrency: Number(values['at-once']),
  timeout: Number(values.limit),
  // Ends the processes of the test files.
  signal: interrupt.signal,
  // Errors and tests are shown at their places in the sources.
  execArgv: ['--import', HARNESS, '--enable-source-maps'],
})
events.on('test:summary', ({success}) => {
  if (!success) process.exitCode = 1
})
events.compose(dot).pipe(process.stdout)
events.compose(uncaughtErrors).pipe(process.stderr)
