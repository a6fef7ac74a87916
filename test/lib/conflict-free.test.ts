/** Batches without conflicts: the order of items that share a key, and items that conflict with all. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {conflictFreeBatches} from '../../src/lib/conflict-free.ts'

/** Items are texts whose letters are their keys; `*` conflicts with all. */
const batches = (...items: readonly string[]) =>
  conflictFreeBatches(items, (item) => (item === '*' ? null : [...item]))

test('items without a common key share a batch', () => {
  assert.deepEqual(batches(), [])
  assert.deepEqual(batches('a', 'b', 'cd'), [['a', 'b', 'cd']])
})

test('items with a common key follow each other', () => {
  assert.deepEqual(batches('a', 'b', 'a', 'c', 'a', 'b'), [['a', 'b', 'c'], ['a', 'b'], ['a']])
  assert.deepEqual(batches('a', 'ab', 'b', 'a'), [['a'], ['ab'], ['b', 'a']])
})

test('an item that conflicts with all is alone, and none passes it', () => {
  assert.deepEqual(batches('a', '*', 'b', 'b', '*'), [['a'], ['*'], ['b'], ['b'], ['*']])
  assert.deepEqual(batches('*', '*'), [['*'], ['*']])
})
