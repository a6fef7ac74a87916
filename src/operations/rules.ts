/**
 * Rules of notices, and mutes. In policies, to store a rule takes `read` of each channel that it sends
 * over. A rule is stored with the policies of its author: it sees only jobs that these let it read.
 */
import type {Actor} from '../core/audit.ts'
import {check, type Principal, refusalSentence} from '../core/access/authorization.ts'
import {READ_EVERYTHING} from '../core/access/policy.ts'
import {DomainError} from '../core/errors.ts'
import {channelPath} from '../core/notice-channel.ts'
import {MUTE_MAX_MS, MUTES_MAX} from '../core/notice-mute.ts'
import {isAboutCluster, type RuleDefinition, rulePath, RULES_MAX} from '../core/notice-rule.ts'
import {quoteForMessage} from '../lib/quote.ts'
import {formatDuration} from '../lib/duration.ts'
import {formatTime} from '../lib/rfc3339.ts'
import type {MuteRecord, MuteRequest, RuleRecord} from '../ports/notice-store.ts'
import {authorOf} from './channels.ts'
import type {OperationsContext} from './context.ts'

/** A rule, and why it sends nothing; `''` = it acts. */
export type ShownRule = RuleRecord & {readonly stopped?: string}

/** Says of a rule why it sends nothing: its author has lost all policies, so it sees no job. */
async function stoppedRules({
  store,
}: Pick<OperationsContext, 'store'>): Promise<(rule: RuleRecord) => string> {
  const known = new Set((await store.policies()).map(({name}) => name)).add(READ_EVERYTHING)
  return ({author: {name, kind, policies}}) =>
    kind !== 'client' || policies.some((policy) => known.has(policy))
      ? ''
      : `The policies of its author ${name} are deleted, so it sees no job. Store it again.`
}

/**
 * Makes a change of policies or rules, and emits an event for each rule that stops or acts again by it. A
 * change on another server at the same moment may emit the event too.
 */
export async function reportStops<Result>(
  {store, events}: Pick<OperationsContext, 'store' | 'events'>,
  change: () => Promise<Result>,
): Promise<Result> {
  const authors = async () => {
    const [all, stopped] = await Promise.all([store.rules(), stoppedRules({store})])
    return new Map(
      all.map((rule) => [rule.definition.name, {rule, isStopped: stopped(rule) !== ''}]),
    )
  }
  const before = await authors()
  const result = await change()
  for (const [name, {rule, isStopped}] of await authors()) {
    const had = before.get(name)?.isStopped ?? isStopped
    const data = {rule: name, author: rule.author.name}
    if (isStopped && !had) events.emit('notice_rule_stopped', data)
    if (!isStopped && had) events.emit('notice_rule_resumed', data)
  }
  return result
}

export function createRules(context: OperationsContext) {
  const {store} = context

  /** Rules that the caller may read, sorted by name. */
  async function rules(caller: Principal): Promise<readonly ShownRule[]> {
    const [all, stopped] = await Promise.all([store.rules(), stoppedRules(context)])
    return all
      .filter(({definition: {name}}) => check(caller, 'read', rulePath(name)).allowed)
      .map((record) => ({...record, stopped: stopped(record)}))
  }

  /** Throws `rule_unknown`. */
  async function rule(name: string): Promise<ShownRule> {
    const record = requireRule(name, await store.rule(name))
    return {...record, stopped: (await stoppedRules(context))(record)}
  }

  /** `definition` is valid by `checkRule`. Throws `not_allowed`, `rule_invalid`, `too_many_rules`. */
  async function putRule(
    caller: Principal,
    definition: RuleDefinition,
    actor: Actor,
  ): Promise<RuleRecord> {
    const checks = [
      ...definition.to.map((name) => check(caller, 'read', channelPath(name))),
      // Messages about the cluster name its nodes.
      ...(isAboutCluster(definition) ? [check(caller, 'list', '/v1/members')] : []),
    ]
    const refused = checks.find(({allowed}) => !allowed)
    if (refused !== undefined)
      throw new DomainError('not_allowed', refusalSentence(caller, refused))
    const author = await authorOf(context, caller, actor)
    const result = await reportStops(context, () => store.putRule({definition, author}, actor))
    switch (result.kind) {
      case 'stored':
        context.wakeup.notify('notices')
        return result.rule
      case 'not_ready':
        throw new DomainError(
          'feature_not_ready',
          `The rule cannot be stored: server ${result.server} has a release without notices. ` +
            'Upgrade it first.',
        )
      case 'channel_unknown': {
        const names = quoted(result.names)
        throw new DomainError(
          'rule_invalid',
          `The rule is invalid: to: there is no channel ${names}; see belfry notice list.`,
        )
      }
      case 'channel_of_cluster':
        throw new DomainError(
          'rule_invalid',
          `The rule is invalid: to: ${quoted(result.names)} is pinged while Belfry works, and sends no ` +
            'messages of rules. Use another channel.',
        )
      case 'full':
        throw new DomainError(
          'too_many_rules',
          `The rule cannot be stored: there are ${RULES_MAX} rules. Delete some of them first.`,
        )
    }
  }

  /** Throws `rule_unknown`. */
  async function deleteRule(name: string, actor: Actor): Promise<RuleRecord> {
    return requireRule(name, await store.deleteRule(name, actor))
  }

  return {rules, rule, putRule, deleteRule}
}

export function createMutes({store}: OperationsContext) {
  /** Mutes in force, oldest first. */
  function mutes(): Promise<readonly MuteRecord[]> {
    return store.mutes()
  }

  /** Throws `body_invalid`, `rule_unknown`, `too_many_mutes`. */
  async function muteNotices(request: MuteRequest, actor: Actor): Promise<MuteRecord> {
    if (request.rule !== '') requireRule(request.rule, await store.rule(request.rule))
    const result = await store.muteNotices(request, actor)
    switch (result.kind) {
      case 'muted':
        return result.mute
      case 'out_of_range': {
        const {now} = result
        throw new DomainError(
          'body_invalid',
          `The mute is invalid: until: must be in the future, at most ${formatDuration(MUTE_MAX_MS)} ` +
            `from now: it is ${formatTime(now)}.`,
        )
      }
      case 'full':
        throw new DomainError(
          'too_many_mutes',
          `Notices cannot be muted: there are ${MUTES_MAX} mutes. End some, or use a glob.`,
        )
    }
  }

  /** Throws `mute_unknown`. */
  async function endMute(id: number, actor: Actor): Promise<MuteRecord> {
    const mute = Number.isSafeInteger(id) ? await store.endMute(id, actor) : null
    if (mute === null) throw new DomainError('mute_unknown', `There is no mute ${id} in force.`)
    return mute
  }

  return {mutes, muteNotices, endMute}
}

function quoted(names: readonly string[]): string {
  return names.map((name) => quoteForMessage(name)).join(', ')
}

function requireRule(name: string, rule: RuleRecord | null): RuleRecord {
  if (rule === null)
    throw new DomainError('rule_unknown', `There is no rule named "${name.slice(0, 64)}".`)
  return rule
}
