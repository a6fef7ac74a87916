/**
 * Channels of notices: stored, listed, deleted and tested. The part that is secret by nature becomes the
 * secret `notice-NAME`; no reply has it. In policies, to store a channel takes `read` of each secret that it
 * names: who may change where a channel sends could send the secret elsewhere.
 */
import type {Actor} from '../core/audit.ts'
import {check, type Principal, refusalSentence} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {
  CHANNEL_NAME,
  type ChannelDefinition,
  channelPath,
  type ChannelRecord,
  CHANNELS_MAX,
  channelSecret,
  type NoticeAuthor,
  secretsOfConfig,
  takeSecret,
} from '../core/notice-channel.ts'
import type {Delivery} from '../core/notice-delivery.ts'
import type {NoticeMessage} from '../core/notice-message.ts'
import {secretPath, secretProblem} from '../core/secret.ts'
import type {OperationsContext} from './context.ts'
import {missingSecrets, sealSecret, secretRefused} from './secrets.ts'

/** Each has a connection for at most 10 s. */
const TESTS_AT_ONCE_MAX = 10
const TEST_SECONDS = 10

export function createChannels(context: OperationsContext) {
  const {store, vault, channels: kinds} = context

  /** Channels that the caller may read, sorted by name. */
  async function channels(caller: Principal): Promise<readonly ChannelRecord[]> {
    const all = await store.channels()
    return all.filter(({name}) => check(caller, 'read', channelPath(name)).allowed)
  }

  /** Throws `channel_unknown`. */
  async function channel(name: string): Promise<ChannelRecord> {
    return requireChannel(name, await store.channel(name))
  }

  /**
   * Throws `channel_invalid`, `not_allowed`, `too_many_channels`, `secret_key_unusable`,
   * `too_many_secrets`.
   */
  async function putChannel(
    caller: Principal,
    definition: ChannelDefinition,
    actor: Actor,
  ): Promise<ChannelRecord> {
    const {name, kind, config: sent} = definition
    // The right precedes all problems, so that a refusal does not tell which secrets exist.
    requireReadable(caller, secretsOfConfig(sent))
    const field = kinds.kind(kind)?.secretField ?? ''
    const {config, value} = takeSecret(name, sent, field)
    const problems = await problemsOf(context, definition, {field, value})
    if (problems.length > 0)
      throw new DomainError('channel_invalid', `The channel is invalid: ${problems.join('; ')}.`)
    const thing = `The secret ${channelSecret(name)} of the channel`
    const secret =
      value === null ? null : await sealSecret(vault, channelSecret(name), value, thing)
    const author = await authorOf(context, caller, actor)
    const result = await store.putChannel({channel: {...definition, config}, author, secret}, actor)
    if (result.kind === 'stored') return result.channel
    if (result.kind === 'in_use')
      throw new DomainError(
        'channel_invalid',
        `The channel is invalid: cluster: the rules ${result.rules.join(', ')} send over it. ` +
          'Change them first, or use another name.',
      )
    if (result.kind === 'secret') throw secretRefused(result.refusal.kind, thing)
    throw new DomainError(
      'too_many_channels',
      `The channel cannot be stored: there are ${CHANNELS_MAX} channels. Delete some of them first.`,
    )
  }

  /** Throws `channel_unknown`, `channel_in_use`. */
  async function deleteChannel(name: string, actor: Actor): Promise<ChannelRecord> {
    const result = await store.deleteChannel(name, actor)
    if (result.kind === 'deleted') return result.channel
    if (result.kind === 'unknown') return requireChannel(name, null)
    throw new DomainError(
      'channel_in_use',
      `The channel cannot be deleted: the rules ${result.rules.join(', ')} send over it. Change them first.`,
    )
  }

  return {channels, channel, putChannel, deleteChannel}
}

export function createChannelTests(context: OperationsContext) {
  const {store, channels: kinds, events} = context
  let tests = 0

  /** Sends a test message once, within 10 s. Throws `channel_unknown`, `too_many_tests`. */
  async function testChannel(name: string, actor: Actor): Promise<Delivery> {
    const tested = requireChannel(name, await store.channel(name))
    if (tests >= TESTS_AT_ONCE_MAX)
      throw new DomainError(
        'too_many_tests',
        `The channel cannot be tested: ${TESTS_AT_ONCE_MAX} tests are in progress. ` +
          `Retry in ${TEST_SECONDS}s.`,
        {retryAfterSeconds: TEST_SECONDS},
      )
    tests += 1
    try {
      const message = await testMessage(context, name)
      const delivery = await kinds.send(tested, message, new AbortController().signal)
      const {outcome, cause} = delivery
      const isSent = outcome === 'sent'
      const data = {channel: name, message: message.id, kind: message.kind, attempt: 1}
      if (isSent) events.emit('notice_sent', data)
      else events.emit('notice_failed', {...data, cause})
      await store.recordChannelTest({name, error: isSent ? null : cause}, actor)
      return delivery
    } finally {
      tests -= 1
    }
  }

  return {testChannel}
}

function requireReadable(caller: Principal, secrets: readonly string[]): void {
  const checks = secrets.map((name) => check(caller, 'read', secretPath(name)))
  const refused = checks.find(({allowed}) => !allowed)
  if (refused !== undefined) throw new DomainError('not_allowed', refusalSentence(caller, refused))
}

/** All problems of a definition. `field` is secret by nature; its `value` `null` = it has none of its own. */
async function problemsOf(
  {store, channels}: OperationsContext,
  {name, kind, config}: ChannelDefinition,
  {field, value}: {readonly field: string; readonly value: string | null},
): Promise<readonly string[]> {
  const names = secretsOfConfig(config)
  const missing = names.length === 0 ? [] : missingSecrets(names, await store.secrets())
  const problem = value === null ? null : secretProblem(value)
  return [
    ...(CHANNEL_NAME.test(name) ? [] : [NAME_RULE]),
    ...channels.check(kind, config),
    ...(problem === null ? [] : [`${field}: ${problem}`]),
    ...missing.map((finding) => `config: ${finding.problem}`),
  ]
}

const NAME_RULE =
  'the name must have 1 to 64 letters, digits, ".", "_" and "-"; it cannot be "." or ".."'

/** The policies of now: a session has those of its token. */
export async function authorOf(
  {store}: OperationsContext,
  {accessor, kind}: Principal,
  {name}: Actor,
): Promise<NoticeAuthor> {
  const token = kind === 'client' ? await store.token(accessor) : null
  return {name, kind, policies: token?.policies ?? []}
}

async function testMessage(
  {store, random, clock}: OperationsContext,
  channel: string,
): Promise<NoticeMessage> {
  const {clusterId} = await store.info()
  return {
    id: `ntc_${random.id()}`,
    attempt: 1,
    repeat: false,
    kind: 'test',
    rule: 'test',
    severity: 'info',
    cluster: clusterId,
    sentAt: clock.now(),
    summary: `the channel ${channel} works`,
    incidents: [],
    more: 0,
    part: 0,
  }
}

/** Throws `channel_unknown`. */
export function requireChannel(name: string, channel: ChannelRecord | null): ChannelRecord {
  if (channel === null)
    throw new DomainError('channel_unknown', `There is no channel named "${name.slice(0, 64)}".`)
  return channel
}
