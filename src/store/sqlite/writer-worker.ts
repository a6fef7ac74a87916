/**
 * Entry of the writer's thread: opens the store and commits the batches it is sent, one after another, so
 * that a slow disk never stalls the thread that answers requests and keeps time. Knows no clock: instants
 * come with the writes.
 */
import {parentPort, workerData} from 'node:worker_threads'
import {assert} from '../../lib/assert.ts'
import type {StoreLimits} from '../sql/query.ts'
import {Connection} from './connection.ts'
import {Engine, type WriteAnswer, type WriteRequest} from './engine.ts'
import {failureOf} from './errors.ts'
import {prepareSchema, type SchemaRequest, type SchemaResult} from './schema.ts'

export interface WriterData {
  readonly file: string
  readonly schema: SchemaRequest
  readonly limits: StoreLimits
}

/** `null` = close the store and end. */
export type ToWriter = readonly WriteRequest[] | null
export type FromWriter =
  | {readonly kind: 'opened'; readonly result: SchemaResult}
  | {readonly kind: 'answers'; readonly answers: readonly WriteAnswer[]}

const port = parentPort
assert(port !== null, 'the writer runs in a thread of its own')
const {file, schema, limits} = workerData as WriterData

function open(): {connection: Connection; result: SchemaResult} | {result: SchemaResult} {
  try {
    const connection = new Connection(file, {readOnly: false})
    const result = prepareSchema(connection, schema)
    if (result.ok) return {connection, result}
    connection.close()
    return {result}
  } catch (error) {
    const {message} = failureOf(error)
    return {result: {ok: false, problem: `cannot be opened: ${message}`}}
  }
}

const opened = open()
const send = (message: FromWriter) => port.postMessage(message)
send({kind: 'opened', result: opened.result})
if ('connection' in opened) {
  const {connection} = opened
  const engine = new Engine(connection, limits)
  port.on('message', (message: ToWriter) => {
    if (message === null) {
      connection.close()
      port.close()
    } else {
      send({kind: 'answers', answers: engine.commit(message)})
    }
  })
}
