/** Channels of a server: checks configurations, and sends messages with the values of the stored secrets. */
import {secretsOfConfig} from '../../core/notice-channel.ts'
import type {SecretVault} from '../../platform/secret-vault.ts'
import type {NoticeChannels} from '../../ports/notice-channel.ts'
import type {SecretStore} from '../../ports/secret-store.ts'
import type {SenderOptions} from './attempt.ts'
import {checkChannel, deliver} from './deliver.ts'
import {findKind} from './kinds.ts'

interface ChannelsOptions extends SenderOptions {
  readonly store: Pick<SecretStore, 'sealedSecrets'>
  readonly vault: Pick<SecretVault, 'open'>
}

export function openChannels({store, vault, ...options}: ChannelsOptions): NoticeChannels {
  const prepare: NoticeChannels['prepare'] = async ({kind, config}) => {
    const names = secretsOfConfig(config)
    const sealed = names.length === 0 ? [] : await store.sealedSecrets(names)
    // A secret that cannot be opened counts as one that does not exist.
    const opened = sealed.map(({name, ciphertext}) => [name, vault.open(name, ciphertext)] as const)
    const secrets = Object.fromEntries(
      opened.filter((each): each is readonly [string, string] => each[1] !== null),
    )
    return (message, signal) => deliver({kind, config, secrets}, message, {...options, signal})
  }
  return {
    kind: (name) => findKind(name) ?? null,
    check: checkChannel,
    prepare,
    send: async (channel, message, signal) => (await prepare(channel))(message, signal),
  }
}
