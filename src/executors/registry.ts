/**
 * Registry of executors by name. A new executor needs one file, one line here and one section in
 * docs/reference/executors.md. Checks work immediately. Running requires `start`, which starts the process
 * helper.
 */
import {join} from 'node:path'
import type {Executor} from '../ports/executor.ts'
import type {Clock} from '../ports/runtime.ts'
import {createHttpExecutor} from './http.ts'
import {NetworkGuard} from '../platform/network-guard.ts'
import {endOrphans} from './process/orphans.ts'
import type {HelperReady, SpawnChoice} from './process/protocol.ts'
import {ProcessHelper} from './process/supervisor.ts'
import {createShellExecutor, runProgram} from './shell.ts'

/** Interval at which the memory of commands with a `mem_limit` is sampled. */
const MEMORY_SAMPLE_MS = 1_000

/** Variables that commands inherit. All other variables of the node may contain secrets of the service. */
const INHERITED = ['PATH', 'HOME', 'USER', 'LANG', 'TZ', 'TMPDIR', 'SHELL']

/** Search path of a node that was started without a PATH. */
const PATH_FALLBACK = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

export interface ExecutorOptions {
  /** The node's data directory, absolute. */
  readonly dataDir: string
  /** The node's identity, kept in its data directory. Distinguishes its processes from other nodes'. */
  readonly nodeId: string
  readonly clock: Clock
  /** The environment that the node was started with. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Accounts shell jobs may name in `su` (`user` or `user:group`); `*` = any. */
  readonly suAllowed: readonly string[]
  /** Executors that this node may run; empty = all. Others are checked as elsewhere, and their runs fail. */
  readonly allowed: readonly string[]
  /** CIDR ranges. `netAllow` overrides `netDeny`, but not the addresses that are always denied. */
  readonly netAllow: readonly string[]
  readonly netDeny: readonly string[]
  /** Time from TERM to KILL. The documentation promises 10 s. */
  readonly killAfterMs: number
  /** Maximum wait for the output of an ended command: about 2 s. */
  readonly drainMs: number
  readonly spawn: SpawnChoice
  /** Logs an error that belongs to no execution. */
  readonly report: (message: string) => void
}

export interface ExecutorRegistry {
  readonly all: readonly Executor[]
  /** `null` when there is no such executor. */
  get(name: string): Executor | null
  /** Names in alphabetical order. */
  names(): readonly string[]
  /**
   * Ends processes that a previous incarnation of this node left running. `ended` are the executions that had
   * live processes.
   */
  endOrphans(): Promise<{ended: string[]}>
  /** Starts the process helper. Rejects when it cannot be started. */
  start(): Promise<void>
  /** Ends all commands (TERM, then KILL), then the helper. */
  stop(): Promise<void>
  /**
   * Runs a program of Belfry itself (no job) through the helper, with `input` as standard input. Resolves to
   * `''`, or to why it failed, with the end of its output.
   */
  runProgram(argv: readonly string[], input: Uint8Array): Promise<string>
  /** How commands are started; `null` before `start`. */
  spawnUsed(): HelperReady | null
}

/** Throws for an invalid range in `netAllow` or `netDeny`. */
export function createExecutors(options: ExecutorOptions): ExecutorRegistry {
  const {nodeId, clock, report} = options
  const directory = join(options.dataDir, 'executions')
  const helper = new ProcessHelper({
    directory,
    nodeId,
    clock,
    report,
    environment: inheritedFrom(options.environment),
    spawn: options.spawn,
    killAfterMs: options.killAfterMs,
    drainMs: options.drainMs,
    memorySampleMs: MEMORY_SAMPLE_MS,
  })
  const all: readonly Executor[] = [
    createShellExecutor({
      suAllowed: options.suAllowed,
      runsAsRoot: process.geteuid?.() === 0,
      run: (request, output) => helper.run(request, output),
    }),
    createHttpExecutor({clock, guard: new NetworkGuard(options.netAllow, options.netDeny)}),
  ]
  const isAllowed = ({name}: Executor) =>
    options.allowed.length === 0 || options.allowed.includes(name)
  const byName = new Map(
    all.map((executor) => [executor.name, isAllowed(executor) ? executor : forbidden(executor)]),
  )
  return {
    all,
    get: (name) => byName.get(name) ?? null,
    names: () => [...byName.keys()].toSorted(),
    endOrphans: () => endOrphans({directory, nodeId, clock}),
    start: () => helper.start(),
    stop: () => helper.stop(),
    runProgram: (argv, input) => runProgram(helper, argv, input),
    spawnUsed: () => helper.spawnUsed,
  }
}

/** Other nodes may run it, so its parameters are checked as always. */
function forbidden(executor: Executor): Executor {
  const foot = `not started: this node may not run the executor "${executor.name}"; see --executor-allow\n`
  const end = {outcome: 'failed', exitCode: null, head: '', foot} as const
  const start = () => ({
    cancel: () => undefined,
    kill: () => undefined,
    ended: Promise.resolve(end),
  })
  return {...executor, start}
}

/** The variables of `environment` that commands inherit. */
export function inheritedFrom(
  environment: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const inherited: Record<string, string> = {PATH: PATH_FALLBACK}
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined || value === '') continue
    if (INHERITED.includes(name) || name.startsWith('LC_')) inherited[name] = value
  }
  return inherited
}
