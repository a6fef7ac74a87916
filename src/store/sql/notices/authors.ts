/**
 * Authors of rules: what their policies let them read now. They are looked up at each evaluation, so a rule
 * tells nothing that its author may not read any more.
 */
import {
  decide,
  isShown,
  jobPath,
  readableJobs,
  RuleSet,
} from '../../../core/access/authorization.ts'
import {READ_EVERYTHING, readRules} from '../../../core/access/policy.ts'
import type {NoticeAuthor} from '../../../core/notice-channel.ts'
import {policies} from '../access/tokens.ts'
import type {Query, Transaction} from '../query.ts'

export interface RuleReader {
  mayRead(job: string): boolean
  /** True if the author may read the output of the job. */
  seesOutput(job: string): boolean
  readonly seesNodes: boolean
}

/** A function from authors to what they may read, from the policies that are stored now. */
export function* ruleReaders(tx: Transaction): Query<(author: NoticeAuthor) => RuleReader> {
  const stored = yield* policies(tx)
  const texts = new Map(stored.map(({name, rules}) => [name, rules]))
  const known = new Map<string, RuleReader>()
  return (author) => {
    const key = `${author.kind} ${author.policies.join('\n')}`
    const reader = known.get(key) ?? readerOf(author, texts)
    known.set(key, reader)
    return reader
  }
}

function readerOf(
  {kind, policies: names}: NoticeAuthor,
  texts: ReadonlyMap<string, string>,
): RuleReader {
  const parsed = names.flatMap((name) => {
    const document = readRules(texts.get(name) ?? '')
    return document.ok ? [{name, rules: document.rules, limits: document.limits}] : []
  })
  const readsAll = names.includes(READ_EVERYTHING)
  const rules = new RuleSet(parsed, {executors: [], processors: []}, readsAll)
  const filter = readableJobs({kind, rules})
  return {
    mayRead: (job) => isShown(filter, job),
    seesOutput: (job) =>
      decide({kind, rules}, 'read', `${jobPath(job)}/executions/1-node-1`).allowed,
    seesNodes: decide({kind, rules}, 'list', '/v1/members').allowed,
  }
}
