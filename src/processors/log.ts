/**
 * log processor: writes output to the service log, one record per line between a begin and an end record. The
 * log formats the records.
 */
import type {Processor, ProcessorRun, ProcessorStream} from '../ports/processor.ts'
import {LineCutter} from './lines.ts'
import {checkCommon} from './parameters.ts'

/** Longer lines are split: log collectors truncate at 16 KiB and less. */
const LINE_BYTES_MAX = 8 * 1024

const PARAMETERS = ['forward']

export interface LogRecord {
  readonly job: string
  readonly execution: string
  readonly kind: 'begin' | 'line' | 'end'
  /** The line of `line`; otherwise a short message. */
  readonly text: string
}

export interface LogOptions {
  readonly nodeName: string
  /** A promise is awaited before the next record. */
  readonly writeLog: (record: LogRecord) => void | Promise<void>
}

export function createLogProcessor(options: LogOptions): Processor {
  return {
    name: 'log',
    parameters: PARAMETERS,
    fileParameters: [],
    check: (config) => checkCommon(PARAMETERS, config),
    open: (request) => openLog(request, options),
  }
}

async function openLog({run}: ProcessorRun, options: LogOptions): Promise<ProcessorStream> {
  const lines = new LineCutter(LINE_BYTES_MAX)
  const write = async (kind: LogRecord['kind'], text: string): Promise<void> => {
    await options.writeLog({job: run.jobName, execution: run.executionId, kind, text})
  }
  await write('begin', `output of ${run.jobName} ${run.executionId} begins`)
  return {
    write: async (bytes) => {
      for (const line of lines.push(bytes)) await write('line', line)
    },
    end: async (end) => {
      const rest = lines.rest()
      if (rest !== null) await write('line', rest)
      await write('end', `output of ${run.jobName} ${run.executionId} ends: ${end.outcome}`)
      return `output written to the service log of ${options.nodeName}`
    },
  }
}
