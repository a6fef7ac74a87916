/** Context of one launch pass, with the default limits of a server unless a test changes them. */
import type {PassContext} from '../../src/core/launch.ts'
import {aNode, NOON, type NodeFixture} from './fixtures.ts'
import {SeededRandom} from './seeded-random.ts'

export function aPass(
  changes: Partial<Omit<PassContext, 'candidates'>> & {nodes?: readonly NodeFixture[]} = {},
): PassContext {
  const random = new SeededRandom(1)
  const {nodes = [aNode()], ...others} = changes
  return {
    now: NOON,
    defaultZone: 'UTC',
    pauses: [],
    defaultTarget: 'one',
    lateAfterMs: 30_000,
    targetWaitMs: 600_000,
    catchUpMax: 100,
    queuedMax: 100,
    candidates: nodes.map(({candidate}) => candidate),
    loads: new Map(),
    opened: new Map(),
    random: () => random.fraction(),
    ...others,
  }
}
