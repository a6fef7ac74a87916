/** RFC 3339 timestamps, one line per rule. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import * as fc from 'fast-check'
import {parseTime} from '../../src/lib/rfc3339.ts'

const TIMES: readonly (readonly [string, string | null])[] = [
  ['2026-05-01T08:30:00Z', '2026-05-01T08:30:00.000Z'],
  ['2026-05-01t08:30:00z', '2026-05-01T08:30:00.000Z'],
  ['2026-05-01T08:30:00.1Z', '2026-05-01T08:30:00.100Z'],
  ['2026-05-01T08:30:00.1239999Z', '2026-05-01T08:30:00.123Z'],
  [`2026-05-01T08:30:00.5${'0'.repeat(20)}Z`, '2026-05-01T08:30:00.500Z'],
  ['2026-05-01T08:30:00+05:30', '2026-05-01T03:00:00.000Z'],
  ['2026-05-01T08:30:00-23:59', '2026-05-02T08:29:00.000Z'],
  ['2026-05-01T08:30:00', '2026-05-01T08:30:00.000Z'],
  ['2026-05-01T08:30', '2026-05-01T08:30:00.000Z'],
  ['2024-02-29T00:00:00Z', '2024-02-29T00:00:00.000Z'],
  ['2016-12-31T23:59:60Z', '2017-01-01T00:00:00.000Z'],
  ['0000-01-01T00:00:00Z', '0000-01-01T00:00:00.000Z'],
  ['9999-12-31T23:59:59.999Z', '9999-12-31T23:59:59.999Z'],
  ['9999-12-31T23:59:59-01:00', null],
  ['0000-01-01T00:00:00+01:00', null],
  ['2026-02-29T00:00:00Z', null],
  ['2026-13-01T00:00:00Z', null],
  ['2026-00-01T00:00:00Z', null],
  ['2026-05-01T24:00:00Z', null],
  ['2026-05-01T08:60:00Z', null],
  ['2026-05-01T08:30:61Z', null],
  ['2026-05-01T08:30Z', null],
  ['2026-05-01T08:30:00+24:00', null],
  ['2026-05-01 08:30:00Z', null],
  ['2026-05-01', null],
  ['2026-05-01T08:30:00.Z', null],
  ['20260501T083000Z', null],
  ['2026-05-01T08:30:00Z ', null],
  ['', null],
]

test('times are parsed by the rules and formatted in one form', () => {
  for (const [text, expected] of TIMES) {
    const at = parseTime(text)
    assert.equal(at === null ? null : new Date(at).toISOString(), expected, text)
  }
})

test('every formatted time parses back', () => {
  const instants = fc.integer({min: Date.UTC(0, 0, 1), max: Date.UTC(9999, 11, 31)})
  fc.assert(fc.property(instants, (at) => parseTime(new Date(at).toISOString()) === at))
})
