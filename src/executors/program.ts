/**
 * Runs a program for Belfry itself, not for a job, through the same helper: the node must not fork, also
 * when it wants logger(1). Stands apart because such a run has no execution and nobody reads its output but
 * for an error.
 */
import type {ProcessHelper} from './process/supervisor.ts'
import {PROGRAM_PREFIX} from './process/orphans.ts'

/** No program of ours takes longer. */
const PROGRAM_MS = 20_000

/** So much of what it printed goes into the sentence. */
const TEXT_MAX = 200

let next = 1

/** Answers `''`, or a sentence that says why it failed. Never rejects. */
export async function runProgram(
  helper: ProcessHelper,
  argv: readonly string[],
  input: Uint8Array,
): Promise<string> {
  let printed = ''
  const output = {
    write: (bytes: Uint8Array): boolean => {
      printed = `${printed}${Buffer.from(bytes).toString('utf8')}`.slice(-TEXT_MAX)
      return true
    },
    drained: (callback: () => void): void => callback(),
  }
  const request = {
    executionId: `${PROGRAM_PREFIX}${next++}`,
    argv,
    environment: {},
    cwd: '',
    payload: Buffer.from(input).toString('base64'),
    user: '',
    timeoutMs: PROGRAM_MS,
    memoryBytesMax: 0,
  }
  const end = await helper.run(request, output).ended
  if (end.exitCode === 0 && end.failure === '' && end.ending === null) return ''
  if (end.failure !== '') return end.failure
  const how = end.exitCode === null ? `ended by ${end.signal}` : `exit status ${end.exitCode}`
  return `${how} ${printed.trim()}`.trim()
}
