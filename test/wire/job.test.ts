/** Decoding of job definitions from any client. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import * as fc from 'fast-check'
import {sentenceOf} from '../../src/core/findings.ts'
import type {JobRecord} from '../../src/core/job.ts'
import {readShell} from '../../src/executors/shell-parameters.ts'
import {decodeCounters, decodeJob} from '../../src/wire/decode-job.ts'
import {encodeJob} from '../../src/wire/job.ts'
import {readJson} from '../../src/wire/json.ts'
import {aJob} from '../support/fixtures.ts'

function specOf(body: unknown) {
  const {spec, faults} = decodeJob(body)
  assert.deepEqual(faults, [])
  assert.ok(spec !== null)
  return spec
}

test('encoding and decoding a job returns the same definition', () => {
  const records: JobRecord[] = [
    aJob('plain').record,
    aJob('child').childOf('plain').forbidding().retrying(3).tagged({disk: 'ssd:2'}).record,
    aJob('window')
      .between(Date.UTC(2026, 0, 1), Date.UTC(2027, 0, 1))
      .ephemeral().record,
    aJob('rich').with({
      processors: {log: {forward: 'true'}, files: {}},
      executorConfig: {command: 'x'},
      metadata: {k: ''},
      catchUp: 'all',
      onDisconnect: 'stop',
      ownerEmail: 'a@b.c',
    }).record,
  ]
  for (const record of records) assert.deepEqual(specOf(encodeJob(record)), record.spec)
})

test('decoding returns faults with their fields, and never throws', () => {
  const names = fc.constantFrom(...Object.keys(encodeJob(aJob().record)), 'command', 'shell', 'odd')
  const bodies = fc.dictionary(names, fc.jsonValue({maxDepth: 3}))
  const law = fc.property(bodies, fc.boolean(), (fields, named) => {
    const body = named ? {...fields, name: 'fine'} : fields
    const json = readJson(JSON.stringify(body))
    if (json.kind !== 'value') return
    const result = decodeJob(json.value)
    for (const fault of result.faults)
      assert.match(sentenceOf(fault), /^[a-z_]+(\..*)?: |^the body /s)
    for (const value of Object.values(result.spec?.tags ?? {})) assert.equal(typeof value, 'string')
  })
  fc.assert(law, {numRuns: 500})
})

test('top-level command and shell configure the shell executor', () => {
  const executor = (fields: object) => {
    const {executor: name, executorConfig} = specOf({name: 'x', schedule: '@daily', ...fields})
    return {name, ...executorConfig}
  }
  assert.deepEqual(executor({command: 'a'}), {name: 'shell', command: 'a'})
  assert.deepEqual(executor({command: 'a', shell: false}), {
    name: 'shell',
    command: 'a',
    shell: 'false',
  })
  assert.deepEqual(executor({command: '', shell: false}), {name: ''})
  assert.deepEqual(executor({command: 'a', executor: 'http'}), {name: 'http'})
  assert.deepEqual(executor({executor_config: {command: 'a'}}), {name: 'shell', command: 'a'})
  const edited = {command: 'new', shell: true, executor: 'shell'}
  assert.deepEqual(executor({...edited, executor_config: {command: 'old', cwd: '/'}}), {
    name: 'shell',
    command: 'new',
    shell: 'true',
    cwd: '/',
  })
  assert.deepEqual(executor({command: '', executor_config: {command: 'b'}}), {
    name: 'shell',
    command: 'b',
  })
  assert.deepEqual(executor({command: 'a', executor_config: {command: '', cwd: '/'}}), {
    name: 'shell',
    command: 'a',
    cwd: '/',
  })
})

test('top-level environment_variables become the parameter env', () => {
  const decode = (fields: object) => decodeJob({name: 'x', schedule: '@daily', ...fields})
  const env = (variables: unknown, config = {}) => {
    const result = decode({
      executor: 'shell',
      executor_config: {command: 'env', ...config},
      environment_variables: variables,
    })
    assert.deepEqual([result.faults, result.ignoredFields], [[], []])
    return result.spec?.executorConfig['env']
  }
  assert.equal(env(['A=1', 'B=two words']), 'A=1,B=two words')
  const {plan} = readShell({env: env(['A=1,2', 'B=C:\\,\\d'])!}, {suAllowed: [], runsAsRoot: false})
  assert.deepEqual(plan.environment, {
    A: '1,2',
    B: 'C:\\,\\d',
  })
  assert.equal(env(['A=2'], {env: 'A=1'}), 'A=2')
  for (const unset of [null, []]) assert.equal(env(unset, {env: 'A=1'}), 'A=1')
  const foreign = decode({executor: 'http', environment_variables: ['A=1']})
  assert.deepEqual(foreign.faults, [])
  assert.deepEqual(foreign.warnings.map(sentenceOf), [
    'environment_variables: is ignored: the executor is "http", not "shell"',
  ])
  for (const wrong of ['A=1', {A: '1'}, [1], ['A=\\']]) {
    const [fault] = decode({command: 'env', environment_variables: wrong}).faults
    assert.match(sentenceOf(fault!), /^environment_variables: (?!.*A=).*must/)
  }
})

test('counters of a restore file are decoded, and invalid ones rejected by name', () => {
  const nothing = {successCount: 0, errorCount: 0, lastSuccess: null, lastError: null}
  assert.deepEqual(
    decodeCounters({
      success_count: 3,
      error_count: null,
      last_success: '2026-01-01T00:00:00Z',
      last_error: '0001-01-01T00:00:00Z',
    }),
    {faults: [], counters: {...nothing, successCount: 3, lastSuccess: Date.UTC(2026, 0, 1)}},
  )
  assert.deepEqual(decodeCounters(null), {faults: [], counters: nothing})
  assert.deepEqual(decodeCounters({last_error: ''}), {faults: [], counters: nothing})
  for (const field of ['success_count', 'error_count'])
    for (const value of [-1, 1.5, '3', 1e300, {}]) assertRefused(field, value)
  for (const field of ['last_success', 'last_error'])
    for (const value of ['yesterday', 3, {}]) assertRefused(field, value)
})

function assertRefused(field: string, value: unknown): void {
  const [fault] = decodeCounters({[field]: value}).faults
  assert.ok(fault !== undefined, `${field}: ${JSON.stringify(value)}`)
  assert.match(sentenceOf(fault), new RegExp(`^${field}: .*(must be|is not a time)`))
}
