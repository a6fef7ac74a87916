/**
 * What a step is told about the transaction it runs in: the store's instant and where the engines differ.
 * Plain data and texts, so that a step stays the same on every engine.
 */
import type {Step} from './query.ts'

/** Names of the sequences numbers are taken from. */
export type Sequence = 'job' | 'launch'

/** The few places where two SQL engines do not agree. */
export interface Dialect {
  readonly engine: 'sqlite' | 'postgres'
  /** Appended to a select that locks the rows it answers; `''` where a writer is alone anyway. */
  readonly forUpdate: string
  /** Appended to the select of the leader's term: not blocked by a renewal, blocked by a takeover. */
  readonly forKeyShare: string
  /** Column types of the migrations. */
  readonly columns: {readonly integer: string; readonly text: string; readonly bytes: string}
  /** Appended to `CREATE TABLE` of tables that are only looked up by their key. */
  readonly keyOrganised: string
  /** Creates a sequence that starts at 1. */
  createSequence(name: Sequence): string
  /** `count` growing numbers never handed out before, nor after a restart. */
  takeNumbers(name: Sequence, count: number): Step<number[]>
  /** Makes a sequence leave out at least `count` numbers. */
  skipNumbers(name: Sequence, count: number): Step<void>
}

/** Sizes the steps obey; from configuration. */
export interface StoreLimits {
  /** Last bytes of each execution's output that are kept. */
  readonly outputKeptBytes: number
}

export interface Transaction {
  /** The store's clock, ms since the epoch: one instant for the whole transaction. */
  readonly now: number
  readonly dialect: Dialect
  readonly limits: StoreLimits
}

export const DEFAULT_LIMITS: StoreLimits = {outputKeptBytes: 256 * 1024}
