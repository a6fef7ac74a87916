/**
 * Ends requests in progress when their token is revoked, expires, or loses its policy: event streams, long
 * replies to slow clients, and bodies that are still arriving. Otherwise a client could keep a request open
 * for as long as it reads, or change something minutes after its token was revoked.
 */
import type {FastifyReply, FastifyRequest} from 'fastify'
import type {Principal} from '../../core/access/authorization.ts'
import type {AccessTable} from '../../identity/token-cache.ts'
import {type RouteAccess, routeRefusal} from './access.ts'
import {isSafeMethod} from './auth.ts'

/** `caller` was accepted for this request. */
export function endWithAccess(
  access: Pick<AccessTable, 'watch'>,
  request: FastifyRequest,
  reply: FastifyReply,
  caller: Principal,
  needed: RouteAccess,
): void {
  const {raw, params} = request
  // The rules of the start chose what a reply shows. An event stream applies those of now.
  const isAllowed = (now: Principal) =>
    now.rules === caller.rules ||
    (isEventStream(reply) && routeRefusal(needed, now, params as Record<string, string>) === null)
  const end = () => {
    // A change that was received completely is made: it may be the one that ends this token.
    if (isSafeMethod(raw.method) || !raw.complete) reply.raw.destroy()
  }
  reply.raw.once('close', access.watch(caller, isAllowed, end))
}

function isEventStream(reply: FastifyReply): boolean {
  return String(reply.getHeader('content-type')).startsWith('text/event-stream')
}
