/** All sections by store engine, in the order of a run. */
import type {Section} from './section.ts'
import {access} from './sections/access.ts'
import {bookkeeping} from './sections/bookkeeping.ts'
import {clusterBookkeeping} from './sections/cluster-bookkeeping.ts'
import {clusterEndToEnd} from './sections/cluster-end-to-end.ts'
import {clusterSizes} from './sections/cluster-sizes.ts'
import {clusterStartLag} from './sections/cluster-start-lag.ts'
import {clusterSubmits} from './sections/cluster-submits.ts'
import {clusterTakeover} from './sections/cluster-takeover.ts'
import {endToEnd} from './sections/end-to-end.ts'
import {memory} from './sections/memory.ts'
import {overload} from './sections/overload.ts'
import {sizes} from './sections/sizes.ts'
import {startLag} from './sections/start-lag.ts'
import {submits} from './sections/submits.ts'

export const SECTIONS: Readonly<Record<string, readonly Section[]>> = {
  sqlite: [endToEnd, overload, bookkeeping, submits, access, startLag, memory, sizes],
  postgres: [
    clusterEndToEnd,
    clusterBookkeeping,
    clusterSubmits,
    clusterStartLag,
    clusterSizes,
    clusterTakeover,
  ],
}
