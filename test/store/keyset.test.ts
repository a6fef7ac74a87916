/** Pages of a list by keyset: complete, within their limits, not shifted by rows that are added. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import type {KeysetPage, Order, Position} from '../../src/ports/page.ts'
import {type KeysetList, keysetPage} from '../../src/store/sql/keyset.ts'
import {Connection} from '../../src/store/sqlite/connection.ts'

interface Item {
  readonly at: number
  readonly id: number
}

/** Items 1 to `count`, two of each instant. */
function itemsIn(connection: Connection, count: number): void {
  connection.execute('CREATE TABLE items (at INTEGER, id INTEGER)')
  for (let id = 1; id <= count; id += 1)
    connection.execute(`INSERT INTO items VALUES (${Math.floor(id / 2)}, ${id})`)
}

function listOf(order: Order, fields: Partial<KeysetList> = {}): KeysetList {
  return {columns: 'at, id', from: 'items', where: '1 = 1', key: ['at', 'id'], order, ...fields}
}

/** Ids of each page, and what happens between two pages. */
function pagesOf(
  connection: Connection,
  list: KeysetList,
  limit: number,
  between: () => void = () => {},
): number[][] {
  const pages: number[][] = []
  for (let after: Position | null = null; ; between()) {
    const {items, next}: KeysetPage<Item> = connection.run(keysetPage<Item>(list, {after, limit}))
    pages.push(items.map(({id}) => id))
    if (next === null) return pages
    after = next
  }
}

describe('pages by keyset', () => {
  const opened = (count: number) => {
    const connection = new Connection(':memory:', {readOnly: false})
    itemsIn(connection, count)
    return connection
  }

  it('have each row once, in order, and end with the last row', () => {
    const connection = opened(7)
    assert.deepEqual(pagesOf(connection, listOf('desc'), 3), [[7, 6, 5], [4, 3, 2], [1]])
    assert.deepEqual(pagesOf(connection, listOf('asc'), 3), [[1, 2, 3], [4, 5, 6], [7]])
    assert.deepEqual(pagesOf(connection, listOf('desc'), 7), [[7, 6, 5, 4, 3, 2, 1]])
    assert.deepEqual(pagesOf(connection, listOf('desc', {where: 'id > 7'}), 3), [[]])
    connection.close()
  })

  it('are not shifted by rows that are added', () => {
    const connection = opened(4)
    let id = 10
    const add = () => connection.execute(`INSERT INTO items VALUES (99, ${(id += 1)})`)
    const pages = pagesOf(connection, listOf('desc'), 2, add)
    assert.deepEqual(pages, [
      [4, 3],
      [2, 1],
    ])
    connection.close()
  })

  it('read no more rows than allowed: a page may be short and have a next one', () => {
    const connection = opened(9)
    const filter = {where: 'id % 4 = ? OR id = ?', values: [0, 1], visitedMax: 3}
    assert.deepEqual(pagesOf(connection, listOf('desc', {filter}), 5), [[8], [4], [1], []])
    assert.deepEqual(pagesOf(connection, listOf('asc', {filter}), 1), [[1], [4], [8], []])
    connection.close()
  })

  it('begin and end with the range of the list, also if only its first columns are given', () => {
    const connection = opened(9)
    const range = {begin: [4], end: [2]}
    assert.deepEqual(pagesOf(connection, listOf('desc', {range}), 3), [[7, 6, 5], [4]])
    const filter = {where: 'id <> ?', values: [5], visitedMax: 2}
    assert.deepEqual(pagesOf(connection, listOf('desc', {range, filter}), 3), [[7, 6], [4], []])
    assert.deepEqual(pagesOf(connection, listOf('asc', {range: {begin: [2], end: [4]}}), 9), [
      [6, 7, 8, 9],
    ])
    connection.close()
  })
})
