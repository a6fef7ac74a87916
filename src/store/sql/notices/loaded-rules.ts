/** Rules of notices, with what their authors may read now. */
import {type CompiledRule, compileRule} from '../../../core/notice-rule.ts'
import {type Query, together, type Transaction} from '../query.ts'
import {type RuleReader, ruleReaders} from './authors.ts'
import {rules as ruleRecords} from './rules.ts'

export interface LoadedRules {
  readonly rules: readonly CompiledRule[]
  /** Rights of the author of a rule, as they are now. */
  readonly readerOf: (rule: string) => RuleReader
  /** When each rule was stored, by its name. */
  readonly storedAt: ReadonlyMap<string, number>
}

export function* loadRules(tx: Transaction): Query<LoadedRules> {
  const [found, readerOfAuthor] = yield* together(ruleRecords(tx), ruleReaders(tx))
  const authors = new Map(found.map(({definition, author}) => [definition.name, author]))
  return {
    rules: found.map(({definition}) => compileRule(definition)),
    readerOf: (rule) => readerOfAuthor(authors.get(rule)!),
    storedAt: new Map(found.map(({definition, updatedAt}) => [definition.name, updatedAt])),
  }
}
