/**
 * The executors of a node, opened: what an earlier life of it left running is ended before anything new can
 * start. The same for a server and an agent.
 */
import type {Config} from '../config/server.ts'
import {createExecutors, type ExecutorRegistry} from '../executors/registry.ts'
import type {Clock} from '../ports/runtime.ts'
import {StartRefused} from './start-refused.ts'
import {AssertionFailed} from '../lib/assert.ts'
import type {Log} from '../telemetry/log.ts'

export interface ExecutorParts {
  readonly config: Pick<Config, 'dataDirectory' | 'limits' | 'suAllow' | 'netAllow' | 'netDeny'>
  readonly nodeId: string
  readonly clock: Clock
  readonly log: Log
  /** The environment the node was started with. */
  readonly environment: Readonly<Record<string, string | undefined>>
}

/** Started; whoever asked for them stops them. Throws `StartRefused` when commands cannot be started here. */
export async function openExecutors({
  config,
  nodeId,
  clock,
  log,
  environment,
}: ExecutorParts): Promise<ExecutorRegistry> {
  const {dataDirectory, limits, suAllow, netAllow, netDeny} = config
  const executors = createExecutors({
    dataDir: dataDirectory,
    nodeId,
    clock,
    environment,
    suAllowed: suAllow,
    cwdAllowed: null,
    netAllow,
    netDeny,
    killAfterMs: limits.killAfterMs,
    drainMs: limits.drainMs,
    spawn: 'auto',
    report: (sentence) => log.logger.warn(sentence),
  })
  try {
    const {ended} = await executors.endOrphans()
    for (const execution of ended)
      log.logger.warn({execution}, 'ended what an earlier life of this node had left running')
    await executors.start()
  } catch (error) {
    if (!(error instanceof Error) || error instanceof AssertionFailed) throw error
    const problem = `Commands cannot be run from the data directory ${dataDirectory}: ${error.message}.`
    throw new StartRefused(problem, {cause: error})
  }
  return executors
}
