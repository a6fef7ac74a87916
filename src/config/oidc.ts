/** Settings of the sign-in through an OpenID Connect provider, as one checked value. */
import type {GroupGrant} from '../core/access/person.ts'
import {type Host, ParseError, type RawSetting, readSettingFile} from './read.ts'

export interface OidcConfig {
  readonly issuer: string
  readonly clientId: string
  /** `null` = the provider knows this client as public. */
  readonly clientSecret: string | null
  readonly scope: string
  readonly groupsClaim: string
  readonly grants: readonly GroupGrant[]
  /** Origin at which browsers reach the servers. */
  readonly publicUrl: string
}

const OF_PROVIDER = ['oidc-client-id', 'oidc-client-secret-file', 'oidc-map'] as const

/** The part of the settings that is read here. */
export interface OidcValues {
  one(
    name: 'oidc-issuer' | 'oidc-client-id' | 'oidc-scope' | 'oidc-groups-claim' | 'public-url',
  ): string | undefined
  many(name: 'oidc-map'): readonly GroupGrant[]
  raw(name: (typeof OF_PROVIDER)[number]): RawSetting | undefined
}

/** `null` = no provider. Throws `ParseError`. */
export function oidcConfig(values: OidcValues, host: Host): OidcConfig | null {
  const issuer = values.one('oidc-issuer')
  if (issuer === undefined) {
    const useless = OF_PROVIDER.find((name) => values.raw(name) !== undefined)
    if (useless === undefined) return null
    throw new ParseError(`--${useless} requires --oidc-issuer.`)
  }
  const clientId = values.one('oidc-client-id')
  const publicUrl = values.one('public-url')
  const grants = values.many('oidc-map')
  if (clientId === undefined) throw new ParseError('--oidc-issuer requires --oidc-client-id.')
  if (publicUrl === undefined)
    throw new ParseError(
      '--oidc-issuer requires --public-url: the provider sends browsers back to it.',
    )
  if (grants.length === 0)
    throw new ParseError(
      '--oidc-issuer requires --oidc-map: without it, no person may sign in. ' +
        "Write --oidc-map 'ops=management'.",
    )
  const scope = values.one('oidc-scope')!
  if (!scope.split(' ').includes('openid'))
    throw new ParseError('--oidc-scope must contain openid: without it, providers name no person.')
  return {
    issuer,
    clientId,
    clientSecret: secretOf(values.raw('oidc-client-secret-file'), host),
    scope,
    groupsClaim: values.one('oidc-groups-claim')!,
    grants,
    publicUrl,
  }
}

function secretOf(file: RawSetting | undefined, host: Host): string | null {
  if (file === undefined) return null
  const secret = readSettingFile(file, host).replace(/\r?\n$/, '')
  if (!/^[\x21-\x7e]+$/.test(secret))
    throw new ParseError(
      `The secret in ${file.texts[0]} must be printable ASCII without spaces, and not empty.`,
    )
  return secret
}
