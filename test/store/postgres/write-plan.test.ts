/** Which writes share a transaction on PostgreSQL. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {sharedWrites, type Write} from '../../../src/store/postgres/write-plan.ts'

const submit: Write = {name: 'submit', input: [1]}
const alone: Write = {name: 'deleteJob', input: ['a']}
const list = (length: number): Write => ({name: 'finish', input: [Array.from({length})]})

describe('the writes of one transaction', () => {
  it('a write that cannot share has its own transaction', () => {
    assert.equal(sharedWrites([submit, alone, submit]), 1)
    assert.equal(sharedWrites([alone, submit]), 1)
    assert.equal(sharedWrites([submit, submit]), 2)
  })

  it('the items of merged lists are limited, and a longer list has its own transaction', () => {
    assert.equal(sharedWrites([list(600), list(400), list(1)]), 2)
    assert.equal(sharedWrites([list(1), list(5_000)]), 1)
    assert.equal(sharedWrites([list(5_000), list(1)]), 1)
  })
})
