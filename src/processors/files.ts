/**
 * files processor: saves the output of each execution to its own file, readable by the node's account only.
 * It never follows a link to the file and never overwrites a file.
 */
import {constants, existsSync} from 'node:fs'
import {type FileHandle, mkdir, open, realpath} from 'node:fs/promises'
import {dirname, isAbsolute, join, relative, resolve} from 'node:path'
import type {StringMap} from '../core/job.ts'
import {sharedDirectoryAbove} from '../platform/data-directory.ts'
import type {Processor, ProcessorRun, ProcessorStream} from '../ports/processor.ts'
import {checkCommon} from './parameters.ts'

export interface FilesOptions {
  /** Directory without a `log_dir`. Absolute. */
  readonly defaultDirectory: string
  /** Every `log_dir` must be below it, also after following links; `null` = anywhere. */
  readonly root: string | null
  /** Logs a sentence that belongs to no execution. */
  readonly warn: (sentence: string) => void
}

/** Bounds the memory: directories that were looked at, so that each is one warning. */
const CHECKED_MAX = 1_000

const PARAMETERS = ['log_dir', 'forward']

const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

export function createFilesProcessor(options: FilesOptions): Processor {
  const checked = new Set<string>()
  const onDirectory = async (directory: string) => {
    if (checked.has(directory) || checked.size >= CHECKED_MAX) return
    checked.add(directory)
    const shared = await sharedDirectoryAbove(directory)
    if (shared !== null) options.warn(sharedWarning(directory, shared))
  }
  return {
    name: 'files',
    parameters: PARAMETERS,
    fileParameters: ['log_dir'],
    check: (config) => check(config, options),
    open: (request) => openFile(request, options, onDirectory),
  }
}

function sharedWarning(directory: string, shared: string): string {
  return (
    `Other users of this machine can redirect the log files of ${directory}: ${shared} belongs to another ` +
    'user, or others may write to it. Use a directory below those of root or of this user.'
  )
}

function check(config: StringMap, options: FilesOptions): string[] {
  const problems = checkCommon(PARAMETERS, config)
  const directory = config['log_dir'] ?? ''
  if (directory === '') return problems
  if (directory.includes('\0')) problems.push('log_dir must not contain a NUL character')
  else if (!isAbsolute(directory)) {
    problems.push(`log_dir must be an absolute path, not ${JSON.stringify(directory)}`)
  } else if (directory.split('/').includes('..')) {
    problems.push('log_dir must not contain "..": write the resulting directory')
  } else if (options.root !== null && !isUnder(directory, options.root)) {
    problems.push(`log_dir must be below ${options.root} on this node (--log-root)`)
  }
  return problems
}

function isUnder(path: string, root: string): boolean {
  const rest = relative(resolve(root), resolve(path))
  return rest === '' || (rest !== '..' && !rest.startsWith('../') && !isAbsolute(rest))
}

async function openFile(
  {run, config}: ProcessorRun,
  options: FilesOptions,
  onDirectory: (directory: string) => Promise<void>,
): Promise<ProcessorStream> {
  const logDir = config['log_dir'] ?? ''
  const directory = logDir === '' ? options.defaultDirectory : logDir
  // The default directory is always allowed.
  const root = logDir === '' ? null : options.root
  if (root !== null) await rejectOutside(nearestExisting(directory), root)
  await makeDirectories(directory)
  if (root !== null) await rejectOutside(directory, root)
  await onDirectory(directory)
  const path = join(directory, `${run.executionId}.log`)
  const file = await open(path, CREATE, 0o600)
  return {
    write: (bytes) => writeAll(file, bytes),
    end: async () => {
      await file.close()
      return path
    },
  }
}

/** `path` or its closest existing ancestor. */
function nearestExisting(path: string): string {
  let each = path
  while (!existsSync(each) && dirname(each) !== each) each = dirname(each)
  return each
}

/**
 * Creates one directory at a time. Node's `recursive` retries forever where a directory exists but accepts no
 * entries, as below `/proc`: each run of such a job would block the process.
 */
async function makeDirectories(path: string): Promise<void> {
  if (existsSync(path)) return
  await makeDirectories(dirname(path))
  try {
    await mkdir(path, 0o700)
  } catch (error) {
    // A concurrent run may have created it.
    if (!existsSync(path)) throw error
  }
}

/** Throws when `path` is outside of `root` after following all links. */
async function rejectOutside(path: string, root: string): Promise<void> {
  const real = await realpath(path)
  // While the root itself is missing, `path` may be above it.
  const allowed = existsSync(root) ? await realpath(root) : resolve(root)
  if (isUnder(real, allowed) || (!existsSync(root) && isUnder(allowed, real))) return
  throw new Error(`log_dir leads to ${real}, outside ${root} (--log-root)`)
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  let offset = 0
  while (offset < bytes.length) {
    const {bytesWritten} = await file.write(bytes, offset)
    offset += bytesWritten
  }
}
