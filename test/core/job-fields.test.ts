/** The table of job fields: what follows from a row. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {
  DEFAULT_SPEC,
  definitionText,
  JOB_FIELD_LIST,
  specOf,
  withoutDetails,
} from '../../src/core/job-fields.ts'
import {aJob, NOON} from '../support/fixtures.ts'

test('a definition stored without a field has its default', () => {
  const {spec} = aJob('old')
  for (const {key} of JOB_FIELD_LIST) {
    const {[key]: _missing, ...stored} = spec
    assert.deepEqual(specOf(JSON.stringify(stored)), {...spec, [key]: DEFAULT_SPEC[key]}, key)
  }
})

test('a stored definition is read as it was', () => {
  const {spec} = aJob('rich').tagged({disk: 'ssd'}).between(NOON, null).forbidding().retrying(2)
  assert.deepEqual(specOf(definitionText(spec)), spec)
})

test('a caller who may not read a job sees the allowed fields only', () => {
  const {spec} = aJob('secret').with({
    displayname: 'd',
    owner: 'o',
    ownerEmail: 'e',
    disabled: true,
    tags: {t: '1'},
    metadata: {m: '1'},
    retries: 3,
    parentJob: 'p',
    processors: {log: {}},
    concurrency: 'forbid',
    executorConfig: {command: 'c'},
    ephemeral: true,
    startsAt: 1,
    expiresAt: 2,
    catchUp: 'all',
    maxLateness: '1h',
    onDisconnect: 'keep',
  })
  assert.deepEqual(withoutDetails(spec), {
    ...DEFAULT_SPEC,
    name: 'secret',
    disabled: true,
    retries: 3,
    concurrency: 'forbid',
    ephemeral: true,
    startsAt: 1,
    expiresAt: 2,
    catchUp: 'all',
    maxLateness: '1h',
    onDisconnect: 'keep',
  })
})
