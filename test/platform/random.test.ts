import assert from 'node:assert/strict'
import {test} from 'node:test'
import {systemRandom} from '../../src/platform/random.ts'

test('dice stay in [0, 1), spread evenly, and go on past a refill', () => {
  const random = systemRandom()
  const throws = Array.from({length: 5000}, () => random.fraction())
  assert.ok(throws.every((dice) => dice >= 0 && dice < 1))
  assert.ok(new Set(throws).size > 4900)
  const mean = throws.reduce((sum, dice) => sum + dice, 0) / throws.length
  assert.ok(Math.abs(mean - 0.5) < 0.05, `mean ${mean}`)
})

test('ids are URL-safe, long, and not repeated', () => {
  const random = systemRandom()
  const ids = Array.from({length: 1000}, () => random.id())
  assert.ok(ids.every((id) => /^[A-Za-z0-9_-]{24}$/.test(id)))
  assert.equal(new Set(ids).size, 1000)
})
