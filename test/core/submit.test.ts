/** Decisions about a submit: refusals in their order, parents, and the change that the audit log gets. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {JobRecord} from '../../src/core/job.ts'
import {type Ancestor, lineageOf, parentProblem, restoreProblems} from '../../src/core/parents.ts'
import {refuseSubmit, type Submission, submitChange, withOwner} from '../../src/core/submit.ts'
import {PLAIN_SPEC} from '../support/fixtures.ts'

const SPEC = {...PLAIN_SPEC, name: 'a'}
const EXISTING = {id: 7, revision: 3, spec: {...SPEC, owner: 'team-a'}} as JobRecord

function submission(fields: Partial<Submission> = {}): Submission {
  return {spec: SPEC, ifMatch: null, createOnly: false, ...fields}
}

describe('a submit', () => {
  it('is refused for its permission, then its preconditions, then its parent', () => {
    const parent = {kind: 'parent_unknown', parent: 'p'} as const
    const may = {create: false, update: false}
    const failing = submission({may, ifMatch: [1]})
    const update = {kind: 'not_allowed', capability: 'update'} as const
    assert.deepEqual(refuseSubmit(failing, EXISTING, parent), update)
    assert.deepEqual(refuseSubmit(failing, null, parent), {...update, capability: 'create'})
    const mismatch = {kind: 'precondition', revision: 3} as const
    assert.deepEqual(refuseSubmit(submission({ifMatch: [1]}), EXISTING, parent), mismatch)
    assert.deepEqual(refuseSubmit(submission(), EXISTING, parent), parent)
    assert.equal(refuseSubmit(submission(), EXISTING, null), null)
  })

  it('fails its precondition by revision, existence or another job of the name', () => {
    const revisionOf = (fields: Partial<Submission>, existing: JobRecord | null) => {
      const refusal = refuseSubmit(submission(fields), existing, null)
      return refusal?.kind === 'precondition' ? refusal.revision : 'accepted'
    }
    assert.equal(revisionOf({ifMatch: [2, 3]}, EXISTING), 'accepted')
    assert.equal(revisionOf({ifMatch: '*'}, EXISTING), 'accepted')
    assert.equal(revisionOf({ifMatch: '*'}, null), null)
    assert.equal(revisionOf({createOnly: true}, EXISTING), 3)
    assert.equal(revisionOf({createOnly: true}, null), 'accepted')
    assert.equal(revisionOf({onlyJob: 7}, EXISTING), 'accepted')
    assert.equal(revisionOf({onlyJob: 8}, EXISTING), 3)
    assert.equal(revisionOf({onlyJob: 7}, null), null)
  })

  it('without an owner keeps that of the job, and a new job gets the default', () => {
    assert.equal(withOwner(SPEC, EXISTING, 'me').owner, 'team-a')
    assert.equal(withOwner(SPEC, null, 'me').owner, 'me')
    assert.equal(withOwner({...SPEC, owner: 'x'}, EXISTING, 'me').owner, 'x')
    assert.equal(withOwner(SPEC, EXISTING).owner, '')
  })

  it('is recorded as what it changed', () => {
    const recorded = (
      existing: JobRecord | null,
      revision: number | null,
      group: number | null,
      revertsTo?: number,
    ) => {
      const change = submitChange(
        submission(revertsTo === undefined ? {} : {revertsTo}),
        existing,
        {id: 7, revision, group},
      )
      return change === null ? null : [change.action, change.detail, change.job]
    }
    assert.deepEqual(recorded(null, 1, null), ['job.create', '', {id: 7, before: null, after: 1}])
    const changed = {id: 7, before: 3, after: 4}
    assert.deepEqual(recorded(EXISTING, 4, 12), ['job.update', 'launch 12', changed])
    assert.deepEqual(recorded(EXISTING, 4, null, 2), ['job.revert', 'to revision 2', changed])
    assert.deepEqual(recorded(EXISTING, null, 12), ['job.run', 'launch 12', undefined])
    assert.equal(recorded(EXISTING, null, null), null)
  })
})

describe('a parent', () => {
  const child = {...SPEC, parentJob: 'b'}
  const ancestor = (name: string, parent: string, ephemeral = false): Ancestor => {
    return {name, parent, ephemeral}
  }

  it('exists, is not ephemeral, and is no descendant', () => {
    assert.equal(parentProblem(SPEC, [], []), null)
    assert.equal(parentProblem(child, [], [ancestor('b', 'c'), ancestor('c', '')]), null)
    const self = parentProblem({...SPEC, parentJob: 'a'}, [], [])
    assert.deepEqual(self, {kind: 'cycle', path: ['a', 'a']})
    const cycle = parentProblem(child, [], [ancestor('b', 'a'), ancestor('a', '')])
    assert.deepEqual(cycle, {kind: 'cycle', path: ['a', 'b', 'a']})
    assert.deepEqual(parentProblem(child, [], []), {kind: 'parent_unknown', parent: 'b'})
    const passing = {kind: 'ephemeral_parent', parent: 'b', dependents: ['a']}
    assert.deepEqual(parentProblem(child, [], [ancestor('b', '', true)]), passing)
    const own = {kind: 'ephemeral_parent', parent: 'a', dependents: ['x']}
    assert.deepEqual(parentProblem({...SPEC, ephemeral: true}, ['x'], []), own)
  })

  it('of a restored job may be anywhere in the file', () => {
    const check = (...specs: readonly (readonly [string, string])[]) => {
      const lineages = specs.map(([name, parentJob]) => {
        return [name, lineageOf({...SPEC, name, parentJob})] as const
      })
      return restoreProblems(
        specs.map(([name]) => name),
        new Map(lineages),
      )
    }
    assert.deepEqual(check(['a', 'b'], ['b', '']), [])
    assert.match(check(['a', 'b'])[0]!.problem, /names the parent b, which is neither/)
    assert.deepEqual(
      check(['a', 'b'], ['b', 'a']).map(({name, cycle}) => [name, cycle]),
      [
        ['a', ['a', 'b', 'a']],
        ['b', ['b', 'a', 'b']],
      ],
    )
    assert.match(check(['a', ''], ['a', ''])[0]!.problem, /duplicates/)
  })
})
