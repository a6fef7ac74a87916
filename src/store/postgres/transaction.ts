/** Beginning a transaction: on a server that is still the primary, at an instant of its clock. */
import {assert} from '../../lib/assert.ts'
import {ConnectionLost} from './errors.ts'
import type {Session} from './connection.ts'

/** The store's time by the server's: the same, but for a test that turns it. */
export type StoreTime = (serverNow: number) => number

export type Isolation = 'READ COMMITTED' | 'REPEATABLE READ READ ONLY'

/**
 * One round trip. Answers the store's now, ms since the epoch. Throws `ConnectionLost` when the server has
 * become a standby, which would answer reads with what was.
 */
export async function beginTransaction(
  session: Session,
  isolation: Isolation,
  time: StoreTime,
): Promise<number> {
  const results = await session.run(`BEGIN ISOLATION LEVEL ${isolation};
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
      pg_is_in_recovery() AS is_standby`)
  const row = results[1]?.rows[0] as unknown as {now: number; is_standby: boolean} | undefined
  // A row's columns are only known here, where the statement stands.
  assert(row !== undefined, 'a server says what time it is')
  if (row.is_standby) {
    session.destroy()
    throw new ConnectionLost(`${session.host.host}:${session.host.port} is a standby now`)
  }
  return time(row.now)
}
