/** Statistics of executions in JSON, by day. */
import {Type, type Static} from 'typebox'
import type {DayStatistics} from '../ports/history-store.ts'
import {schemaRef, Time} from './shapes.ts'
import {formatTime} from '../lib/rfc3339.ts'

export const ExecutionStat = Type.Object(
  {
    date: Time('Midnight UTC of the day.'),
    success_count: Type.Integer({description: 'Executions of that day that succeeded.'}),
    failed_count: Type.Integer({
      description: 'Executions of that day that ended in another state.',
    }),
  },
  {$id: 'ExecutionStat', description: 'Executions of one day.'},
)
export const ExecutionStats = Type.Object(
  {stats: Type.Array(schemaRef(ExecutionStat))},
  {$id: 'ExecutionStats', description: 'One record a day, oldest first.'},
)
export type ExecutionStatsJson = Static<typeof ExecutionStats>

export function encodeStatistics(days: readonly DayStatistics[]): ExecutionStatsJson {
  return {
    stats: days.map((day) => ({
      date: formatTime(day.date),
      success_count: day.successCount,
      failed_count: day.failedCount,
    })),
  }
}
