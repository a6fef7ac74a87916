/**
 * Entry point of the writer's thread: opens the store and commits the batches it receives, one after another.
 * A slow disk therefore never blocks the event loop of the main thread. Reads no clock: instants come with
 * the writes.
 */
import {existsSync} from 'node:fs'
import {dirname} from 'node:path'
import {parentPort, workerData} from 'node:worker_threads'
import {assert} from '../../lib/assert.ts'
import {systemRandom} from '../../platform/random.ts'
import type {StoreLimits} from '../sql/query.ts'
import {Connection} from './connection.ts'
import {encodeAnswers, Engine, type WriteRequest} from './engine.ts'
import {failureOf, isDamaged} from './errors.ts'
import {storeFiles} from './files.ts'
import {StoreMark} from './mark.ts'
import {
  changeMark,
  countUp,
  damage,
  foreign,
  prepareSchema,
  type SchemaRequest,
  type SchemaResult,
  showCount,
} from './schema.ts'

export interface WriterData {
  readonly file: string
  readonly schema: Omit<SchemaRequest, 'mark' | 'onChange'>
  readonly limits: StoreLimits
  /**
   * Check of the whole file before it is opened for writing; `complete` also checks indexes, and is slower.
   */
  readonly check: 'none' | 'quick' | 'complete'
}

/** `null`: close the store and end the thread. */
export type ToWriter = readonly WriteRequest[] | null
export type FromWriter =
  /** The schema is being changed. */
  | {readonly kind: 'changing'}
  | {readonly kind: 'opened'; readonly result: SchemaResult}
  /** Answers to one batch, by `encodeAnswers`. */
  | {readonly kind: 'answers'; readonly answers: string}

const port = parentPort
assert(port !== null, 'the writer runs in its own thread')
const {file, schema, limits, check} = workerData as WriterData
const random = systemRandom()
const mark = new StoreMark(storeFiles(dirname(file)), () => random.id())

/** Read-only: a damaged file stays as it is, for an operator to examine or repair. */
function checkFile(): SchemaResult | null {
  if (check === 'none' || !existsSync(file)) return null
  const connection = new Connection(file, {readOnly: true})
  try {
    const problem = foreign(connection)
    if (problem !== null) return {ok: false, problem}
    const found = damage(connection, check === 'complete')
    return found === null ? null : {ok: false, problem: found, isDamaged: true}
  } finally {
    connection.close()
  }
}

function open(): {connection: Connection; result: SchemaResult} | {result: SchemaResult} {
  try {
    const refused = checkFile()
    if (refused !== null) return {result: refused}
    const connection = new Connection(file, {readOnly: false})
    const result = prepareSchema(connection, {
      ...schema,
      mark,
      onChange: () => send({kind: 'changing'}),
    })
    if (result.ok) return {connection, result}
    connection.close()
    return {result}
  } catch (error) {
    const {message} = failureOf(error)
    const problem = `cannot be opened: ${message}`
    return {result: {ok: false, problem, isDamaged: isDamaged(error)}}
  }
}

const send = (message: FromWriter) => port.postMessage(message)
const opened = open()
send({kind: 'opened', result: opened.result})
if ('connection' in opened) {
  const {connection} = opened
  const engine = new Engine(connection, limits)
  let now = schema.now
  // The previous mark stays valid if this fails: a copy since then is not recognised.
  const tryTo = (act: typeof changeMark) => {
    try {
      act(connection, mark, now)
    } catch {
      // A full disk, or a damaged file, which the next write reports.
    }
  }
  port.on('message', (message: ToWriter) => {
    if (message === null) {
      tryTo(changeMark)
      connection.close()
      port.close()
      return
    }
    now = message.at(-1)?.now ?? now
    const isCounted = mark.isCountDue(now)
    const answers = engine.commit(message, isCounted ? () => countUp(connection) : undefined)
    send({kind: 'answers', answers: encodeAnswers(answers)})
    if (mark.isDue(now) && answers.every(({ok}) => ok)) tryTo(changeMark)
    else if (isCounted && answers.some(({ok}) => ok)) tryTo(showCount)
  })
}
