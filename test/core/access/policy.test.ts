/** Policy rules: which texts are valid documents. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {globProblem, readRules} from '../../../src/core/access/policy.ts'

const NO_LIMITS = {executors: null, su: null, tags: null}
const rules = (path: unknown) => readRules(JSON.stringify({path}))

test('a rules document is parsed glob by glob', () => {
  const reading = rules({
    '/v1/jobs/team-a-*': {capabilities: ['create', 'read']},
    '/v1/**': {capabilities: ['deny']},
  })
  assert.deepEqual(reading, {
    ok: true,
    rules: [
      {glob: '/v1/jobs/team-a-*', capabilities: ['create', 'read']},
      {glob: '/v1/**', capabilities: ['deny']},
    ],
    limits: NO_LIMITS,
  })
  assert.deepEqual(rules({}), {ok: true, rules: [], limits: NO_LIMITS})
})

test('one invalid part rejects the whole document', () => {
  const wrong: unknown[] = [
    null,
    [],
    'x',
    {'/v1': null},
    {'/v1': {}},
    {'/v1': {capabilities: []}},
    {'/v1': {capabilities: 'read'}},
    {'/v1': {capabilities: ['sudo']}},
    {'/v1': {capabilities: ['read'], more: 1}},
    {'/v1': {capabilities: ['read']}, v1: {capabilities: ['read']}},
    Object.fromEntries(Array.from({length: 1_001}, (_, i) => [`/${i}`, {capabilities: ['read']}])),
  ]
  for (const path of wrong) assert.equal(rules(path).ok, false, JSON.stringify(path).slice(0, 80))
  for (const text of ['', '{', '[]', '1', '{}', '{"path":{},"more":1}'])
    assert.equal(readRules(text).ok, false, text)
})

test('limits are lists of texts, and absent ones do not limit', () => {
  const limited = readRules(
    '{"path": {}, "executors": ["http"], "su": ["", "deploy"], "tags": {"team": ["a", "b-*"]}}',
  )
  assert.deepEqual(limited, {
    ok: true,
    rules: [],
    limits: {executors: ['http'], su: ['', 'deploy'], tags: [['team', ['a', 'b-*']]]},
  })
  const wrong = [
    {executors: []},
    {executors: 'shell'},
    {executors: null},
    {su: [1]},
    {tags: []},
    {tags: {team: 'a'}},
    {tags: {team: []}},
    {tags: {team: null}},
    {su: Array.from({length: 101}, () => 'x')},
  ]
  for (const limits of wrong)
    assert.equal(readRules(JSON.stringify({path: {}, ...limits})).ok, false, JSON.stringify(limits))
})

test('globs are absolute paths with * and **', () => {
  for (const glob of ['/', '/v1/jobs', '/v1/*/executions', '/v1/**', '/v1/**/x', '/v1/a-*-b'])
    assert.equal(globProblem(glob), null, glob)
  for (const glob of ['', 'v1', '/v1/', '/v1//x', '/v1/a**', '/v1/../x', `/${'x'.repeat(600)}`])
    assert.notEqual(globProblem(glob), null, glob)
})
