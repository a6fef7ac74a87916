/** A primary and its synchronous standby, which swap roles with every failover. */
import {atEnd, type Owner} from '../../test/support/server-process.ts'
import {ROLE} from '../../test/support/postgres.ts'
import {until} from '../../test/support/waiting.ts'
import {Database} from './database.ts'
import type {Programs} from './programs.ts'

const DATABASE = 'belfry'
const LAUNCHED_WITHIN_MS = 60_000
const DESERTED_WITHIN_MS = 30_000

export class Pair {
  primary: Database
  standby: Database

  private constructor(primary: Database, standby: Database) {
    this.primary = primary
    this.standby = standby
  }

  /** Starts both; no commit is acknowledged before both have it. */
  static async open(owner: Owner, programs: Programs, home: string): Promise<Pair> {
    const one = await Database.prepare('one', programs, home)
    const two = await Database.prepare('two', programs, home)
    for (const database of [one, two]) atEnd(owner, () => database.kill())
    await one.initialise()
    await one.start()
    await one.query(`CREATE DATABASE ${DATABASE}`)
    await two.copy(one)
    await two.start()
    const pair = new Pair(one, two)
    await pair.synchronise()
    return pair
  }

  /** Connection string with both hosts; the order is independent of the roles. */
  get store(): string {
    const hosts = [this.primary, this.standby].map(({port}) => `127.0.0.1:${port}`).toSorted()
    return `postgres://${ROLE}@${hosts.join(',')}/${DATABASE}`
  }

  /** Makes commits wait for the connected standby. */
  async synchronise(): Promise<void> {
    await this.primary.waitFor(this.standby.name)
    await this.primary.untilSynchronous()
  }

  /**
   * Promotes the standby, whatever state the primary is in. It has no standby then: until the other follows
   * it, acknowledged writes are on one machine only.
   */
  async promote(): Promise<void> {
    await this.standby.promote()
    const {primary, standby} = this
    this.primary = standby
    this.standby = primary
  }

  /** Rebuilds the old primary, which is down, as a standby of the new one. */
  async rebuild(): Promise<void> {
    await this.standby.rewind(this.primary)
    await this.standby.start()
    await this.synchronise()
  }

  /** Belfry's connections to one server, and launch rows on it. */
  async traces(of: Database): Promise<{readonly connections: number; readonly launches: number}> {
    const [row] = await of.query(
      `SELECT (SELECT count(*)::int FROM pg_stat_activity WHERE application_name LIKE 'belfry%')
          AS connections, (SELECT count(*)::int FROM belfry.launches) AS launches`,
      DATABASE,
    )
    return row as {connections: number; launches: number}
  }

  /** Resolves when Belfry has no connection to a server, apart from commits that wait for a standby. */
  async deserted(of: Database): Promise<void> {
    const sql = `SELECT 1 AS used FROM pg_stat_activity WHERE application_name LIKE 'belfry%'
      AND wait_event IS DISTINCT FROM 'SyncRep'`
    await until(
      `Belfry has left ${of.name}`,
      async () => (await of.query(sql)).length === 0,
      DESERTED_WITHIN_MS,
    )
  }

  /** Instant of the first launch after `since` on the primary itself (both ms). */
  async launchAfter(since: number): Promise<number> {
    const sql = `SELECT min(decided_at)::float8 AS at FROM belfry.launches WHERE decided_at > ${since}`
    return await until(
      `launches at ${this.primary.name}`,
      async () => {
        const at = (await this.primary.query(sql, DATABASE))[0]!['at']
        return typeof at === 'number' && at
      },
      LAUNCHED_WITHIN_MS,
    )
  }

  /** Number of commits on the primary that wait for a standby. */
  async waiting(): Promise<number> {
    const sql = `SELECT count(*)::int AS waiting FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
    return Number((await this.primary.query(sql))[0]!['waiting'])
  }
}
