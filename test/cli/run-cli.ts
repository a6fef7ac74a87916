/** Runs one client command in this process and keeps what it prints. */
import {Readable} from 'node:stream'
import {Command} from 'commander'
import {type CliContext, runCli} from '../../src/cli/program.ts'
import type {Clock} from '../../src/ports/runtime.ts'
import type {Terminal} from '../../src/cli/terminal.ts'

export interface Ran {
  readonly code: number
  readonly out: string
  readonly err: string
}

export const NOW = Date.parse('2026-03-01T12:00:00Z')

/** Timers of a clock that end at once. */
export const endAtOnce: Clock['after'] = (_delayMs, callback) => {
  setImmediate(callback)
  return {cancel: () => {}}
}

/** The clock stands still; its timers end at once. */
export async function runHere(
  argv: readonly string[],
  more: Partial<Omit<CliContext, 'terminal'>> & {readonly terminal?: Partial<Terminal>} = {},
): Promise<Ran> {
  let out = ''
  let err = ''
  const code = await runCli(argv, {
    env: {},
    clock: {
      now: () => NOW,
      monotonicMs: () => 0,
      after: endAtOnce,
    },
    version: '1.2.3',
    newId: () => 'a-key',
    serverCommand: new Command('server'),
    restoreBackup: async () => ({ok: true}),
    migrateStore: async () => ({ok: true}) as never,
    ...more,
    terminal: {
      out: (text) => void (out += text),
      outBytes: async (bytes) => void (out += Buffer.from(bytes).toString()),
      err: (text) => void (err += text),
      input: () => Readable.from([]),
      colours: false,
      progress: false,
      ...more.terminal,
    },
  })
  return {code, out, err}
}
