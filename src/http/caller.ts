/** What the routes need to know of a request beside its path: who asks, and the bytes it brought. */
import type {FastifyRequest} from 'fastify'
import type {Caller} from '../operations/context.ts'

/** There is one kind of caller: whoever was let in may do everything. It has no name to give to jobs. */
const ANYONE: Caller = {id: 'server', name: ''}

const NOTHING = new Uint8Array()

export function callerOf(_request: FastifyRequest): Caller {
  return ANYONE
}

/** Empty when the request had no body. */
export function bodyOf(request: FastifyRequest): Uint8Array {
  return request.body instanceof Uint8Array ? request.body : NOTHING
}
