/** Restore of a file: one at a time, so that the memory for definitions is bounded. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {BELFRY} from '../../src/core/audit.ts'
import {LOCAL} from '../../src/operations/access.ts'
import type {OperationsContext} from '../../src/operations/context.ts'
import {createRestore} from '../../src/operations/restore.ts'

test('a second restore is refused until the first has ended, also if that fails', async () => {
  const context = {
    store: {
      paused: async () => false,
      members: async () => [],
      secrets: async () => [],
      restore: async () => ({kind: 'restored', lines: []}),
    },
    settings: {jobBytesMax: 1_000},
    wakeup: {notify: () => {}},
  } as unknown as OperationsContext
  const {restore} = createRestore(context)
  const call = {disabled: false, caller: LOCAL, actor: BELFRY}
  const upload = Promise.withResolvers<AsyncIterable<Uint8Array>>()
  const first = restore({...call, openFile: () => upload.promise})
  const file = async function* () {
    yield Buffer.from('[]')
  }
  const again = () => restore({...call, openFile: async () => file()})
  // Behind the question whether submissions are paused, as the first.
  await assert.rejects(again(), {code: 'restore_running'})
  upload.reject(new Error('the client is gone'))
  await assert.rejects(first, /the client is gone/)
  assert.deepEqual(await again(), {lines: [], warnings: []})
})
