/** Client commands in this process, against the real API. */
import {mkdtemp, rm} from 'node:fs/promises'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {Readable} from 'node:stream'
import type {TestContext} from 'node:test'
import {Command} from 'commander'
import {runCli} from '../../src/cli/program.ts'
import {type ApiOptions, startApi} from '../http/harness.ts'

export interface Ran {
  readonly code: number
  readonly out: string
  readonly err: string
}

/** `run` keeps the token that it was given last. */
export async function commands(t: TestContext, options: ApiOptions = {}) {
  const api = await startApi(t, options)
  const directory = await mkdtemp(join(tmpdir(), 'belfry-cli-access-'))
  t.after(() => rm(directory, {recursive: true, force: true}))
  /** `answer`, `secret`: what a person types; `null` = no terminal. */
  const state = {
    token: '',
    input: '' as string | Uint8Array,
    answer: null as string | null,
    secret: null as string | null,
  }
  const run = async (...argv: string[]): Promise<Ran> => {
    let out = ''
    let err = ''
    const {answer, secret} = state
    const askSecret = async (prompt: string) => {
      err += prompt
      return secret ?? ''
    }
    const ask = async (prompt: string) => {
      err += prompt
      return answer ?? ''
    }
    const code = await runCli(['--server', api.url, ...argv], {
      terminal: {
        out: (text) => void (out += text),
        outBytes: async () => {},
        err: (text) => void (err += text),
        input: () => Readable.from([state.input]),
        ...(answer === null ? {} : {ask}),
        ...(secret === null ? {} : {askSecret}),
        colours: false,
        progress: false,
      },
      env: {BELFRY_TOKEN: state.token},
      clock: api.clock,
      version: '1',
      serverCommand: new Command('server'),
      restoreBackup: async () => ({ok: true}),
      migrateStore: async () => ({ok: true}) as never,
    })
    return {code, out, err}
  }
  return {api, directory, state, run}
}
