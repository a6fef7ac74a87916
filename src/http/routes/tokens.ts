/** Routes of tokens, and the question what a token may do. */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import {type Check, type Principal} from '../../core/access/authorization.ts'
import {decideStore, storeChecks} from '../../core/access/job-permission.ts'
import type {CreatedToken as Created} from '../../operations/tokens.ts'
import type {Operations} from '../../operations/operations.ts'
import {QueryProblem} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {
  AccessAnswer,
  type AccessAnswerJson,
  CreatedToken,
  decodeFirstToken,
  decodeToken,
  encodeToken,
  FirstToken,
  NewToken,
  Token,
} from '../../wire/token.ts'
import {decideRoute, lists, reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import type {FoundRoute, PathTable} from '../api/paths.ts'
import {sendJson, setWarnings} from '../api/reply.ts'
import {actorOf, bodyOf, queryOf, withoutExtraSlashes} from '../api/request.ts'

const PARAMS = {accessor: 'Public id of the token.'}

type TokenRequest = FastifyRequest<{Params: {accessor: string}}>

export function routeTokens(app: FastifyInstance, operations: Operations, paths: PathTable): void {
  routeCreation(app, operations)
  app.get('/acl/tokens', {
    ...describeRoute({
      access: lists('/v1/acl/tokens'),
      operationId: 'listTokens',
      summary: 'List tokens',
      tag: 'policies',
      reply: Type.Array(schemaRef(Token)),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, (await operations.tokens()).map(encodeToken)),
  })
  app.get('/acl/tokens/:accessor', {
    ...describeRoute({
      access: reads('/v1/acl/tokens/:accessor'),
      operationId: 'getToken',
      summary: 'Read a token, without its secret',
      tag: 'policies',
      params: PARAMS,
      reply: schemaRef(Token),
      errors: ['token_unknown'],
    }),
    handler: async (request: TokenRequest, reply) =>
      sendJson(request, reply, 200, encodeToken(await operations.token(request.params.accessor))),
  })
  app.delete('/acl/tokens/:accessor', {
    ...describeRoute({
      access: 'management',
      operationId: 'revokeToken',
      summary: 'Revoke a token',
      description:
        'Its requests, event streams and agents end within five seconds on every server.',
      tag: 'policies',
      params: PARAMS,
      reply: schemaRef(Token),
      errors: ['token_unknown'],
    }),
    handler: async (request: TokenRequest, reply) => {
      const {accessor} = request.params
      const {token, warnings} = await operations.revokeToken(accessor, actorOf(request))
      setWarnings(reply, warnings)
      return sendJson(request, reply, 200, encodeToken(token))
    },
  })
  routeCheck(app, operations, paths)
}

function routeCreation(app: FastifyInstance, operations: Operations): void {
  const send = (request: FastifyRequest, reply: FastifyReply, created: Created) => {
    const {token, secret, warnings} = created
    setWarnings(reply, warnings)
    reply.header('location', `/v1/acl/tokens/${token.accessor}`)
    return sendJson(request, reply, 201, {...encodeToken(token), secret})
  }
  const shared = {tag: 'policies', status: 201, reply: schemaRef(CreatedToken)} as const
  app.post('/acl/tokens', {
    ...describeRoute({
      access: 'management',
      ...shared,
      operationId: 'createToken',
      summary: 'Create a token',
      description: 'Only this response has the `secret`.',
      body: schemaRef(NewToken),
      errors: ['token_invalid', 'too_many_tokens'],
    }),
    handler: async (request, reply) => {
      const asked = decodeToken(bodyOf(request))
      return send(request, reply, await operations.createToken(asked, actorOf(request)))
    },
  })
  app.post('/acl/bootstrap', {
    ...describeRoute({
      access: 'management',
      ...shared,
      operationId: 'bootstrap',
      summary: 'Create the first management token',
      description:
        'Once: from this machine while no token has ever been stored, or with the token of the ' +
        'configuration while no management token is stored. The body may be empty.',
      body: schemaRef(FirstToken),
      bodyOptional: true,
      errors: ['token_invalid', 'token_not_first', 'too_many_tokens'],
    }),
    handler: async (request, reply) => {
      const asked = decodeFirstToken(bodyOf(request))
      return send(request, reply, await operations.bootstrap(asked, actorOf(request)))
    },
  })
}

function routeCheck(app: FastifyInstance, operations: Operations, paths: PathTable): void {
  app.get('/acl/tokens/:accessor/check', {
    ...describeRoute({
      access: reads('/v1/acl/tokens/:accessor/check'),
      operationId: 'checkToken',
      summary: 'Whether a token may send a request, and which glob decides',
      tag: 'policies',
      params: PARAMS,
      query: Type.Object({
        method: Type.Optional(Type.String({description: 'Method of the request; absent = GET.'})),
        path: Type.Optional(
          Type.String({description: 'Path of the request, such as `/v1/jobs/x`; absent = `/`.'}),
        ),
      }),
      reply: schemaRef(AccessAnswer),
      errors: ['token_unknown'],
    }),
    handler: async (request: TokenRequest, reply) => {
      const token = await operations.currentToken(request.params.accessor)
      const query = queryOf(request)
      const method = (query.text('method') ?? 'GET').toUpperCase()
      const [path = ''] = withoutExtraSlashes(query.text('path') ?? '/').split('?', 1)
      return sendJson(request, reply, 200, answerOf(token, method, path, paths))
    },
  })
}

function answerOf(
  token: Principal,
  method: string,
  path: string,
  paths: PathTable,
): AccessAnswerJson {
  const found = paths.find(method, path) ?? useOfSecret(method, path)
  if (found === null) throw unknownRoute(method, path, paths)
  const {access, parameters} = found
  const decided = {body_decides: false}
  if (access !== 'body') {
    const {allowed, sentence, checks} = decideRoute(access, token, parameters)
    return {...decided, allowed, reason: sentence, checks: checks.map(encodeCheck)}
  }
  const {name} = parameters
  // Only policies tell jobs apart.
  if (name === undefined && token.kind === 'client') {
    const reason = 'The body decides, job by job. Ask for PUT /v1/jobs/NAME.'
    return {allowed: false, body_decides: true, reason, checks: []}
  }
  const decision = decideStore(token, name ?? '*', null)
  const checks = storeChecks(token, name ?? '*', null).map(encodeCheck)
  const limits = 'Limits of a policy, and the parent and the secrets of the job, also decide.'
  const mayDepend = token.kind === 'client' ? limits : ''
  const reason = decision.allowed ? mayDepend : decision.sentence
  return {...decided, allowed: decision.allowed, reason, checks}
}

/** No route reads a secret. To store a job that uses one takes this. */
function useOfSecret(method: string, path: string): FoundRoute | null {
  const [, name] = /^\/v1\/secrets\/([^/]+)$/.exec(path) ?? []
  if (method !== 'GET' || name === undefined) return null
  return {access: reads('/v1/secrets/:name'), parameters: {name}}
}

function unknownRoute(method: string, path: string, paths: PathTable): QueryProblem {
  if (!path.startsWith('/')) return new QueryProblem('path: must begin with "/", as in /v1/jobs')
  const methods = paths.methodsOf(path).join(', ')
  const known = methods === '' ? 'see /docs' : `its methods are ${methods}`
  return new QueryProblem(`path: no route is ${method} ${path.slice(0, 200)}; ${known}`)
}

function encodeCheck({capability, path, allowed, rule, why}: Check) {
  const {policy, glob} = rule ?? {policy: null, glob: null}
  return {capability, path, allowed, policy, glob, reason: why}
}
