/**
 * Access rules of routes. Every route declares its own; the server does not start with a route that does
 * not. A route over one object needs a capability on its path, in which `:name` is a parameter.
 */
import {
  check,
  type Check,
  type Principal,
  readableExecutions,
  readableJobs,
  refusalSentence,
  refusing,
  segmentOf,
  subjectOf,
  type TokenKind,
} from '../../core/access/authorization.ts'
import {DomainError} from '../../core/errors.ts'
import type {Capability} from '../../core/access/policy.ts'

export type RouteAccess =
  /** No token. */
  | 'public'
  /** Any token but those that are for one purpose only. */
  | 'any'
  /** `any`, and tokens for metrics. */
  | 'metrics'
  | 'management'
  /** The operation decides: only the body names the jobs. */
  | 'body'
  | PathAccess

type Parameters = Readonly<Record<string, string>>

export interface PathAccess {
  readonly capability: Capability
  /** A grant of this one is enough too. */
  readonly orCapability: Capability | null
  readonly pathOf: (parameters: Parameters) => string
  /** A second path for the same: a `deny` there refuses, a grant there is enough. */
  readonly alsoOf: ((parameters: Parameters) => string) | null
  /** The path, and the second one, with parameters as `:name`. */
  readonly templates: readonly string[]
  /** Only for callers that may read all jobs and executions. */
  readonly isWhole: boolean
}

export const lists = (path: string) => needs('list', path)
export const reads = (path: string) => needs('read', path)
export const creates = (path: string, also?: string) => needs('create', path, also)
export const updates = (path: string) => needs('update', path)
export const deletes = (path: string) => needs('delete', path)
/** Creates or replaces one object. */
export const stores = (path: string) => {
  return {...needs('update', path), orCapability: 'create'} as const
}
/** Reads something that holds all jobs. */
export const readsWhole = (path: string) => ({...needs('read', path), isWhole: true})

function needs(capability: Capability, path: string, also?: string): PathAccess {
  const alsoOf = also === undefined ? null : pathFrom(also)
  const templates = also === undefined ? [path] : [path, also]
  const access = {capability, orCapability: null, pathOf: pathFrom(path), alsoOf}
  return {...access, templates, isWhole: false}
}

function pathFrom(template: string): (parameters: Parameters) => string {
  const parts = template.split(/:(\w+)/)
  if (parts.length === 1) return () => template
  return (parameters) =>
    parts.map((part, at) => (at % 2 === 0 ? part : segmentOf(parameters[part] ?? ''))).join('')
}

export interface RouteDecision {
  readonly allowed: boolean
  /** Why not, as a sentence; `''` when it is allowed, or when only the body decides. */
  readonly sentence: string
  readonly checks: readonly Check[]
}

/** `null` = allowed, or decided by the operation. */
export function routeRefusal(
  access: RouteAccess,
  principal: Principal,
  parameters: Parameters,
): DomainError | null {
  if (principal.kind === 'management') return null
  const {allowed, sentence} = decideRoute(access, principal, parameters)
  return allowed ? null : new DomainError('not_allowed', sentence)
}

export function decideRoute(
  access: RouteAccess,
  principal: Principal,
  parameters: Parameters,
): RouteDecision {
  const {kind} = principal
  const named = subjectOf(principal)
  const byKind = (allowed: boolean, why: string) => {
    return {allowed, sentence: allowed ? '' : `${named} may not do this: ${why}.`, checks: []}
  }
  switch (access) {
    case 'public':
    case 'body':
      return byKind(true, '')
    case 'any':
      return byKind(kind !== 'metrics' && !isOfAgents(kind), `its type is ${kind}`)
    case 'metrics':
      return byKind(!isOfAgents(kind), `its type is ${kind}`)
    case 'management':
      return byKind(kind === 'management', `it takes a management token, and its type is ${kind}`)
    default:
      return decidePath(access, principal, parameters)
  }
}

function isOfAgents(kind: TokenKind): boolean {
  return kind === 'agent' || kind === 'join'
}

function decidePath(
  {capability, orCapability, pathOf, alsoOf, isWhole}: PathAccess,
  principal: Principal,
  parameters: Parameters,
): RouteDecision {
  const paths = [pathOf(parameters), ...(alsoOf === null ? [] : [alsoOf(parameters)])]
  const wanted = [capability, ...(orCapability === null ? [] : [orCapability])]
  const checks = paths.flatMap((path) => wanted.map((each) => check(principal, each, path)))
  const refused = refusing(checks)
  if (refused !== null)
    return {allowed: false, sentence: refusalSentence(principal, refused), checks}
  const readsAll = readableJobs(principal) === null && readableExecutions(principal) === null
  if (!isWhole || readsAll) return {allowed: true, sentence: '', checks}
  const why = 'it holds all jobs, and its policies do not let it read all of them'
  const sentence = refusalSentence(principal, {capability, path: paths[0]!, why})
  return {allowed: false, sentence, checks}
}
