/** Target selection: tags with and without counts, no tags, and an even spread by load. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {sentenceOf} from '../../src/core/findings.ts'
import {matchTargets, parseTag, selectTargets} from '../../src/core/target.ts'
import {aNode, type NodeFixture} from '../support/fixtures.ts'
import {SeededRandom} from '../support/seeded-random.ts'

describe('a tag value', () => {
  const read: readonly [text: string, value: string, count: number | null][] = [
    ['web', 'web', null],
    ['web:1', 'web', 1],
    ['web:12', 'web', 12],
    ['web:007', 'web', 7],
    ['', '', null],
    ['a:b', 'a:b', null],
    ['a:b:2', 'a:b', 2],
    ['http://host:8080', 'http://host', 8080],
    ['::1', ':', 1],
    ['web:1e3', 'web:1e3', null],
    ['web:+1', 'web:+1', null],
    ['web: 1', 'web: 1', null],
    ['two\nlines:2', 'two\nlines', 2],
  ]
  for (const [text, value, count] of read) {
    it(`${JSON.stringify(text)} → ${JSON.stringify(value)}, count ${count}`, () => {
      assert.deepEqual(parseTag('role', text), {ok: true, value, count})
    })
  }

  for (const text of ['web:0', 'web:-1', 'web:1.5', 'web:', 'web:99999999999999999999']) {
    it(`${JSON.stringify(text)} is rejected with the tag and the fix`, () => {
      const rule = parseTag('role', text)
      assert.ok(!rule.ok)
      assert.match(sentenceOf(rule.fault), /^tags\.role: .*positive integer.*"web:1"/)
    })
  }
})

describe('a tag that no node can have', () => {
  for (const [key, text, problem] of [
    ['', 'v', /^tags: the name of a tag must not be empty$/],
    ['disk', ':2', /^tags\.disk: needs a value before the count, as in "ssd:2"$/],
  ] as const)
    it(`${JSON.stringify({[key]: text})} is rejected`, () => {
      const rule = parseTag(key, text)
      assert.ok(!rule.ok)
      assert.match(sentenceOf(rule.fault), problem)
    })
})

describe('the nodes that match', () => {
  const web = aNode('web').tagged({role: 'web', zone: 'north'}).candidate
  const both = aNode('both').tagged({role: 'web', zone: 'south'}).candidate
  const mail = aNode('mail').tagged({role: 'mail'}).candidate
  const ours = aNode('ours').tagged({role: 'belfry'}).candidate
  const all = [web, both, mail, ours]
  const table: readonly [tags: Record<string, string>, names: string[], count: number | null][] = [
    [{}, ['web', 'both', 'mail', 'ours'], 1],
    [{role: 'web'}, ['web', 'both'], null],
    [{role: 'dkron'}, ['ours'], null],
    [{role: 'dkron:1'}, ['ours'], 1],
    [{role: 'belfry'}, ['ours'], null],
    [{zone: 'dkron'}, [], null],
    [{role: 'web', zone: 'south'}, ['both'], null],
    [{role: 'web:1'}, ['web', 'both'], 1],
    [{role: 'web:3', zone: 'north:2'}, ['web'], 2],
    [{role: 'web:2', zone: 'north'}, ['web'], 2],
    [{role: 'nobody'}, [], null],
    [{role: 'mail', zone: 'north'}, [], null],
    [{toString: 'x'}, [], null],
    [{role: 'web:0'}, [], null],
    [{Role: 'web'}, [], null],
  ]
  for (const [tags, names, count] of table) {
    it(`${JSON.stringify(tags)} → ${names.join(', ') || 'none'}, count ${count}`, () => {
      const matched = matchTargets(tags, all, 'one')
      assert.deepEqual([matched.nodes.map(({name}) => name), matched.count], [names, count])
    })
  }

  it('are all nodes for a job without tags, if the cluster is set to all', () => {
    assert.deepEqual(matchTargets({}, all, 'all'), {nodes: all, count: null})
  })
})

describe('the selection of targets', () => {
  function choose(
    nodes: readonly NodeFixture[],
    tags: Record<string, string> = {},
    loads = new Map<string, number>(),
    random = new SeededRandom(5),
  ): string[] {
    const candidates = nodes.map(({candidate}) => candidate)
    return selectTargets(tags, candidates, 'one', loads, () => random.fraction()).map(
      ({name}) => name,
    )
  }

  it('is empty without nodes', () => assert.deepEqual(choose([]), []))

  it('prefers the lowest load per slot', () => {
    const big = aNode('big').slots(100).loaded(10)
    const small = aNode('small').slots(2).loaded(1)
    assert.deepEqual(choose([small, big]), ['big'])
  })

  it('handles a node with 0 slots', () => {
    assert.deepEqual(choose([aNode('none').slots(0).loaded(1), aNode('free')]), ['free'])
  })

  it('is every matching node without a count or with a larger count', () => {
    const nodes = ['a', 'b', 'c'].map((name) => aNode(name).tagged({role: 'web'}))
    assert.deepEqual(choose(nodes, {role: 'web'}), ['a', 'b', 'c'])
    assert.deepEqual(choose(nodes, {role: 'web:9'}).toSorted(), ['a', 'b', 'c'])
    assert.equal(new Set(choose(nodes, {role: 'web:2'})).size, 2)
  })

  it('spreads a batch evenly by counting its own selections', () => {
    const nodes = ['a', 'b', 'c', 'd'].map((name) => aNode(name).slots(8))
    const loads = new Map<string, number>()
    const random = new SeededRandom(11)
    const chosen = new Map<string, number>()
    for (let launch = 0; launch < 100; launch += 1) {
      const [name] = choose(nodes, {}, loads, random)
      chosen.set(name!, (chosen.get(name!) ?? 0) + 1)
    }
    assert.deepEqual([...chosen.values()], [25, 25, 25, 25])
    assert.deepEqual([...loads.values()], [25, 25, 25, 25])
  })

  it('fills an idle node first', () => {
    const nodes = [aNode('busy').slots(8).loaded(6), aNode('idle').slots(8)]
    const loads = new Map<string, number>()
    const names = Array.from({length: 6}, () => choose(nodes, {}, loads)[0])
    assert.deepEqual(names, Array(6).fill('idle'))
  })

  it('breaks ties at random: no position is favoured', () => {
    const nodes = ['a', 'b', 'c'].map((name) => aNode(name))
    const random = new SeededRandom(3)
    const chosen = {a: 0, b: 0, c: 0} as Record<string, number>
    for (let launch = 0; launch < 600; launch += 1) {
      for (const name of choose(nodes, {}, new Map(), random)) chosen[name]! += 1
    }
    for (const times of Object.values(chosen)) assert.ok(times > 150 && times < 250, `${times}`)
  })
})
