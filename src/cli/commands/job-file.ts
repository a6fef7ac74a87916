/**
 * A file of jobs as `belfry jobs apply` takes it: one job or a list, put in an order in which each can be
 * stored.
 */
import {text as textOf} from 'node:stream/consumers'
import {CommandFailed, readNamed} from '../session.ts'
import type {Terminal} from '../terminal.ts'

/** Only what ordering needs; the server judges the rest. */
type Definition = Readonly<Record<string, unknown>>

/** The jobs of `file` (`-` = standard input), parents before their dependents. Throws `CommandFailed`. */
export async function readJobFile(
  file: string,
  terminal: Pick<Terminal, 'input'>,
): Promise<readonly Definition[]> {
  const text = file === '-' ? await textOf(terminal.input()) : await readNamed(file)
  const where = file === '-' ? 'Standard input' : file
  let content: unknown
  try {
    content = JSON.parse(text)
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    throw new CommandFailed(`${where} is not JSON: ${error.message}.`, {cause: error})
  }
  const list: readonly unknown[] = Array.isArray(content) ? content : [content]
  if (!list.every(isDefinition))
    throw new CommandFailed(`${where} must hold a job, or a list of jobs, as JSON objects.`)
  return parentsFirst(list)
}

function isDefinition(value: unknown): value is Definition {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Otherwise in the order of the file. Jobs in a circle come last, for the server to refuse. */
export function parentsFirst(jobs: readonly Definition[]): readonly Definition[] {
  const ordered: Definition[] = []
  let waiting = jobs
  while (waiting.length > 0) {
    const names = new Set(waiting.map((job) => job['name']))
    const free = waiting.filter((job) => !names.has(job['parent_job']))
    if (free.length === 0) return [...ordered, ...waiting]
    ordered.push(...free)
    waiting = waiting.filter((job) => names.has(job['parent_job']))
  }
  return ordered
}
