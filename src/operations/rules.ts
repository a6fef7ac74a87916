/**
 * Rules of notices, and mutes. In policies, to store a rule takes `read` of each channel that it sends
 * over. A rule is stored with the policies of its author: it sees only jobs that these let it read.
 */
import type {Actor} from '../core/audit.ts'
import {check, type Principal, refusalSentence} from '../core/access/authorization.ts'
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

export function createRules(context: OperationsContext) {
  const {store} = context

  /** Rules that the caller may read, sorted by name. */
  async function rules(caller: Principal): Promise<readonly RuleRecord[]> {
    const all = await store.rules()
    return all.filter(({definition: {name}}) => check(caller, 'read', rulePath(name)).allowed)
  }

  /** Throws `rule_unknown`. */
  async function rule(name: string): Promise<RuleRecord> {
    return requireRule(name, await store.rule(name))
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
    const result = await store.putRule({definition, author}, actor)
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
        const names = result.names.map((name) => quoteForMessage(name)).join(', ')
        throw new DomainError(
          'rule_invalid',
          `The rule is invalid: to: there is no channel ${names}; see belfry notice list.`,
        )
      }
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

function requireRule(name: string, rule: RuleRecord | null): RuleRecord {
  if (rule === null)
    throw new DomainError('rule_unknown', `There is no rule named "${name.slice(0, 64)}".`)
  return rule
}
