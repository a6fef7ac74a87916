/**
 * Unknown query parameters. Routes of the API contract accept them, as existing clients send their own, and
 * name them in `X-Warnings`; our other routes refuse them. A route's description lists what it knows.
 */
import type {FastifyInstance} from 'fastify'
import {DomainError} from '../../core/errors.ts'
import {didYouMean, meantBy} from '../../lib/nearest.ts'
import {Pretty} from '../../wire/query.ts'
import {checksParameters} from './describe-route.ts'
import {setWarnings} from './reply.ts'
import {queryOf} from './request.ts'

/** A request that misspells one of these would change more than it is meant to. */
const RESTRAINTS: ReadonlySet<string> = new Set(['dry_run', 'strict'])
/** More are not named: the header and the error stay short. */
const NAMES_SHOWN = 5
const NAME_LENGTH_MAX = 64

type Properties = Readonly<Record<string, {readonly type?: string}>>

/** Routes without a description (pages, sign-in) and those outside of `/v1` (probes) are not checked. */
export function checkParameters(app: FastifyInstance): void {
  app.addHook('preHandler', async (request, reply) => {
    const {url = '', config} = request.routeOptions
    if (config.operationId === undefined || !checksParameters(url)) return
    const properties: Properties = {pretty: Pretty, ...config.query?.properties}
    const query = queryOf(request)
    const unknown = unknownNames(
      query.pairs.map(([name]) => name),
      properties,
    )
    if (unknown.length === 0) return
    const known = Object.keys(properties)
    const isStrict = known.includes('strict') && query.isSet('strict')
    const restraint = unknown.find((name) => RESTRAINTS.has(meantBy(name, known)))
    if (restraint !== undefined || isStrict || config.isOfContract !== true)
      throw refusal(restraint ?? unknown[0]!, known)
    const shown = unknown.slice(0, NAMES_SHOWN)
    setWarnings(
      reply,
      shown.map((name) => `${shortened(name)}: unknown query parameter${didYouMean(name, known)}`),
    )
  })
}

/** Lists are also written as `name[]`, `name[0]` and `name[key]`. */
function unknownNames(names: readonly string[], properties: Properties): string[] {
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
