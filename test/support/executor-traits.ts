/** Traits of the executors that there are, as policies judge them. */
import type {ExecutorTraits} from '../../src/core/access/policy.ts'
import {createExecutors} from '../../src/executors/registry.ts'
import {VirtualClock} from './virtual-clock.ts'

export const EXECUTOR_TRAITS: readonly ExecutorTraits[] = createExecutors({
  dataDir: '/nonexistent',
  nodeId: 'n',
  clock: new VirtualClock(),
  environment: {},
  suAllowed: [],
  allowed: [],
  netAllow: [],
  netDeny: [],
  killAfterMs: 1,
  drainMs: 1,
  spawn: 'auto',
  report: () => undefined,
}).all
