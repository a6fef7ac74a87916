/** Rules about the store itself, which servers keep in memory, and the number of the next outage. */
import {hasStoreCondition} from '../../../core/notice-sweeps.ts'
import type {StoreAlarms} from '../../../ports/store-alarms.ts'
import {identity, metaValue} from '../cluster/settings.ts'
import {all, type Query, together, type Transaction} from '../query.ts'
import {channels} from './channels.ts'
import {loadMutes} from './evaluation.ts'
import {loadRules} from './loaded-rules.ts'

/** Key of the number of the next outage; absent = 1. */
const OUTAGE = 'notice_store_outage'

export function* storeAlarms(tx: Transaction): Query<StoreAlarms> {
  const [{rules, readerOf}, stored, mutes, {clusterId}, outage] = yield* together(
    loadRules(tx),
    channels(tx),
    loadMutes(tx),
    identity(tx),
    metaValue(OUTAGE),
  )
  const asked = rules.filter((rule) => hasStoreCondition(rule) && readerOf(rule.name).seesNodes)
  const names = new Set(asked.flatMap(({definition}) => definition.to))
  return {
    rules: asked.map(({definition}) => definition),
    channels: stored.filter(({name, enabled}) => enabled && names.has(name)),
    mutes,
    clusterId,
    outage: Number(outage ?? 1),
  }
}

/** Another server may have ended it already. */
export function* endStoreOutage(_tx: Transaction, outage: number): Query<void> {
  yield* all(
    `INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value
      WHERE CAST(meta.value AS bigint) = ?`,
    [OUTAGE, String(outage + 1), outage],
  )
}
