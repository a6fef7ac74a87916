/** Warnings about the durability of a database, from simulated replies. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {readDurability} from '../../../src/store/postgres/durability.ts'
import type {Row} from '../../../src/store/sql/query.ts'

const SETTINGS = {
  server_version: '18.1',
  fsync: 'on',
  full_page_writes: 'on',
  synchronous_commit: 'on',
  synchronous_standby_names: '',
  data_checksums: 'on',
}

/** The durability of a database with these settings and standbys; `hosts` is their number in the address. */
function factsOf(hosts: number, settings: Row, standbys: readonly (string | null)[]) {
  const answers: Row[][] = [
    [{version: 1}],
    [{...SETTINGS, ...settings}],
    standbys.map((state, index) => ({pid: index, sync_state: state})),
  ]
  const steps = readDurability(hosts)
  let step = steps.next()
  while (step.done !== true) step = steps.next(answers.shift())
  return step.value
}

const NAMED = {synchronous_standby_names: 'ANY 1 (b, c)'}

describe('a warning', () => {
  const rows: readonly (readonly [
    what: string,
    hosts: number,
    settings: Row,
    standbys: readonly (string | null)[],
    warning: RegExp | null,
  ])[] = [
    ['one host without standbys', 1, {}, [], null],
    ['a standby that is asynchronous', 1, {}, ['async'], /^the standbys are asynchronous: /],
    [
      'two hosts, and the standby asynchronous',
      2,
      {},
      ['async'],
      /^the standbys are asynchronous: /,
    ],
    ['two hosts without a standby', 2, {}, [], /^no standby is connected, though --store names 2 /],
    ['a standby wanted, and none there', 2, NAMED, [], /^no synchronous standby is connected: /],
    ['a standby that is synchronous', 2, NAMED, ['quorum', 'async'], null],
    ['standbys this role may not see', 2, NAMED, [null], null],
    ['no fsync', 1, {fsync: 'off'}, [], /fsync off/],
    ['no full pages', 1, {full_page_writes: 'off'}, [], /full_page_writes off/],
  ]
  for (const [what, hosts, settings, standbys, warning] of rows)
    it(`${warning === null ? 'is not given' : 'is given'}: ${what}`, () => {
      const {warnings} = factsOf(hosts, settings, standbys)
      assert.equal(warnings.length, warning === null ? 0 : 1, warnings.join('\n'))
      if (warning !== null) assert.match(warnings[0]!, warning)
    })
})
