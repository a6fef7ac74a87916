/** OpenID Connect providers on free local ports: a real one, and one that answers with what a test makes. */
import {generateKeyPairSync, sign} from 'node:crypto'
import {createServer, type IncomingMessage, type Server, type ServerResponse} from 'node:http'
import type {AddressInfo} from 'node:net'
import type {TestContext} from 'node:test'
import Provider from 'oidc-provider'

export const CLIENT = {id: 'belfry', secret: 'the-secret-of-the-client'}

type Handler = (request: IncomingMessage, response: ServerResponse) => void

/** Calls `handlerOf` with the address, before the first request. */
async function serve(t: TestContext, handlerOf: (issuer: string) => Handler) {
  let handler: Handler | null = null
  const server: Server = createServer((request, response) => handler!(request, response))
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve))
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  handler = handlerOf(issuer)
  const close = async () => {
    server.closeAllConnections()
    await new Promise<void>((resolve) => void server.close(() => resolve()))
  }
  t.after(() => (server.listening ? close() : undefined))
  return {issuer, close}
}

/** A person, signed in without being asked. */
export interface Account {
  readonly sub: string
  readonly [claim: string]: unknown
}

/** A real provider, which signs in `account.current` at once. */
export async function realProvider(t: TestContext, redirectUri: string, first: Account) {
  const account = {current: first}
  const served = await serve(t, (issuer) => {
    const provider = new Provider(issuer, {
      clients: [
        {
          client_id: CLIENT.id,
          client_secret: CLIENT.secret,
          redirect_uris: [redirectUri],
          grant_types: ['authorization_code'],
          response_types: ['code'],
        },
      ],
      claims: {openid: ['sub'], email: ['email', 'email_verified'], profile: ['groups']},
      findAccount: (_context: unknown, sub: string) => {
        return {accountId: sub, claims: () => account.current}
      },
      pkce: {required: () => true},
      cookies: {keys: ['a key of this test']},
      features: {devInteractions: {enabled: false}},
      interactions: {url: (_context: unknown, {uid}: {uid: string}) => `/interaction/${uid}`},
    })
    const answer = provider.callback() as Handler
    return (request, response) => {
      if (request.url?.startsWith('/interaction/') === true)
        void interact(provider, request, response, account.current.sub)
      else answer(request, response)
    }
  })
  return {...served, account}
}

/** Signs in and consents. */
async function interact(
  provider: Provider,
  request: IncomingMessage,
  response: ServerResponse,
  sub: string,
) {
  const {params} = await provider.interactionDetails(request, response)
  const grant = new provider.Grant({accountId: sub, clientId: String(params['client_id'])})
  grant.addOIDCScope(String(params['scope']))
  const grantId = await grant.save()
  await provider.interactionFinished(request, response, {
    login: {accountId: sub},
    consent: {grantId},
  })
}

/** Claims that a fake provider puts into an ID token. */
export interface Forged {
  readonly header?: Readonly<Record<string, unknown>>
  readonly claims?: Readonly<Record<string, unknown>>
  /** Signed by another key; `none` = not signed. */
  readonly signed?: 'other key' | 'none'
}

/** A provider whose ID tokens are as the test makes them. */
export async function fakeProvider(t: TestContext) {
  const ours = generateKeyPairSync('rsa', {modulusLength: 2048})
  const other = generateKeyPairSync('rsa', {modulusLength: 2048})
  const next = {
    nonce: '',
    forged: {} as Forged,
    endpoints: {} as Readonly<Record<string, unknown>>,
    tokenRequests: 0,
  }
  let held = Promise.resolve()
  /** The token endpoint answers nothing until the release. */
  const holdTokens = () => {
    const {promise, resolve} = Promise.withResolvers<void>()
    held = promise
    return {release: resolve}
  }
  const served = await serve(t, (issuer) => (request, response) => {
    const send = (body: unknown) => {
      response.setHeader('content-type', 'application/json')
      response.end(JSON.stringify(body))
    }
    if (request.url === '/.well-known/openid-configuration')
      return send({
        issuer,
        authorization_endpoint: `${issuer}/auth`,
        token_endpoint: `${issuer}/token`,
        jwks_uri: `${issuer}/jwks`,
        id_token_signing_alg_values_supported: ['RS256', 'none'],
        ...next.endpoints,
      })
    if (request.url === '/jwks') {
      const jwk = ours.publicKey.export({format: 'jwk'})
      return send({keys: [{...jwk, kid: 'a', use: 'sig', alg: 'RS256'}]})
    }
    next.tokenRequests += 1
    const {header, claims, signed} = next.forged
    const now = Math.floor(Date.now() / 1000)
    const parts = [
      {alg: 'RS256', kid: 'a', ...header},
      {
        iss: issuer,
        aud: CLIENT.id,
        sub: 'mallory',
        iat: now,
        exp: now + 60,
        nonce: next.nonce,
        groups: ['ops'],
        ...claims,
      },
    ].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    const text = parts.join('.')
    const key = signed === 'other key' ? other.privateKey : ours.privateKey
    const signature = signed === 'none' ? '' : sign('sha256', Buffer.from(text), key)
    const id_token = `${text}.${signature === '' ? '' : signature.toString('base64url')}`
    void held.then(() => send({access_token: 'a', token_type: 'Bearer', id_token}))
  })
  return {...served, next, holdTokens}
}
