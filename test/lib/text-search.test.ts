/** Search for many texts at once: against a search for each of them at each place. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {START, TextSearch} from '../../src/lib/text-search.ts'
import {SeededRandom} from '../support/seeded-random.ts'

function built(texts: readonly string[]): {search: TextSearch; steps: number} {
  const building = TextSearch.build(texts.map((text) => Buffer.from(text)))
  for (let steps = 1; ; steps++) {
    const {done, value} = building.next()
    if (done === true) return {search: value, steps}
  }
}

describe('a search for many texts', () => {
  it('finds the longest text that ends at each place, and knows what may follow', () => {
    const random = new SeededRandom(9)
    const below = (limit: number) => Math.floor(random.fraction() * limit)
    for (let round = 0; round < 1_000; round++) {
      const text = (length: number) =>
        Array.from({length}, () => 'abc'[below(1 + (round % 3))]).join('')
      const texts = Array.from({length: 1 + below(6)}, () => text(1 + below(8)))
      const stream = text(40)
      const {search} = built(texts)
      let state = START
      for (let end = 1; end <= stream.length; end++) {
        const before = stream.slice(0, end)
        const ends = texts.filter((each) => before.endsWith(each)).map(({length}) => length)
        let found = 0
        state = search.search(Buffer.from(stream[end - 1]!), state, (_, length) => (found = length))
        assert.equal(found, Math.max(0, ...ends), `${texts.join()} in ${before}`)
        const begins = texts.flatMap((each) =>
          Array.from({length: each.length}, (_, length) => each.slice(0, length)),
        )
        const held = begins.filter((each) => before.endsWith(each)).map(({length}) => length)
        assert.equal(search.depthOf(state), Math.max(...held), `${texts.join()} after ${before}`)
      }
    }
  })

  it('finds texts of any bytes', () => {
    const texts = [Buffer.of(0), Buffer.of(0, 0, 255), Buffer.of(255, 0), Buffer.of(1, 0)]
    const search = TextSearch.build(texts).next().value!
    const found: (readonly [end: number, length: number])[] = []
    search.search(Buffer.of(7, 255, 0, 0, 255, 1, 0), START, (...each) => found.push(each))
    assert.deepEqual(found, [
      [3, 2],
      [4, 1],
      [5, 3],
      [7, 2],
    ])
  })

  it('stores common beginnings once', () => {
    const texts = Array.from({length: 16}, (_, index) => 'a'.repeat(7_000 + index))
    assert.equal(built(texts).search.size, 1 + 7_015)
  })

  it('is built in steps', () => {
    assert.equal(built(['password']).steps, 1)
    const texts = Array.from({length: 16}, (_, index) => `${index}`.repeat(8_000))
    assert.ok(built(texts).steps > 8)
  })
})
