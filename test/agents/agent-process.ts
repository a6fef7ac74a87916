/** Agent as a process of its own. Its test ends it, and everything that it started. */
import {join} from 'node:path'
import {endMarked} from '../support/living-processes.ts'
import {
  runProgram,
  temporaryDirectory,
  type Owner,
  type Program,
} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'

const READY_WITHIN_MS = 30_000

export interface AgentOptions {
  readonly name?: string
  readonly data?: string
  readonly flags?: readonly string[]
}

export interface AgentProcess {
  readonly program: Program
  readonly data: string
  /** The URL of its ready line. */
  readonly joined: string
}

/** Starts it without waiting for the join. */
export function startedAgent(
  t: Owner,
  servers: readonly string[],
  {name = 'agent-a', data = join(temporaryDirectory(t), 'data'), flags = []}: AgentOptions = {},
): {readonly program: Program; readonly data: string} {
  const urls = servers.flatMap((url) => ['--server', url])
  const argv = ['agent', ...urls, '--name', name, '--data', data, ...flags]
  const program = runProgram(t, argv)
  t.after(() => endMarked(data))
  return {program, data}
}

/** Resolves when it has joined. */
export async function anAgent(
  t: Owner,
  servers: readonly string[],
  options: AgentOptions = {},
): Promise<AgentProcess> {
  const {program, data} = startedAgent(t, servers, options)
  let ended: string | null = null
  void program.exit.then(({code, signal}) => {
    ended = `${code ?? signal}`
  })
  const joined = await until(
    'the agent joins',
    () => {
      const line = /^belfry agent \S+ joined (\S+)\n/.exec(program.stdout())?.[1]
      if (line === undefined && ended !== null)
        throw new Error(`the agent ended (${ended}): ${program.stderr()}`)
      return line
    },
    READY_WITHIN_MS,
  ).catch((error: unknown) => {
    // The next agent may use the same data directory.
    program.signal('SIGKILL')
    throw new Error(`${String(error)}: ${program.stderr()}`, {cause: error})
  })
  return {program, data, joined}
}
