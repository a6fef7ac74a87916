/**
 * Unknown query parameters. Routes of the API contract accept them, as existing clients send their own, and
 * name them in `X-Warnings`; our other routes refuse them. A route's description lists what it knows.
 */
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {DomainError} from '../../core/errors.ts'
import {didYouMean, meantBy} from '../../lib/nearest.ts'
import {setWarnings} from './reply.ts'
import {queryOf} from './request.ts'

/** Routes that existing clients call: those of the API contract and their older names. */
const CONTRACT: ReadonlySet<string> = new Set(
  `GET /v1
  GET /v1/jobs
  POST /v1/jobs
  PATCH /v1/jobs
  GET /v1/jobs/:name
  POST /v1/jobs/:name
  DELETE /v1/jobs/:name
  POST /v1/jobs/:name/run
  POST /v1/jobs/:name/toggle
  POST /v1/restore
  GET /v1/members
  GET /v1/leader
  GET /v1/isleader
  POST /v1/leave
  GET /v1/jobs/:name/executions
  GET /v1/executions/:name
  DELETE /v1/jobs/:name/executions
  GET /v1/jobs/:name/executions/:execution
  GET /v1/busy
  GET /v1/pause
  POST /v1/pause
  POST /v1/unpause
  GET /v1/stats
  GET /v1/acl/policies
  GET /v1/acl/policies/:name
  POST /v1/acl/policies/:name
  DELETE /v1/acl/policies/:name`.split(/\n */),
)

/** A request that misspells one of these would change more than it is meant to. */
const RESTRAINTS: ReadonlySet<string> = new Set(['dry_run', 'strict'])
/** More are not named: the header and the error stay short. */
const NAMES_SHOWN = 5
const NAME_LENGTH_MAX = 64

/** The shape of a described query string: a TypeBox object. */
interface QuerySchema {
  readonly properties: Readonly<Record<string, {readonly type?: string}>>
}

/** Routes without a description (pages, sign-in) and those outside of `/v1` (probes) are not checked. */
export function checkParameters(app: FastifyInstance): void {
  app.addHook('preHandler', async (request, reply) => {
    const {url, schema} = request.routeOptions
    const described = schema?.querystring as QuerySchema | undefined
    if (described === undefined || !/^\/v1(?:\/|$)/.test(url ?? '')) return
    const query = queryOf(request)
    const unknown = unknownNames(
      query.pairs.map(([name]) => name),
      described,
    )
    if (unknown.length === 0) return
    const known = Object.keys(described.properties)
    const isStrict = known.includes('strict') && query.isSet('strict')
    const restraint = unknown.find((name) => RESTRAINTS.has(meantBy(name, known)))
    if (restraint !== undefined || isStrict || !isOfContract(request))
      throw refusal(restraint ?? unknown[0]!, known)
    const shown = unknown.slice(0, NAMES_SHOWN)
    setWarnings(
      reply,
      shown.map((name) => `${shortened(name)}: unknown query parameter${didYouMean(name, known)}`),
    )
  })
}

function isOfContract({method, routeOptions: {url = ''}}: FastifyRequest): boolean {
  const path = url === '/v1/' ? '/v1' : url
  return CONTRACT.has(`${method === 'HEAD' ? 'GET' : method} ${path}`)
}

/** Lists are also written as `name[]`, `name[0]` and `name[key]`. */
function unknownNames(names: readonly string[], {properties}: QuerySchema): string[] {
  const unknown = names.filter((name) => {
    if (Object.hasOwn(properties, name)) return false
    const list = /^([^[]+)\[.*\]$/s.exec(name)?.[1]
    return list === undefined || properties[list]?.type !== 'array'
  })
  return [...new Set(unknown)]
}

function refusal(name: string, known: readonly string[]): DomainError {
  return new DomainError(
    'parameter_unknown',
    `${shortened(name)}: this route has no such query parameter${didYouMean(name, known) || '.'} ` +
      `It knows ${known.toSorted().join(', ')}.`,
    {members: {parameter: shortened(name), known: known.toSorted()}},
  )
}

function shortened(name: string): string {
  return name.length > NAME_LENGTH_MAX ? `${name.slice(0, NAME_LENGTH_MAX)}…` : name
}
