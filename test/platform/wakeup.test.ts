import assert from 'node:assert/strict'
import {test} from 'node:test'
import {setImmediate as turn} from 'node:timers/promises'
import {localWakeup} from '../../src/platform/wakeup.ts'

test('notifications arrive after the turn, those of one turn and topic as one', async () => {
  const wakeup = localWakeup()
  let count = 0
  wakeup.subscribe('run', () => count++)
  for (let i = 0; i < 1000; i++) wakeup.notify('run')
  assert.equal(count, 0, 'not from inside the caller')
  await turn()
  assert.equal(count, 1)
  wakeup.notify('run')
  await turn()
  assert.equal(count, 2)
})

test('topics are separate, and a notification from inside a subscriber is not lost', async () => {
  const wakeup = localWakeup()
  const notified: string[] = []
  wakeup.subscribe('launch', () => {
    notified.push('launch')
    if (notified.length < 3) wakeup.notify('launch')
  })
  wakeup.subscribe('cancel', () => notified.push('cancel'))
  wakeup.notify('launch')
  for (let i = 0; i < 5; i++) await turn()
  assert.deepEqual(notified, ['launch', 'launch', 'launch'])
})

test('after unsubscribing, a second subscription of the same function stays', async () => {
  const wakeup = localWakeup()
  let count = 0
  const subscriber = () => count++
  const unsubscribe = wakeup.subscribe('run', subscriber)
  wakeup.subscribe('run', subscriber)
  unsubscribe()
  unsubscribe()
  wakeup.notify('run')
  await turn()
  assert.equal(count, 1)
})
