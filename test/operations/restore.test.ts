/** Restore of a file: one at a time, so that the memory for definitions is bounded. */
import assert from 'node:assert/strict'
import {Readable} from 'node:stream'
import {test} from 'node:test'
import {DEFINITION_TRAITS} from '../support/definition-traits.ts'
import {BELFRY} from '../../src/core/audit.ts'
import {NO_RULES, RuleSet} from '../../src/core/access/authorization.ts'
import {readRules} from '../../src/core/access/policy.ts'
import {LOCAL} from '../../src/identity/token-cache.ts'
import type {OperationsContext} from '../../src/operations/context.ts'
import {createRestore} from '../../src/operations/restore.ts'
import {decodeRestore, type SentJob} from '../../src/wire/definition.ts'

test('a token that may store no job is refused before its file is read', async () => {
  const store = {submissionsPaused: async () => false}
  const {restore} = createRestore({store} as unknown as OperationsContext)
  const reader = readRules(JSON.stringify({path: {'/v1/**': {capabilities: ['read', 'list']}}}))
  assert(reader.ok)
  for (const rules of [NO_RULES, new RuleSet([{name: 'reader', ...reader}], DEFINITION_TRAITS)]) {
    const caller = {...LOCAL, kind: 'client', rules} as const
    const openFile = () => assert.fail('the file is not opened')
    const call = {caller, actor: BELFRY, disabled: false, openFile}
    await assert.rejects(restore(call), {code: 'not_allowed'})
  }
})

test('a second restore is refused until the first has ended, also if that fails', async () => {
  const context = {
    store: {
      submissionsPaused: async () => false,
      members: async () => [],
      secrets: async () => [],
      restore: async () => ({kind: 'restored', lines: []}),
    },
    wakeup: {notify: () => {}},
  } as unknown as OperationsContext
  const {restore} = createRestore(context)
  const call = {disabled: false, caller: LOCAL, actor: BELFRY}
  const upload = Promise.withResolvers<AsyncIterable<SentJob>>()
  const first = restore({...call, openFile: () => upload.promise})
  const file = () => decodeRestore(Readable.from([Buffer.from('[]')]), 1_000)
  const again = () => restore({...call, openFile: async () => file()})
  // Behind the question whether submissions are paused, as the first.
  await assert.rejects(again(), {code: 'restore_running'})
  // A client with a slow upload does not keep the administrator waiting, nor the other way round.
  const policy = readRules(JSON.stringify({path: {'/v1/jobs/team-*': {capabilities: ['update']}}}))
  assert(policy.ok)
  const rules = new RuleSet([{name: 'team', ...policy}], DEFINITION_TRAITS)
  const team = {...LOCAL, kind: 'client', rules} as const
  assert.deepEqual(await restore({...call, caller: team, openFile: async () => file()}), {
    lines: [],
    warnings: [],
  })
  upload.reject(new Error('the client is gone'))
  await assert.rejects(first, /the client is gone/)
  assert.deepEqual(await again(), {lines: [], warnings: []})
})
