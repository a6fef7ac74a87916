/**
 * Secrets of jobs: ciphertexts, and the fingerprint of the key that all of them are encrypted with. Without
 * secrets, the key may change.
 */
import {type Actor, BELFRY} from '../../../core/audit.ts'
import {refuseSecret} from '../../../core/secret.ts'
import type {
  NewSecret,
  PutSecretResult,
  SealedSecret,
  SecretKeyCheck,
  SecretRecord,
} from '../../../ports/secret-store.ts'
import {recordChange, recordChanges} from './audit.ts'
import {all, one, oneEach, type Query, type Transaction} from '../query.ts'
import {metaValue, putMeta} from '../cluster/settings.ts'

/** Fingerprint of the key. */
const KEY = 'secret_key'

interface SecretRow {
  readonly name: string
  readonly set_at: number
  readonly set_by: string
}

function secretOf({name, set_at: setAt, set_by: setBy}: SecretRow): SecretRecord {
  return {name, setAt, setBy}
}

export function* secrets(_tx: Transaction): Query<readonly SecretRecord[]> {
  const rows = yield* all<SecretRow>(`SELECT name, set_at, set_by FROM secrets ORDER BY name`)
  return rows.map(secretOf)
}

export function* sealedSecrets(
  _tx: Transaction,
  names: readonly string[],
): Query<readonly SealedSecret[]> {
  const rows = yield* oneEach<SealedSecret>(
    `SELECT name, ciphertext FROM secrets WHERE name = ?`,
    names.map((name) => [name]),
  )
  return rows.filter((row) => row !== null).map(({name, ciphertext}) => ({name, ciphertext}))
}

export function* putSecret(
  tx: Transaction,
  {name, ciphertext, keyId, may}: NewSecret,
  actor: Actor = BELFRY,
): Query<PutSecretResult> {
  const usedKeyId = yield* lockKey(keyId)
  const counted = yield* one<{total: number; same: number}>(
    `SELECT count(*) AS total, count(CASE WHEN name = ? THEN 1 END) AS same FROM secrets`,
    [name],
  )
  const {total, same} = counted!
  const setBy = actor.name
  const capability = same === 0 ? 'create' : 'update'
  if (!may[capability]) return {kind: 'not_allowed', capability}
  const refusal = refuseSecret({isNew: same === 0, keyId}, {total, usedKeyId})
  if (refusal !== null) return {kind: refusal}
  if (usedKeyId !== keyId) yield* putMeta(KEY, keyId)
  yield* all(
    `INSERT INTO secrets (name, ciphertext, set_at, set_by) VALUES (?, ?, ?, ?)
      ON CONFLICT (name) DO UPDATE SET ciphertext = excluded.ciphertext, set_at = excluded.set_at,
      set_by = excluded.set_by`,
    [name, ciphertext, tx.now, setBy],
  )
  const detail = same === 0 ? 'new' : 'replaced'
  yield* recordChange(tx, {actor, action: 'secret.set', targetType: 'secret', target: name, detail})
  return {kind: 'stored', secret: {name, setAt: tx.now, setBy}, created: same === 0}
}

/**
 * The fingerprint in use, `keyId` if there was none. Its row makes changes of several servers follow each
 * other.
 */
function* lockKey(keyId: string): Query<string> {
  const row = yield* one<{value: string}>(
    `INSERT INTO meta (key, value) VALUES (?, ?)
      ON CONFLICT (key) DO UPDATE SET value = meta.value RETURNING value`,
    [KEY, keyId],
  )
  return row!.value
}

export function* deleteSecret(
  tx: Transaction,
  name: string,
  actor?: Actor,
): Query<SecretRecord | null> {
  const row = yield* one<SecretRow>(
    `DELETE FROM secrets WHERE name = ? RETURNING name, set_at, set_by`,
    [name],
  )
  if (row === null) return null
  yield* recordChange(tx, {actor, action: 'secret.delete', targetType: 'secret', target: name})
  return secretOf(row)
}

export function* discardSecrets(tx: Transaction): Query<readonly string[]> {
  const rows = yield* all<SecretRow>(`DELETE FROM secrets RETURNING name, set_at, set_by`)
  const names = rows.map(({name}) => name).toSorted()
  const detail = 'the key was lost'
  yield* recordChanges(
    tx,
    names.map((target) => ({action: 'secret.delete', targetType: 'secret', target, detail})),
  )
  return names
}

export function* checkSecretKey(_tx: Transaction, keyId: string | null): Query<SecretKeyCheck> {
  const found = yield* one(`SELECT 1 AS found FROM secrets LIMIT 1`)
  if (found === null) return 'ok'
  if (keyId === null) return 'missing'
  return (yield* metaValue(KEY)) === keyId ? 'ok' : 'other_key'
}
