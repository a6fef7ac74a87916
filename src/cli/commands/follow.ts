/**
 * Watching a run: its output as it is written, until it ends. A connection that breaks is opened again where
 * it broke, so a restart of the server is a pause, not an end.
 */
import type {Clock} from '../../ports/runtime.ts'
import type {ExecutionJson} from '../../wire/execution.ts'
import {CallFailed} from '../client.ts'
import {readEvents, type ServerEvent} from '../event-stream.ts'
import {CommandFailed, type Session} from '../session.ts'
import {status} from '../terminal.ts'

/** As long as a server takes to restart, several times over. */
const TRIES_MAX = 30
const AGAIN_MS = 1_000

type End = Pick<ExecutionJson, 'id' | 'status'> & {readonly head: string; readonly foot: string}

/** Prints until the run has ended; then says on standard error how. Throws `CallFailed`, `CommandFailed`. */
export async function followOutput(
  session: Session,
  path: string,
  print: (text: string) => void,
): Promise<void> {
  let position = ''
  for (let tries = 0; tries < TRIES_MAX; tries += 1) {
    const before = position
    const end = await watch(session, path, position, (event) => {
      position = event.id
      print((JSON.parse(event.data) as {text: string}).text)
    })
    if (end !== null) return sayEnd(session, end, print)
    if (position !== before) tries = 0
    await pause(session.clock)
  }
  throw new CommandFailed('The connection broke off too often; follow the run again later.')
}

/**
 * `null` when the connection broke off. A refusal of the server is thrown; its silence is not, once it had
 * answered.
 */
async function watch(
  session: Session,
  path: string,
  position: string,
  heard: (event: ServerEvent) => void,
): Promise<End | null> {
  const resume = position === '' ? {} : {'last-event-id': position}
  try {
    const headers = {accept: 'text/event-stream', ...resume}
    const response = await session.client.open('GET', path, {headers})
    for await (const event of readEvents(response.body!)) {
      if (event.name === 'output') heard(event)
      if (event.name === 'end') return JSON.parse(event.data) as End
    }
    return null
  } catch (error) {
    const refused = error instanceof CallFailed && (position === '' || isFinal(error.status))
    if (refused || error instanceof SyntaxError) throw error
    return null
  }
}

/** No use in asking again. */
function isFinal(httpStatus: number | null): boolean {
  return httpStatus !== null && httpStatus < 500
}

function sayEnd(session: Session, end: End, print: (text: string) => void): void {
  print(end.foot)
  const {terminal} = session
  terminal.err(`${end.head}${end.id} ${status(terminal, end.status)}\n`)
}

function pause(clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    clock.after(AGAIN_MS, resolve)
  })
}
