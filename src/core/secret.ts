/**
 * Secrets of jobs: names, limits, and references. `${secret:NAME}` in a parameter of an executor stands for a
 * value that only the node gets, with its claim. Pure; how values are stored and redacted is elsewhere.
 */
import {isFull} from './bounds.ts'
import type {JobSpec, StringMap} from './job.ts'

/** Excludes `.` and `..`: clients resolve them in a path. */
export const SECRET_NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,128}$/

/** A shorter value is found everywhere in an output, so it cannot be redacted. */
export const SECRET_LENGTH_MIN = 6
/** Holds a private key with its certificates. Each execution that names it holds it in memory. */
export const SECRET_BYTES_MAX = 8 * 1024
/** Number of secrets; with the length of a value, it bounds the reply to a claim. */
export const SECRETS_MAX = 1_000
/** All output of a job is searched for each of them. */
export const SECRETS_PER_JOB_MAX = 16

const REFERENCE = /\$\{secret:([^}]*)\}/g
const REFERENCE_START = '${secret:'

/**
 * Control characters but tab and line breaks: no output shows them as they are, so they cannot be
 * redacted.
 */
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/

/** The end of a sentence about a value, which it does not repeat; `null` = valid, if it is not too long. */
export function secretProblem(value: string): string | null {
  if (value.trim().length < SECRET_LENGTH_MIN)
    return (
      `must have at least ${SECRET_LENGTH_MIN} characters, without the blanks around it. ` +
      'A shorter one cannot be redacted'
    )
  if (CONTROL.test(value))
    return 'cannot contain control characters but tabs and line breaks. Encode binary data as base64'
  return null
}

/**
 * Why a secret cannot be stored; `null` = it can. `total` are stored, encrypted with the key `usedKeyId`.
 * Without stored secrets the key may change.
 */
export function refuseSecret(
  {isNew, keyId}: {readonly isNew: boolean; readonly keyId: string},
  {total, usedKeyId}: {readonly total: number; readonly usedKeyId: string},
): 'other_key' | 'full' | null {
  if (total > 0 && usedKeyId !== keyId) return 'other_key'
  return isFull(total, SECRETS_MAX, isNew) ? 'full' : null
}

/** Path of a secret, as policies name it. */
export function secretPath(name: string): string {
  return `/v1/secrets/${name}`
}

export function hasReference(text: string): boolean {
  return text.includes(REFERENCE_START)
}

/** Names in a text, valid or not; a reference without an end is one without a name. */
export function secretsIn(text: string): readonly string[] {
  if (!hasReference(text)) return []
  const names = [...text.matchAll(REFERENCE)].map(([, name]) => name!)
  return hasReference(text.replaceAll(REFERENCE, '')) ? [...names, ''] : names
}

/** Names in the parameters of the executor, each once. */
export function secretsOf({executorConfig}: Pick<JobSpec, 'executorConfig'>): readonly string[] {
  return [...new Set(Object.values(executorConfig).flatMap(secretsIn))]
}

/** Replaces references by values. A reference without a value stays. */
export function fillSecrets(
  text: string,
  values: StringMap,
  encode: (value: string) => string = (value) => value,
): string {
  if (!hasReference(text)) return text
  return text.replaceAll(REFERENCE, (reference, name: string) => {
    const value = Object.hasOwn(values, name) ? values[name] : undefined
    return value === undefined ? reference : encode(value)
  })
}

/** Stands for the value in checks without values: a URL that is only a reference must use one. */
const SOME_URL = 'https://secret.invalid/'

/** Fills a URL. A secret that is the whole URL is taken as it is, a part of it is percent-encoded. */
export function fillUrlSecrets(text: string, values: StringMap): string {
  const [name, ...others] = secretsIn(text)
  if (name === undefined) return text
  if (others.length > 0 || text.trim() !== `\${secret:${name}}`)
    return fillSecrets(text, values, percentEncoded)
  return Object.hasOwn(values, name) ? values[name]!.trim() : SOME_URL
}

/** Encodes text for any part of a URL so that a URL parser leaves it unchanged: a parser would encode an
 * apostrophe in a query. */
export function percentEncoded(text: string): string {
  return encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  )
}
