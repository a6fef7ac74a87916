/** State of the cluster as the metrics show it, read from the store for each scrape. */
import {backupProblem} from '../core/backup.ts'
import type {Clock} from '../ports/runtime.ts'
import type {Store} from '../ports/store.ts'
import {boundedCount} from './bounded-count.ts'
import type {ClusterState} from './cluster-metrics.ts'

export interface StateOptions {
  readonly store: Pick<Store, 'usage' | 'submissionsPaused' | 'backupState'>
  readonly clock: Clock
  readonly usage: Parameters<Store['usage']>[0]
  /** This server makes scheduled backups. */
  readonly makesBackups: boolean
}

export function clusterStateOf(
  {store, clock, usage: request, makesBackups}: StateOptions,
  totals: () => ReturnType<Store['totals']>,
): () => Promise<ClusterState> {
  const usage = boundedCount(store, clock, () => store.usage(request))
  return async () => {
    const [counts, used, isPaused, stored] = await Promise.all([
      totals(),
      usage(),
      store.submissionsPaused(),
      makesBackups ? store.backupState() : null,
    ])
    return {...counts, ...used, isPaused, backups: stored === null ? null : backupsOf(stored)}
  }
}

function backupsOf({now, state}: Awaited<ReturnType<Store['backupState']>>) {
  return {lastAt: state?.lastAt ?? null, hasProblem: backupProblem(state, now) !== null}
}
