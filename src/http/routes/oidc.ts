/**
 * Routes of the sign-in through an OpenID Connect provider. Browsers open them as pages, so they answer with
 * pages. The cookie of the session is `SameSite=Strict`, and a browser that comes from the provider would not
 * send it after a redirect: a page of this server leads on instead.
 */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {actorOf} from '../../core/audit.ts'
import {NO_RULES, type Principal, type TokenKind} from '../../core/access/authorization.ts'
import {ERROR_CODES} from '../../core/error-codes.ts'
import {DomainError} from '../../core/errors.ts'
import type {Operations} from '../../operations/operations.ts'
import {
  CALLBACK_PATH,
  OIDC_PATH,
  type OidcSignIn,
  type PersonOwner,
  SignInFailed,
} from '../security/oidc.ts'
import type {HttpOptions, RefusedRequest} from '../options.ts'
import type {Authenticator} from '../security/auth.ts'
import {queryOf} from '../api/request.ts'
import {sessionCookie} from '../security/session-cookie.ts'

const HIDDEN = {config: {access: 'public'}} as const

export function routeOidc(
  app: FastifyInstance,
  operations: Operations,
  oidc: OidcSignIn,
  {
    onSignInFailed,
    onPoliciesMissing,
    onRefused,
    authenticator,
  }: Pick<HttpOptions, 'onSignInFailed' | 'onPoliciesMissing' | 'onRefused'> & {
    readonly authenticator: Pick<Authenticator, 'failed'>
  },
): void {
  const failed = (request: FastifyRequest, reply: FastifyReply, error: unknown) => {
    const failure = asFailure(error)
    onSignInFailed?.(failure)
    if (failure.person !== null) onRefused?.(refusalOf(request, failure.person))
    return sendPage(reply, failure.status, 'Sign-in failed', failure.message, RETRY)
  }
  app.get(OIDC_PATH, {
    ...HIDDEN,
    handler: async (request, reply) => {
      try {
        const {url, cookie} = await oidc.start(queryOf(request).first('return'), addressOf(request))
        return reply.header('set-cookie', cookie).header('location', url).code(303).send()
      } catch (error) {
        return failed(request, reply, error)
      }
    },
  })
  app.get(CALLBACK_PATH, {
    ...HIDDEN,
    handler: async (request, reply) => {
      // Whatever comes of it, a sign-in is used once.
      reply.header('set-cookie', oidc.endedCookie())
      try {
        const query = request.url.split('?')[1] ?? ''
        const {owner, returnTo} = await oidc.finish(
          query,
          request.headers.cookie,
          addressOf(request),
        )
        const opened = await operations.openSession(owner, actorFrom(request, owner))
        const {secret, identity, missingPolicies} = opened
        if (missingPolicies.length > 0)
          onPoliciesMissing?.(identity.principal.name, missingPolicies)
        reply.header('set-cookie', sessionCookie(secret, oidc.isSecure))
        const text = `You are signed in as ${identity.principal.name}.`
        return sendPage(reply, 200, 'Signed in', text, {href: returnTo, label: 'Continue'}, true)
      } catch (error) {
        const isGuess = error instanceof SignInFailed && error.status < 500
        const limited = isGuess ? authenticator.failed(addressOf(request)) : null
        return failed(request, reply, limited ?? error)
      }
    },
  })
}

const RETRY = {href: '/ui/', label: 'Back to the sign-in'}

/** Throws what is neither a refusal nor a failure of the provider. */
function asFailure(error: unknown): SignInFailed {
  if (error instanceof SignInFailed) return error
  if (error instanceof DomainError)
    return new SignInFailed(ERROR_CODES[error.code].status, error.message, error)
  throw error
}

function addressOf({socket}: FastifyRequest): string {
  return socket.remoteAddress ?? ''
}

function actorFrom(request: FastifyRequest, {token}: PersonOwner) {
  return actorOf(asPrincipal(token.name, token.kind), false, request.socket.remoteAddress)
}

/** Refusal for the audit log. */
function refusalOf(request: FastifyRequest, person: string): RefusedRequest {
  return {
    principal: asPrincipal(person, 'client'),
    address: request.socket.remoteAddress ?? '',
    method: request.method,
    route: CALLBACK_PATH,
    url: CALLBACK_PATH,
    code: 'not_allowed',
  }
}

function asPrincipal(name: string, kind: TokenKind): Principal {
  return {name, kind, accessor: '', isSession: true, rules: NO_RULES}
}

interface Link {
  /** A path of this server. */
  readonly href: string
  readonly label: string
}

function sendPage(
  reply: FastifyReply,
  status: number,
  title: string,
  text: string,
  {href, label}: Link,
  leadsOn = false,
): FastifyReply {
  const refresh = leadsOn ? `<meta http-equiv="refresh" content="0; url=${escaped(href)}" />` : ''
  const page = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="viewport" content="width=device-width, initial-scale=1" />
    <title>${escaped(title)} – Belfry</title>
    <link rel="stylesheet" href="/ui/page.css" />
    ${refresh}
  </head>
  <body>
    <main>
      <h1>${escaped(title)}</h1>
      <p>${escaped(text)}</p>
      <p><a href="${escaped(href)}">${escaped(label)}</a></p>
    </main>
  </body>
</html>
`
  return reply.code(status).header('content-type', 'text/html; charset=utf-8').send(page)
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character]!)
}
