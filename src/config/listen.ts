/** Settings of a listen address: its certificate, and what it needs before other machines may reach it. */
import {createPrivateKey, X509Certificate} from 'node:crypto'
import {createSecureContext} from 'node:tls'
import {messageOf} from '../lib/error.ts'
import {type Host, ParseError, type RawSetting, readSettingFile} from './read.ts'
import type {Address} from './values.ts'

/** PEM texts. */
export interface TlsTexts {
  readonly cert: string
  readonly key: string
  /** End of the certificate, in ms since the epoch. Its authorities' certificates may end earlier. */
  readonly expiresAt: number
}

export interface Exposure {
  readonly address: Address
  readonly token: string | null
  readonly tls: TlsTexts | null
  readonly insecure: boolean
}

/** Names of the flags, for errors. */
export interface ListenFlags {
  readonly address: string
  readonly token: string
  readonly cert: string
  readonly key: string
  readonly insecure: string
}

/** Throws `ParseError` if other machines could connect without a token, or with one in clear text. */
export function rejectExposed({address, token, tls, insecure}: Exposure, flags: ListenFlags): void {
  if (address.loopback) return
  const host = address.host.includes(':') ? `[${address.host}]` : address.host
  const setting = `${flags.address} ${host}:${address.port}`
  const fix =
    `To serve other machines, set ${flags.token} and either ${flags.cert} and ${flags.key}, ` +
    `or ${flags.insecure} if a proxy terminates TLS.`
  if (token === null)
    throw new ParseError(
      `${setting} requires a token: other machines can reach this address. ${fix}`,
    )
  if (tls === null && !insecure)
    throw new ParseError(`${setting} requires TLS: the token would be sent in clear text. ${fix}`)
}

/** Certificate and key from their files; `null` = neither is set. */
export function readTls(
  certFile: RawSetting | undefined,
  keyFile: RawSetting | undefined,
  flags: Pick<ListenFlags, 'cert' | 'key'>,
  host: Host,
): TlsTexts | null {
  if (certFile === undefined && keyFile === undefined) return null
  if (certFile === undefined) throw new ParseError(`${flags.key} requires ${flags.cert}.`)
  if (keyFile === undefined) throw new ParseError(`${flags.cert} requires ${flags.key}.`)
  const cert = readSettingFile(certFile, host)
  const key = readSettingFile(keyFile, host)
  try {
    createSecureContext({cert, key})
    // OpenSSL accepts empty texts.
    const certificate = new X509Certificate(cert)
    if (!certificate.checkPrivateKey(createPrivateKey(key)))
      throw new Error('they do not belong together')
    return {cert, key, expiresAt: certificate.validToDate.getTime()}
  } catch (error) {
    throw new ParseError(
      `The certificate in ${certFile.texts[0]} and the key in ${keyFile.texts[0]} cannot be used: ` +
        `${messageOf(error)}. ` +
        `Set ${flags.cert} and ${flags.key} to PEM files that belong together.`,
      {cause: error},
    )
  }
}
