/**
 * Executor without processes: a script by job name decides what an execution does, in virtual time. It
 * records every start, for assertions such as "ran once" and "never two at a time".
 */
import type {Executor, OutputSink, Run, RunEnd, RunHandle} from '../../src/ports/executor.ts'
import type {Clock, Timer} from '../../src/ports/runtime.ts'

export interface Script {
  /** Duration; `Infinity` = until it is stopped. */
  readonly ms?: number
  readonly outcome?: RunEnd['outcome']
  readonly exitCode?: number | null
  /** Time the command itself ran. Absent = all the time. */
  readonly ranMs?: number
  /** Written at the start. */
  readonly output?: string | Uint8Array
  /** Ignores TERM; ends by KILL, which a cancel sends after 10 s. */
  readonly ignoresTerm?: boolean
}

export interface Started {
  readonly run: Run
  readonly sink: OutputSink
  readonly startedAt: number
  /** Monotonic; `null` while it runs. */
  endedAt: number | null
  cancels: number
  kills: number
  /** Ends it now with the result of the script. */
  end(script?: Script): void
}

const KILL_AFTER_MS = 10_000

export class ScriptedExecutor implements Executor {
  readonly name = 'scripted'
  readonly runsCommands = false
  readonly takesAccount = false
  readonly fileParameters = []
  readonly parameters = {}
  readonly started: Started[] = []
  readonly #clock: Clock
  readonly #scripts = new Map<string, (run: Run) => Script>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Sets the script of a job; without one its executions succeed at once. */
  script(jobName: string, script: Script | ((run: Run) => Script)): void {
    this.#scripts.set(jobName, typeof script === 'function' ? script : () => script)
  }

  check() {
    return {problems: [], warnings: []}
  }

  /** Runs that have not ended. */
  get running(): Started[] {
    return this.started.filter(({endedAt}) => endedAt === null)
  }

  of(jobName: string): Started[] {
    return this.started.filter(({run}) => run.jobName === jobName)
  }

  start(run: Run, sink: OutputSink): RunHandle {
    const script = this.#scripts.get(run.jobName)?.(run) ?? {}
    const ended = Promise.withResolvers<RunEnd>()
    const timers: Timer[] = []
    const end = ({outcome = 'succeeded', exitCode = null, ranMs}: Script) => {
      if (started.endedAt !== null) return
      started.endedAt = this.#clock.monotonicMs()
      for (const timer of timers) timer.cancel()
      const head = exitCode === null || exitCode === 0 ? '' : `exit status ${exitCode}\n`
      ended.resolve({outcome, exitCode, head, foot: '', ...(ranMs === undefined ? {} : {ranMs})})
    }
    const started: Started = {
      run,
      sink,
      startedAt: this.#clock.monotonicMs(),
      endedAt: null,
      cancels: 0,
      kills: 0,
      end: (now = script) => end(now),
    }
    this.started.push(started)
    if (script.output !== undefined) sink.write(Buffer.from(script.output as Uint8Array))
    const {ms = 0} = script
    if (Number.isFinite(ms)) timers.push(this.#clock.after(ms, () => end(script)))
    return {
      cancel: () => {
        started.cancels += 1
        if (script.ignoresTerm !== true) end({outcome: 'cancelled'})
        else if (started.cancels === 1)
          timers.push(this.#clock.after(KILL_AFTER_MS, () => end({outcome: 'cancelled'})))
      },
      kill: () => {
        started.kills += 1
        end({outcome: 'cancelled'})
      },
      ended: ended.promise,
    }
  }
}
