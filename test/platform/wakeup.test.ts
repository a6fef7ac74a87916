import assert from 'node:assert/strict'
import {test} from 'node:test'
import {setImmediate as turn} from 'node:timers/promises'
import {localWakeup} from '../../src/platform/wakeup.ts'

test('a ring is heard later, and many rings before it are one', async () => {
  const wakeup = localWakeup()
  let heard = 0
  wakeup.subscribe('run', () => heard++)
  for (let i = 0; i < 1000; i++) wakeup.notify('run')
  assert.equal(heard, 0, 'not from inside the caller')
  await turn()
  assert.equal(heard, 1)
  wakeup.notify('run')
  await turn()
  assert.equal(heard, 2)
})

test('bells do not mix, and a ring from inside a listener is not lost', async () => {
  const wakeup = localWakeup()
  const heard: string[] = []
  wakeup.subscribe('launch', () => {
    heard.push('launch')
    if (heard.length < 3) wakeup.notify('launch')
  })
  wakeup.subscribe('cancel', () => heard.push('cancel'))
  wakeup.notify('launch')
  for (let i = 0; i < 5; i++) await turn()
  assert.deepEqual(heard, ['launch', 'launch', 'launch'])
})

test('a listener that stopped hears nothing, its twin still does', async () => {
  const wakeup = localWakeup()
  let heard = 0
  const listener = () => heard++
  const stop = wakeup.subscribe('run', listener)
  wakeup.subscribe('run', listener)
  stop()
  stop()
  wakeup.notify('run')
  await turn()
  assert.equal(heard, 1)
})
