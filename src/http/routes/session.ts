/** Routes of the session of a browser: sign in with a token, who is signed in, sign out. */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {encodeSession, encodeToken, Session, Token} from '../../wire/token.ts'
import {lists} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import type {HttpOptions} from '../options.ts'
import {sendJson} from '../api/reply.ts'
import {actorOf, callerOf} from '../api/request.ts'
import {endedCookies, sessionCookie} from '../security/session-cookie.ts'

const SHARED = {tag: 'policies', reply: schemaRef(Session)} as const

export function routeSession(
  app: FastifyInstance,
  operations: Operations,
  {tls}: Pick<HttpOptions, 'tls'>,
): void {
  app.post('/session', {
    ...describeRoute({
      access: 'any',
      ...SHARED,
      operationId: 'signIn',
      summary: 'Open a session with a token',
      description:
        'Sets the cookie of a [session](#sessions), which works in place of the token, for pages of this ' +
        'server only. Send the token in `X-Service-Token`.',
      status: 201,
      errors: ['session_refused', 'too_many_sessions'],
    }),
    handler: async (request, reply) => {
      const {identity, secret} = await operations.signIn(callerOf(request), actorOf(request))
      reply.header('set-cookie', sessionCookie(secret, tls !== null || isPageOverTls(request)))
      return sendJson(request, reply, 201, encodeSession(identity))
    },
  })
  app.get('/session', {
    ...describeRoute({
      access: 'any',
      ...SHARED,
      operationId: 'whoAmI',
      summary: 'Who the caller is: the owner of its token or session',
    }),
    handler: (request, reply) =>
      sendJson(request, reply, 200, encodeSession(operations.whoAmI(callerOf(request)))),
  })
  app.delete('/session', {
    ...describeRoute({
      access: 'any',
      ...SHARED,
      operationId: 'signOut',
      summary: 'End the session of the caller',
      errors: ['session_unknown'],
    }),
    handler: async (request, reply) => {
      const ended = await operations.signOut(callerOf(request), actorOf(request))
      reply.header('set-cookie', endedCookies())
      return sendJson(request, reply, 200, encodeSession(ended))
    },
  })
  app.get('/acl/sessions', {
    ...describeRoute({
      access: lists('/v1/acl/sessions'),
      operationId: 'listSessions',
      summary: 'List the open sessions; each is revoked as a token',
      tag: 'policies',
      reply: Type.Array(schemaRef(Token)),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, (await operations.sessions()).map(encodeToken)),
  })
}

/** A proxy may terminate TLS; the browser then still says what it uses. */
function isPageOverTls({headers: {origin}}: FastifyRequest): boolean {
  return origin?.startsWith('https://') ?? false
}
