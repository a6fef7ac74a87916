import assert from 'node:assert/strict'
import {test} from 'node:test'
import {systemRandom} from '../../src/platform/random.ts'

test('fractions stay in [0, 1) and are uniform, also past a refill of the block', () => {
  const random = systemRandom()
  const fractions = Array.from({length: 5000}, () => random.fraction())
  assert.ok(fractions.every((fraction) => fraction >= 0 && fraction < 1))
  assert.ok(new Set(fractions).size > 4900)
  const mean = fractions.reduce((sum, fraction) => sum + fraction, 0) / fractions.length
  assert.ok(Math.abs(mean - 0.5) < 0.05, `mean ${mean}`)
})

test('ids are URL-safe, 24 characters long and unique', () => {
  const random = systemRandom()
  const ids = Array.from({length: 1000}, () => random.id())
  assert.ok(ids.every((id) => /^[A-Za-z0-9_-]{24}$/.test(id)))
  assert.equal(new Set(ids).size, 1000)
})
