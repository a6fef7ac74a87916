/**
 * Every executor this node knows, by name. A new one is one file, one line here and one section in
 * docs/reference/executors.md. Checks work at once; running needs `start`, because commands need the process
 * helper.
 */
import {join} from 'node:path'
import type {Executor} from '../ports/executor.ts'
import type {Clock} from '../ports/runtime.ts'
import {createHttpExecutor} from './http.ts'
import {NetworkGuard} from './network-guard.ts'
import {endOrphans} from './process/orphans.ts'
import type {HelperReady, SpawnChoice} from './process/protocol.ts'
import {ProcessHelper} from './process/supervisor.ts'
import {createShellExecutor, runProgram} from './shell.ts'

/** How often the memory of commands with a `mem_limit` is read. */
const MEMORY_SAMPLE_MS = 1_000

/** What commands see of the node's own environment. Everything else may be a secret of the service. */
const PASSED_ON = ['PATH', 'HOME', 'USER', 'LANG', 'TZ', 'TMPDIR', 'SHELL']

/** Where programs are looked for when the node itself was started without a PATH. */
const PATH_FALLBACK = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'

export interface ExecutorOptions {
  /** The node's data directory, absolute. */
  readonly dataDir: string
  /**
   * The node's identity: minted once, kept in its data directory. Tells its processes from another node's.
   */
  readonly nodeId: string
  readonly clock: Clock
  /** The environment the node itself was started with. */
  readonly environment: Readonly<Record<string, string | undefined>>
  /** Accounts shell jobs may name in `su` (`user` or `user:group`); `*` = any. */
  readonly suAllowed: readonly string[]
  /** Directories under which `cwd` must lie; `null` = anywhere. */
  readonly cwdAllowed: readonly string[] | null
  /** CIDR ranges; `netAllow` wins over `netDeny`, nothing wins over the addresses that are always refused. */
  readonly netAllow: readonly string[]
  readonly netDeny: readonly string[]
  /** Between TERM and KILL: 10 s is what users are promised. */
  readonly killAfterMs: number
  /** How long the output of a command that has ended is waited for: some 2 s. */
  readonly drainMs: number
  readonly spawn: SpawnChoice
  /** Told, in a sentence, what went wrong beside any execution: for the log. */
  readonly report: (sentence: string) => void
}

export interface ExecutorRegistry {
  /** `null` when there is no such executor. */
  get(name: string): Executor | null
  /** In alphabetical order. */
  names(): readonly string[]
  /**
   * Ends what an earlier life of this node left running; answers the executions of which something was
   * alive.
   */
  endOrphans(): Promise<{ended: string[]}>
  /** Starts the process helper. Rejects when that is not possible. */
  start(): Promise<void>
  /** Ends every command (TERM, KILL after the grace), then the helper. */
  stop(): Promise<void>
  /**
   * Runs a program of Belfry's own (no job) with `input`, through the helper. Answers `''` when it
   * succeeded, else why not, with the end of what it printed.
   */
  runProgram(argv: readonly string[], input: Uint8Array): Promise<string>
  /** How commands are started; `null` before `start`. */
  spawnUsed(): HelperReady | null
}

/** Throws a sentence when a range of `netAllow` or `netDeny` is none. */
export function createExecutors(options: ExecutorOptions): ExecutorRegistry {
  const {nodeId, clock, report} = options
  const directory = join(options.dataDir, 'executions')
  const helper = new ProcessHelper({
    directory,
    nodeId,
    clock,
    report,
    environment: passOn(options.environment),
    spawn: options.spawn,
    killAfterMs: options.killAfterMs,
    drainMs: options.drainMs,
    memorySampleMs: MEMORY_SAMPLE_MS,
  })
  const all: readonly Executor[] = [
    createShellExecutor({
      suAllowed: options.suAllowed,
      cwdAllowed: options.cwdAllowed,
      runsAsRoot: process.geteuid?.() === 0,
      run: (request, output) => helper.run(request, output),
    }),
    createHttpExecutor({clock, guard: new NetworkGuard(options.netAllow, options.netDeny)}),
  ]
  const byName = new Map(all.map((executor) => [executor.name, executor]))
  return {
    get: (name) => byName.get(name) ?? null,
    names: () => [...byName.keys()].toSorted(),
    endOrphans: () => endOrphans({directory, nodeId, clock}),
    start: () => helper.start(),
    stop: () => helper.stop(),
    runProgram: (argv, input) => runProgram(helper, argv, input),
    spawnUsed: () => helper.spawnUsed,
  }
}

/** The allow-listed part of `environment`. */
export function passOn(
  environment: Readonly<Record<string, string | undefined>>,
): Record<string, string> {
  const passed: Record<string, string> = {PATH: PATH_FALLBACK}
  for (const [name, value] of Object.entries(environment)) {
    if (value === undefined || value === '') continue
    if (PASSED_ON.includes(name) || name.startsWith('LC_')) passed[name] = value
  }
  return passed
}
