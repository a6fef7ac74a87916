/**
 * Policies as rule sets. A policy is parsed once, and each combination of policies is compiled once: tokens
 * with the same policies share the result, also after a reload.
 */
import {NO_RULES, type PolicyRules, RuleSet} from '../core/access/authorization.ts'
import {type DefinitionTraits, READ_EVERYTHING, readRules} from '../core/access/policy.ts'
import type {Policy, TokenRecord} from '../ports/token-store.ts'

interface Parsed {
  readonly text: string
  /** `null` = it is no rules document, and grants nothing; absent = no token needed it yet. */
  rules?: PolicyRules | null
}

interface Compiled {
  readonly from: readonly PolicyRules[]
  readonly rules: RuleSet
}

export class PolicyCompiler {
  readonly #traits: DefinitionTraits
  #policies: ReadonlyMap<string, Parsed> = new Map()
  #compiled = new Map<string, Compiled>()
  #before: ReadonlyMap<string, Compiled> = new Map()

  constructor(traits: DefinitionTraits) {
    this.#traits = traits
  }

  load(policies: readonly Policy[]): void {
    const before = this.#policies
    this.#policies = new Map(
      policies.map(({name, rules: text}) => {
        const known = before.get(name)
        return [name, known?.text === text ? known : {text}]
      }),
    )
    this.#before = this.#compiled
    this.#compiled = new Map()
  }

  rulesOf({kind, policies}: Pick<TokenRecord, 'kind' | 'policies'>): RuleSet {
    if (kind !== 'client' || policies.length === 0) return NO_RULES
    const key = policies.join('\n')
    const known = this.#compiled.get(key)
    if (known !== undefined) return known.rules
    const from = policies.flatMap((name) => this.#parsed(name) ?? [])
    const before = this.#before.get(key)
    const isSame =
      before?.from.length === from.length && from.every((each, at) => each === before.from[at])
    const compiled =
      before !== undefined && isSame
        ? before
        : {
            from,
            rules: new RuleSet(from, this.#traits, policies.includes(READ_EVERYTHING)),
          }
    this.#compiled.set(key, compiled)
    return compiled.rules
  }

  /** Policies that are not stored, and so grant nothing. */
  missing(policies: readonly string[]): readonly string[] {
    return policies.filter((name) => name !== READ_EVERYTHING && !this.#policies.has(name))
  }

  #parsed(name: string): PolicyRules | null {
    const policy = this.#policies.get(name)
    if (policy === undefined) return null
    if (policy.rules === undefined) policy.rules = parsedRules(name, policy.text)
    return policy.rules
  }
}

function parsedRules(name: string, text: string): PolicyRules | null {
  const parsed = readRules(text)
  return parsed.ok ? {name, rules: parsed.rules, limits: parsed.limits} : null
}
