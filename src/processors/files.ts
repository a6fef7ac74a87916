/**
 * Saves each execution's output to a file of its own. The file is created by us or not at all: never
 * through a link, never over another file, readable by the node's account only.
 */
import {constants, existsSync} from 'node:fs'
import {type FileHandle, mkdir, open, realpath} from 'node:fs/promises'
import {dirname, isAbsolute, join, relative, resolve} from 'node:path'
import type {StringMap} from '../core/job.ts'
import type {Parameter} from '../ports/executor.ts'
import type {Processor, ProcessorRun, ProcessorStream} from '../ports/processor.ts'
import {checkCommon, FORWARD} from './parameters.ts'

export interface FilesOptions {
  /** Where files go without a `log_dir`. Absolute. */
  readonly defaultDirectory: string
  /** Under which every `log_dir` must lie, links followed; `null` = anywhere. */
  readonly root: string | null
}

const PARAMETERS: readonly Parameter[] = [
  {
    name: 'log_dir',
    summary:
      'Absolute directory for the files; made when it is not there. Default: logs in the data directory.',
    required: false,
    fallback: '',
  },
  FORWARD,
]

const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

export function createFilesProcessor(options: FilesOptions): Processor {
  return {
    name: 'files',
    parameters: PARAMETERS,
    check: (config) => check(config, options),
    open: (request) => openFile(request, options),
  }
}

function check(config: StringMap, options: FilesOptions): string[] {
  const problems = checkCommon('files', PARAMETERS, config)
  const directory = config['log_dir'] ?? ''
  if (directory === '') return problems
  if (directory.includes('\0')) problems.push('processor files: log_dir holds a NUL character')
  else if (!isAbsolute(directory)) {
    problems.push(
      `processor files: log_dir must be an absolute path, not ${JSON.stringify(directory)}`,
    )
  } else if (directory.split('/').includes('..')) {
    problems.push('processor files: log_dir must not hold "..": write the directory it leads to')
  } else if (options.root !== null && !isUnder(directory, options.root)) {
    problems.push(
      `processor files: log_dir must lie under ${options.root} on this node (--log-root)`,
    )
  }
  return problems
}

function isUnder(path: string, root: string): boolean {
  const way = relative(resolve(root), resolve(path))
  return way === '' || (way !== '..' && !way.startsWith('../') && !isAbsolute(way))
}

async function openFile(
  {run, config}: ProcessorRun,
  options: FilesOptions,
): Promise<ProcessorStream> {
  const asked = config['log_dir'] ?? ''
  const directory = asked === '' ? options.defaultDirectory : asked
  // The node's own default needs no permission.
  if (asked !== '' && options.root !== null) await refuseOutside(nearest(directory), options.root)
  await makeDirectories(directory)
  if (asked !== '' && options.root !== null) await refuseOutside(directory, options.root)
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

/** The closest directory above `path` that is there. */
function nearest(path: string): string {
  let each = path
  while (!existsSync(each) && dirname(each) !== each) each = dirname(each)
  return each
}

/**
 * One directory at a time. Node's own `recursive` tries for ever where a directory is there and takes no
 * other (below `/proc`, for one): every run of such a job would keep the whole process busy for good.
 */
async function makeDirectories(path: string): Promise<void> {
  if (existsSync(path)) return
  await makeDirectories(dirname(path))
  try {
    await mkdir(path, 0o700)
  } catch (error) {
    // Another run of the job was as quick.
    if (!existsSync(path)) throw error
  }
}

/** Throws when `path`, all links followed, lies outside. */
async function refuseOutside(path: string, root: string): Promise<void> {
  const real = await realpath(path)
  // Making the allowed directory itself may begin above it.
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
