/** People of a provider: what their groups grant, where groups are, and names. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {type GroupGrant, groupsIn, personName, rightsOf} from '../../../src/core/access/person.ts'

const GRANTS: readonly GroupGrant[] = [
  {group: 'all', grant: 'read'},
  {group: 'a', grant: {policy: 'team-a'}},
  {group: 'b', grant: {policy: 'team-b'}},
  {group: 'a', grant: {policy: 'team-a'}},
  {group: 'ops', grant: 'management'},
]

test('groups grant together the most, and nothing without a mapped one', () => {
  const textOf = (...groups: string[]) => {
    const rights = rightsOf(groups, GRANTS)
    return rights === null ? 'nothing' : [rights.kind, ...rights.policies].join(' ')
  }
  assert.equal(textOf(), 'nothing')
  assert.equal(textOf('x', 'OPS', ' ops', '__proto__', ''), 'nothing')
  assert.equal(textOf('all', 'x'), 'read')
  assert.equal(textOf('x', 'b', 'a'), 'client team-a team-b')
  assert.equal(textOf('all', 'b'), 'client team-b read everything')
  assert.equal(textOf('all', 'a', 'ops'), 'management')
})

test('groups are a list or one text, under a name or a path', () => {
  const claims = {
    groups: ['a', 7, null, 'b'],
    role: 'ops',
    'https://example.org/groups': ['c'],
    realm: {roles: ['d']},
    odd: {a: 1},
  }
  assert.deepEqual(groupsIn(claims, 'groups'), ['a', 'b'])
  assert.deepEqual(groupsIn(claims, 'role'), ['ops'])
  assert.deepEqual(groupsIn(claims, 'https://example.org/groups'), ['c'])
  assert.deepEqual(groupsIn(claims, 'realm.roles'), ['d'])
  assert.deepEqual(groupsIn(claims, 'odd'), [])
  for (const claim of ['none', 'realm.none', 'groups.x.y', 'role.length', 'constructor.name'])
    assert.equal(groupsIn(claims, claim), null, claim)
})

test('a name is a verified address, a user name or the subject, on one line', () => {
  const sub = 's-1'
  const preferred_username = 'ann'
  const email = 'ann@example.org'
  assert.equal(personName({sub, preferred_username, email}), email)
  assert.equal(personName({sub, preferred_username, email, email_verified: true}), email)
  for (const email_verified of [false, 'false'])
    assert.equal(personName({sub, preferred_username, email, email_verified}), 'ann')
  assert.equal(personName({sub, email: 7, preferred_username: ' '}), sub)
  assert.equal(personName({sub: 'a\nb\u001b[31m\u202ec\u2028'}), 'ab[31mc')
  assert.equal(personName({sub: '😀'.repeat(200)}), '😀'.repeat(128))
  assert.equal(personName({}), 'unnamed')
})
