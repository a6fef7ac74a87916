/** The health of the cluster: one word and one sentence. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {decideHealth, type HealthFacts} from '../../src/core/health.ts'
import {aNode, NOON} from '../support/fixtures.ts'

const alpha = aNode('alpha').record
const beta = aNode('beta').record
const failed = aNode('gamma').status('failed').record
const cordoned = {...beta, cordonedAt: NOON}

const FINE: HealthFacts = {
  members: [alpha, beta],
  leader: {name: 'alpha', term: 11},
  firing: 'active',
  isPausePlanned: true,
  areSubmissionsPaused: false,
  undecided: 0,
  pending: 0,
  lateMs: 0,
  waitingMs: 0,
  backupProblem: null,
  notices: {failing: [], dead: 0},
  storeMs: 3,
}
const LEADER = 'leader alpha (term 11)'

const ROWS: readonly [Partial<HealthFacts>, string][] = [
  [{}, `healthy: ${LEADER}, 2 of 2 nodes alive, nothing waits`],
  [{pending: 3, lateMs: 29_000}, `healthy: ${LEADER}, 2 of 2 nodes alive, 3 executions pending`],
  [{undecided: 6, waitingMs: 29_000}, `healthy: ${LEADER}, 2 of 2 nodes alive, 6 undecided`],
  [
    {undecided: 6, waitingMs: 55_000},
    'degraded: launches wait for a node that matches, the first for 55s',
  ],
  [
    {members: [alpha, cordoned]},
    `healthy: ${LEADER}, 2 of 2 nodes alive, 1 cordoned (beta), nothing waits`,
  ],
  [{members: [alpha, failed]}, 'degraded: 1 node failed (gamma)'],
  [
    {members: [alpha, failed, failed, failed, failed]},
    'degraded: 4 nodes failed (gamma, gamma, gamma, and 1 more)',
  ],
  [
    {firing: 'paused (all jobs)', isPausePlanned: false, lateMs: 90_000},
    'degraded: firing is paused (all jobs)',
  ],
  [
    {firing: 'paused (a until T)'},
    `healthy: ${LEADER}, 2 of 2 nodes alive, firing is paused (a until T), nothing waits`,
  ],
  [{lateMs: 90_400}, 'degraded: a planned time is 1m30s late'],
  [
    {areSubmissionsPaused: true, undecided: 1_001},
    'degraded: submissions are paused; 1001 launches wait for a decision',
  ],
  [
    {notices: {failing: ['chat', 'mail'], dead: 2}},
    'degraded: notices are not delivered over chat, mail; 2 notices of the last day could not be delivered',
  ],
  [{storeMs: 2_600}, 'degraded: the store took 3s to answer'],
  [
    {leader: null, members: [alpha, failed]},
    'down: no server leads, so nothing is launched; 1 node failed (gamma)',
  ],
  [{members: [cordoned, failed]}, 'down: no node takes work; 1 node failed (gamma)'],
  [{members: [{...alpha, runs: false}]}, 'down: no node takes work'],
]

for (const [facts, expected] of ROWS)
  test(expected, () => {
    const {status, sentence} = decideHealth({...FINE, ...facts})
    assert.equal(`${status}: ${sentence}`, expected)
  })
