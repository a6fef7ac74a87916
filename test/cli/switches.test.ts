/** Commands that switch something on and off, against the real API. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {commands} from './real-api.ts'

test('jobs enable and disable take several names, and an error ends none of the others', async (t) => {
  const {api, run} = await commands(t)
  await api.job('a')
  await api.job('b')
  const ran = await run('jobs', 'disable', 'a', 'bad', 'b')
  assert.deepEqual([ran.code, ran.out], [1, 'a is disabled\nb is disabled\n'])
  assert.match(ran.err, /bad was not disabled: There is no job/)
  const {out} = await run('--json', 'jobs', 'enable', 'a', 'b')
  assert.deepEqual(
    (JSON.parse(out) as {disabled: boolean}[]).map(({disabled}) => disabled),
    [false, false],
  )
  assert.match((await run('jobs', 'enable', 'bad')).err, /There is no job named "bad"/)
  assert.equal((await run('jobs', 'enable')).code, 2)
})
