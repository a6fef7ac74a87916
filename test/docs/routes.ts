/** The routes of a server, and their rows for docs/reference/api.md. */
import type {TSchema} from 'typebox'
import {checkedLimits} from '../../src/config/limits.ts'
import {
  type DescribedRoute,
  IMPLIED_ERRORS,
  REQUEST_ERRORS,
} from '../../src/http/api/describe-route.ts'
import {collectRoutes, type Routes} from '../../src/http/api/openapi.ts'
import type {HttpOptions} from '../../src/http/options.ts'
import {createHttpServer} from '../../src/http/server.ts'
import type {RouteAccess} from '../../src/http/security/access.ts'
import type {Operations} from '../../src/operations/operations.ts'
import {referencedSchemas} from '../../src/wire/shapes.ts'
import {tableRow} from './rows.ts'

/** Routes of a server that has all of them. It answers no request, so it needs no operation. */
export async function allRoutes(): Promise<Routes> {
  const limits = checkedLimits()
  const access = {allowHosts: [], corsOrigins: [], tls: null, nodeName: ''}
  const options = {...access, limits, ui: true, oidc: {}}
  const app = createHttpServer({} as Operations, options as unknown as HttpOptions)
  const routes = collectRoutes(app)
  await app.ready()
  await app.close()
  return routes
}

/** Path as the documentation writes it, without a trailing slash. */
export function documentedPath(url: string): string {
  return url.replaceAll(/:(\w+)/g, '{$1}').replace(/(?<=.)\/$/, '')
}

/** Rows of declarations: routes that differ only in method and path share one. */
export function routeRows(routes: readonly DescribedRoute[]): readonly string[] {
  const groups = Map.groupBy(routes, (route) => cellsOf(route).join('\n'))
  return [...groups.values()].map((group) => {
    const names = group.map(({method, url}) => `\`${method} ${documentedPath(url)}\``)
    return tableRow([names.join(', '), ...cellsOf(group[0]!)])
  })
}

function cellsOf(route: DescribedRoute): readonly string[] {
  const {access, summary, description = '', errors = []} = route
  const about = [`${summary}.`, description, ...factsOf(route)].filter((text) => text !== '')
  return [about.join(' '), needs(access, documentedPath(route.url)), codes(errors)]
}

function factsOf({query, headers, body, status, reply, replyType}: DescribedRoute): string[] {
  const answer = replyType === undefined ? schemaText(reply) : `\`${replyType}\``
  return [
    ...(query === undefined ? [] : [`Query: ${codes(Object.keys(query.properties))}.`]),
    ...(headers === undefined ? [] : [`Headers: ${codes(Object.keys(headers))}.`]),
    ...(body === undefined ? [] : [`Body: ${schemaText(body)}.`]),
    `Reply: ${status === undefined ? '' : `${status}, `}${answer}.`,
  ]
}

interface Keywords {
  readonly $ref?: string
  readonly type?: string
  readonly items?: TSchema
  readonly properties?: object
  readonly enum?: readonly string[]
  readonly minimum?: number
  readonly maximum?: number
  readonly maxLength?: number
  readonly anyOf?: readonly TSchema[]
  readonly default?: number
  readonly description?: string
}

function schemaText(schema: TSchema): string {
  const {$ref, items, properties, type} = schema as Keywords
  if ($ref !== undefined) return `\`${$ref.replace('#', '')}\``
  if (items !== undefined) return `list of ${schemaText(items)}`
  return properties === undefined ? `a ${type}` : codes(Object.keys(properties))
}

function codes(names: readonly string[]): string {
  return names.map((name) => `\`${name}\``).join(', ')
}

function needs(access: RouteAccess, path: string): string {
  switch (access) {
    case 'public':
      return 'no token'
    case 'any':
      return 'any token for the API'
    case 'metrics':
      return 'any token but of agents'
    case 'management':
      return '`management`'
    case 'body':
      return '`create` or `update` of each job'
    default: {
      const {capability, orCapability, templates, isWhole} = access
      const wanted = codes(orCapability === null ? [capability] : [orCapability, capability])
      const paths = [...new Set(templates)].map(documentedPath)
      const shown =
        paths.length === 1 && paths[0] === path ? '' : ` on ${paths.map(code).join(' or ')}`
      return `${wanted}${shown}${isWhole ? ', and all jobs' : ''}`
    }
  }
}

function code(name: string): string {
  return `\`${name}\``
}

/** A row for each query parameter, and for each meaning of its name. */
export function parameterRows(routes: readonly DescribedRoute[]): readonly string[] {
  const uses = routes.flatMap(({method, url, query}) =>
    Object.entries<TSchema>(query?.properties ?? {}).map(([name, schema]) => {
      const cells = [code(name), valuesOf(schema), (schema as Keywords).description ?? '']
      return {cells, route: code(`${method} ${documentedPath(url)}`)}
    }),
  )
  return [...Map.groupBy(uses, ({cells}) => cells.join('\n')).values()]
    .map((group) => tableRow([...group[0]!.cells, group.map(({route}) => route).join(', ')]))
    .toSorted()
}

function valuesOf(schema: TSchema): string {
  const {type = '', minimum, maximum, maxLength, default: preset, ...more} = schema as Keywords
  if (more.enum !== undefined) return codes(more.enum)
  if (more.anyOf !== undefined) return valuesOf(more.anyOf[0]!)
  const range = maximum === undefined ? '' : `, ${minimum} to ${maximum}`
  const least = maximum === undefined && minimum !== undefined ? `, at least ${minimum}` : ''
  const length = maxLength === undefined ? '' : `, at most ${maxLength} characters`
  return `${type}${range}${least}${length}${preset === undefined ? '' : `, default ${preset}`}`
}

/** A row for each field of a body. Fields of jobs have a page of their own. */
export function bodyRows(routes: readonly DescribedRoute[]): readonly string[] {
  const bodies = new Map<string, TSchema>()
  for (const {method, url, body, consumes} of routes)
    if (body !== undefined && consumes === undefined)
      bodies.set(bodyName(body) ?? `${method} ${documentedPath(url)}`, targetOf(body))
  for (const name of ['JobDefinition', 'JobPatch']) bodies.delete(name)
  return [...bodies].flatMap(([name, {required = [], properties = {}}]: [string, Fields]) =>
    Object.entries(properties).map(([field, schema]) => {
      const {anyOf = [], description} = schema as Keywords
      const [inner]: readonly Keywords[] = anyOf
      const about = description ?? inner?.description ?? ''
      const isNeeded = required.includes(field) ? 'yes' : ''
      return tableRow([code(name), code(field), valuesOf(schema), isNeeded, about])
    }),
  )
}

interface Fields {
  readonly required?: readonly string[]
  readonly properties?: Readonly<Record<string, TSchema>>
}

function bodyName(body: TSchema): string | undefined {
  return (body as Keywords).$ref?.replace('#', '')
}

function targetOf(body: TSchema): TSchema {
  const name = bodyName(body)
  return referencedSchemas().find((schema) => '$id' in schema && schema['$id'] === name) ?? body
}

export function impliedErrorRows(): readonly string[] {
  const rows = IMPLIED_ERRORS.map(({of, errors}) => tableRow([of, codes(errors)]))
  return [...rows, tableRow(['answer requests that are not well formed', codes(REQUEST_ERRORS)])]
}
