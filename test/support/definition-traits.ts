/** Traits of the executors and processors that there are, as policies judge them. */
import type {DefinitionTraits} from '../../src/core/access/policy.ts'
import {createExecutors} from '../../src/executors/registry.ts'
import {createProcessors} from '../../src/processors/registry.ts'
import {VirtualClock} from './virtual-clock.ts'

const {all: executors} = createExecutors({
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
})
const {all: processors} = createProcessors({
  dataDir: '/nonexistent',
  nodeName: 'n',
  clock: new VirtualClock(),
  logRoot: null,
  syslogUrl: null,
  warn: () => undefined,
  writeLog: () => undefined,
  runProgram: null,
})

export const DEFINITION_TRAITS: DefinitionTraits = {executors, processors}
