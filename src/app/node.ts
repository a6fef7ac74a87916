/**
 * Wiring that the composition roots share: the parts of a node that runs jobs, for servers and agents alike,
 * and the services of a leader's term. The order of start and stop is in `server.ts` and `agent.ts`.
 */
import {join} from 'node:path'
import type {Config} from '../config/server.ts'
import {ClockGuard} from '../core/clock-guard.ts'
import {systemTags} from '../core/node.ts'
import {createExecutors, type ExecutorRegistry} from '../executors/registry.ts'
import {AssertionFailed} from '../lib/assert.ts'
import type {Service} from '../lib/loop.ts'
import {StartLog, deletePreviousIncarnations, readPreviousIncarnations} from '../node/start-log.ts'
import {BackupDirectory} from '../platform/backup-directory.ts'
import {nodeIdentity, prepareDataDirectory} from '../platform/data-directory.ts'
import {type HeldLock, lockDirectory} from '../platform/directory-lock.ts'
import {VERSION} from '../platform/version.ts'
import type {Events} from '../ports/events.ts'
import type {JoinRequest, PreviousIncarnation} from '../ports/node-store.ts'
import type {Clock, Random, Wakeup} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import {createProcessors, type ProcessorRegistry} from '../processors/registry.ts'
import {FailureDetectorService} from '../scheduler/failure-detector.ts'
import {ScheduledBackups} from '../scheduler/backups.ts'
import type {TermOptions} from '../scheduler/leadership.ts'
import {Launcher} from '../scheduler/launcher.ts'
import {Reassigner} from '../scheduler/reassigner.ts'
import {AuditRetention, HistoryRetention, MemberRetention} from '../scheduler/retention.ts'
import {type Log, logEvents, openLog} from '../telemetry/log.ts'
import {orRefuse, StartRefused} from './start-refused.ts'

export interface Identity {
  /** Kept in the data directory. */
  readonly id: string
  /** Random for each process start. */
  readonly incarnation: string
}

/**
 * Prepares and locks the data directory. `identity` reads or creates the id in it; release the lock if it
 * throws. Both throw `StartRefused`.
 */
export async function openDataDirectory({
  config: {dataDirectory},
  random,
  log,
}: {
  readonly config: Pick<Config, 'dataDirectory'>
  readonly random: Random
  readonly log: Log
}): Promise<{readonly lock: HeldLock; readonly identity: () => Promise<Identity>}> {
  const {warning} = orRefuse(await prepareDataDirectory(dataDirectory))
  if (warning !== null) log.logger.warn(warning)
  const lock = orRefuse(lockDirectory(dataDirectory))
  const identity = async () => {
    const {id} = orRefuse(await nodeIdentity(dataDirectory, random))
    return {id, incarnation: random.id()}
  }
  return {lock, identity}
}

/** Opens the log of a node and logs these events. */
export function openNodeLog(
  {logLevel, logFormat, nodeName}: Pick<Config, 'logLevel' | 'logFormat' | 'nodeName'>,
  events: Events,
): Log {
  const isTerminal = process.stderr.isTTY
  const pretty = logFormat === 'auto' ? isTerminal : logFormat === 'pretty'
  const log = openLog({level: logLevel, pretty, colours: isTerminal, node: nodeName})
  logEvents(events, log.logger)
  return log
}

/** Call it when jobs can run. */
export function warnIfRoot({logger}: Log): void {
  if (process.geteuid?.() === 0)
    logger.warn('Belfry runs as root, and so do jobs without su. Use an account that may do less.')
}

export interface ExecutorParts {
  readonly config: Pick<
    Config,
    'dataDirectory' | 'limits' | 'suAllow' | 'executorAllow' | 'netAllow' | 'netDeny'
  >
  readonly nodeId: string
  readonly clock: Clock
  readonly log: Log
  /** Environment of this process. */
  readonly environment: Readonly<Record<string, string | undefined>>
}

/**
 * Ends the processes that a previous incarnation left running, then starts the executors. The caller stops
 * them. Throws `StartRefused` if commands cannot run here.
 */
export async function openExecutors({
  config,
  nodeId,
  clock,
  log,
  environment,
}: ExecutorParts): Promise<ExecutorRegistry> {
  const {dataDirectory, limits, suAllow, executorAllow, netAllow, netDeny} = config
  const executors = createExecutors({
    dataDir: dataDirectory,
    nodeId,
    clock,
    environment,
    suAllowed: suAllow,
    allowed: executorAllow,
    netAllow,
    netDeny,
    killAfterMs: limits.killAfterMs,
    drainMs: limits.drainMs,
    spawn: 'auto',
    report: (sentence) => log.logger.warn(sentence),
  })
  const unknown = executorAllow.find((name) => executors.get(name) === null)
  if (unknown !== undefined) {
    const known = executors.names().join(', ')
    throw new StartRefused(`--executor-allow must be one of ${known}, not "${unknown}".`)
  }
  try {
    const {ended} = await executors.endOrphans()
    for (const execution of ended)
      log.logger.warn({execution}, 'ended processes left running by a previous incarnation')
    await executors.start()
  } catch (error) {
    if (!(error instanceof Error) || error instanceof AssertionFailed) throw error
    const problem = `Commands cannot be run from the data directory ${dataDirectory}: ${error.message}.`
    throw new StartRefused(problem, {cause: error})
  }
  return executors
}

export function openProcessors(
  {dataDirectory, nodeName, logRoot, syslogUrl}: ProcessorSettings,
  {clock, log, executors}: {clock: Clock; log: Log; executors: ExecutorRegistry},
): ProcessorRegistry {
  return createProcessors({
    dataDir: dataDirectory,
    nodeName,
    clock,
    logRoot,
    syslogUrl,
    warn: (sentence) => log.logger.warn(sentence),
    writeLog: (record) => log.logger.info(record, 'output'),
    runProgram: (argv, input) => executors.runProgram(argv, input),
  })
}

type ProcessorSettings = Pick<Config, 'dataDirectory' | 'nodeName' | 'logRoot' | 'syslogUrl'>

interface DirectoryParts {
  readonly config: Pick<Config, 'dataDirectory'>
  readonly log: Log
}

/**
 * Recovers the claims of previous incarnations, then deletes their start logs. Call it after the node has
 * joined and before it runs anything. `recover` returns how many executions it released.
 *
 * Crash point: before the deletion, the next incarnation recovers the same claims again, which changes
 * nothing.
 */
export async function recoverPreviousIncarnations(
  {config: {dataDirectory}, log}: DirectoryParts,
  recover: (previous: readonly PreviousIncarnation[]) => Promise<number>,
): Promise<void> {
  const directory = startLogDirectory(dataDirectory)
  const executions = await recover(readPreviousIncarnations(directory))
  deletePreviousIncarnations(directory)
  if (executions > 0)
    log.logger.info({executions}, 'released claims that a previous incarnation never started')
}

/** Call after `recoverPreviousIncarnations`, which deletes every start log. */
export function openStartLog(
  {config: {dataDirectory}, log}: DirectoryParts,
  incarnation: string,
): StartLog {
  const report = (sentence: string) => log.logger.warn(sentence)
  return new StartLog({directory: startLogDirectory(dataDirectory), incarnation, report})
}

function startLogDirectory(dataDirectory: string): string {
  return join(dataDirectory, 'executions')
}

export interface ServerParts {
  readonly config: Config
  readonly store: Store
  readonly clock: Clock
  readonly random: Random
  readonly wakeup: Wakeup
  readonly events: Events
}

/** The guard lives as long as the process: it remembers the clock over its terms. */
export function createClockGuard({limits}: Pick<Config, 'limits'>): ClockGuard {
  return new ClockGuard(limits)
}

/** Version of the time zone data of this runtime. */
const ZONE_DATA = process.versions.tz ?? process.version

/** Services of a leader's term, in the order they start. */
export function leaderServices(
  {config, ...ports}: ServerParts,
  term: number,
  onTermOver: () => void,
  clockGuard: ClockGuard = createClockGuard(config),
): readonly Service[] {
  const {limits, defaultTarget, targetWaitMs} = config
  const {keepLaunches, keepExecutions, keepMs, keepOutputBytes} = config
  const parts = {...ports, limits, term, onTermOver}
  return [
    new Launcher({
      ...parts,
      clockGuard,
      zoneData: ZONE_DATA,
      defaultTarget,
      lateAfterMs: config.lateAfterMs,
      targetWaitMs,
      // SQLite: claims slow only this process, which records and starts side by side.
      hasBursts: config.store.engine !== 'sqlite',
    }),
    new FailureDetectorService(parts),
    new Reassigner({...parts, clockGuard, defaultTarget, targetWaitMs}),
    new MemberRetention({
      ...parts,
      leftAfterMs: config.keepLeftMs,
      failedAfterMs: config.keepFailedMs,
    }),
    new AuditRetention({
      ...parts,
      keepMs: config.keepAuditMs,
      keepEntries: config.keepAuditEntries,
      keepBytes: config.keepAuditBytes,
    }),
    ...scheduledBackups(config, parts),
    new HistoryRetention({...parts, keep: {keepLaunches, keepExecutions, keepMs, keepOutputBytes}}),
  ]
}

function scheduledBackups(
  {backup, nodeName}: Config,
  parts: Omit<ServerParts, 'config'> & TermOptions,
): readonly Service[] {
  const {directory: path} = backup
  if (path === null) return []
  const {store} = parts
  const directory = async () => new BackupDirectory(path, await store.info())
  const check = async (file: string) =>
    (await import('../store/sqlite/backup.ts')).checkBackup(file)
  return [new ScheduledBackups({...parts, ...backup, directory, check, nodeName})]
}

/** The member record of a server. System tags take precedence over the user's. */
export function memberOf(
  {nodeName, tags, slots, run}: Config,
  {id, incarnation}: Identity,
  {address, port}: {readonly address: string; readonly port: number},
): JoinRequest['member'] {
  const place = {name: nodeName, address, port, server: true, version: VERSION}
  return {...place, id, incarnation, tags: {...tags, ...systemTags(place)}, runs: run, slots}
}
