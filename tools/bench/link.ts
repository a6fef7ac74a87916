/**
 * Requests and replies between the benchmark and its child processes, over Node's IPC channel. A child ends
 * when the benchmark ends, even if that is killed.
 */
import {fork, type ChildProcess} from 'node:child_process'
import type {Scratch} from './scratch.ts'

/** Exceeds any request on a slow machine; a child that hangs fails its section, not the run. */
const ANSWER_LIMIT_MS = 180_000

interface Question {
  readonly id: number
  readonly name: string
  readonly input: unknown
}

interface Answer {
  readonly id: number
  readonly result?: unknown
  readonly problem?: string
}

type Handlers = Readonly<Record<string, (input: never) => unknown>>
type InputOf<Handler> = Handler extends (input: infer Input) => unknown ? Input : never
type ResultOf<Handler> = Handler extends (input: never) => infer Result ? Awaited<Result> : never

/** A child process that handles the requests named in `Answers`. */
export class Link<Answers extends Handlers> {
  readonly #child: ChildProcess
  readonly #entry: string
  readonly #waiting = new Map<number, (answer: Answer) => void>()
  #next = 1

  private constructor(child: ChildProcess, entry: string) {
    this.#child = child
    this.#entry = entry
    child.on('message', (message) => {
      const answer = message as Answer
      this.#waiting.get(answer.id)?.(answer)
    })
    child.once('exit', (code, signal) => {
      const problem = `ended with ${signal ?? `exit status ${code}`}`
      for (const [id, resolve] of this.#waiting) resolve({id, problem})
    })
  }

  /** `entry` is a file in `children/`. */
  static start<Answers extends Handlers>(
    scratch: Scratch,
    entry: string,
    execArgv: readonly string[] = [],
  ): Link<Answers> {
    const file = new URL(`./children/${entry}`, import.meta.url)
    const child = fork(file, [], {
      execArgv: ['--disable-warning=ExperimentalWarning', ...execArgv],
      env: cleanEnvironment(),
      serialization: 'advanced',
    })
    return new Link<Answers>(scratch.watch(child), entry)
  }

  get pid(): number {
    return this.#child.pid!
  }

  /** Sends a request. Rejects if the child fails, exits, or exceeds the time limit. */
  async ask<Name extends keyof Answers & string>(
    name: Name,
    input: InputOf<Answers[Name]>,
  ): Promise<ResultOf<Answers[Name]>> {
    const answer = await this.#answered({id: this.#next++, name, input})
    if (answer.problem !== undefined) throw new Error(`${this.#entry} ${name}: ${answer.problem}`)
    return answer.result as ResultOf<Answers[Name]>
  }

  #answered(question: Question): Promise<Answer> {
    const {id} = question
    if (!this.#child.connected) return Promise.resolve({id, problem: 'has ended'})
    return new Promise((resolve) => {
      const settle = (answer: Answer) => {
        clearTimeout(late)
        this.#waiting.delete(id)
        resolve(answer)
      }
      const late = setTimeout(
        () => settle({id, problem: `took longer than ${ANSWER_LIMIT_MS} ms`}),
        ANSWER_LIMIT_MS,
      )
      this.#waiting.set(id, settle)
      this.#child.send(question, (error) => {
        if (error !== null) settle({id, problem: error.message})
      })
    })
  }

  /** Resolves when the child has exited. */
  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    const ended = new Promise<void>((resolve) => this.#child.once('exit', () => resolve()))
    this.#child.disconnect()
    await ended
  }
}

/** The child's side. `closed` runs when the benchmark closes the link or has ended. */
export function answerQuestions(
  handlers: Handlers,
  closed: () => Promise<void> = () => Promise.resolve(),
): void {
  process.on('message', (message) => {
    const {id, name, input} = message as Question
    void answer(handlers[name] as (input: unknown) => unknown, input).then((answered) => {
      if (process.connected) process.send!({id, ...answered} satisfies Answer)
    })
  })
  process.once('disconnect', () => {
    closed().then(
      () => process.exit(0),
      (error: unknown) => {
        console.error(error)
        process.exit(1)
      },
    )
  })
}

async function answer(
  handler: (input: unknown) => unknown,
  input: unknown,
): Promise<Omit<Answer, 'id'>> {
  try {
    return {result: await handler(input)}
  } catch (error) {
    return {problem: error instanceof Error ? (error.stack ?? error.message) : String(error)}
  }
}

/** The caller's environment without `BELFRY_` variables. */
export function cleanEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env).filter(([name]) => !name.startsWith('BELFRY_'))
  return Object.fromEntries(entries)
}
