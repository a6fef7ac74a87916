/** The queue of commands to start, and what happens when the system has no resources for another command. */
import assert from 'node:assert/strict'
import {execFile} from 'node:child_process'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {setImmediate as nextTurn} from 'node:timers/promises'
import {promisify} from 'node:util'
import {StartQueue} from '../../src/executors/process/helper/start-queue.ts'
import {aNode, aRun, KeepingSink} from './support.ts'

describe('the start queue', () => {
  test('starts a few commands in a turn, in the order of their requests', async () => {
    const queue = new StartQueue()
    const started: number[] = []
    for (let number = 0; number < 100; number += 1)
      queue.add({start: () => void started.push(number)})
    await nextTurn()
    assert.ok(started.length > 0 && started.length < 20, `${started.length} in one turn`)
    while (started.length < 100) await nextTurn()
    assert.deepEqual(
      started,
      started.toSorted((a, b) => a - b),
    )
  })

  test('starts nothing after a command was postponed, until another one ended', async () => {
    const queue = new StartQueue()
    const started: string[] = []
    let isExhausted = true
    const first = {
      start: () => {
        if (isExhausted) queue.postpone(first)
        else started.push('first')
      },
    }
    queue.add(first)
    queue.add({start: () => void started.push('second')})
    for (let turn = 0; turn < 10; turn += 1) await nextTurn()
    assert.deepEqual(started, [])
    isExhausted = false
    queue.resume()
    for (let turn = 0; turn < 10; turn += 1) await nextTurn()
    assert.deepEqual(started, ['first', 'second'])
  })
})

const ON_LINUX = process.platform === 'linux'

for (const spawn of ['portable', 'auto'] as const) {
  test(
    `commands wait for descriptors instead of failing, ${spawn}`,
    {skip: ON_LINUX ? false : 'macOS counts descriptors differently'},
    async () => {
      const program = join(import.meta.dirname, 'concurrent-commands.ts')
      const script = `ulimit -n 60 && exec "${process.execPath}" "${program}" ${spawn} 150`
      const {stdout} = await promisify(execFile)('sh', ['-c', script])
      const ends = JSON.parse(stdout) as {outcome: string; foot: string; text: string}[]
      ends.forEach((end, index) => {
        assert.deepEqual(end, {outcome: 'succeeded', foot: '', text: `${index}\n`})
      })
      assert.equal(ends.length, 150)
    },
  )
}

test('a command that waits for its start ends at once when it is cancelled', async () => {
  const node = await aNode({spawn: 'auto'})
  try {
    // Requests of one turn: the last ones wait while the first are started.
    const handles = Array.from({length: 60}, () => {
      const run = aRun({command: 'sleep 60', shell: 'true'})
      return node.executors.get('shell')!.start(run, new KeepingSink())
    })
    for (const handle of handles) handle.cancel()
    const ends = await Promise.all(handles.map(({ended}) => ended))
    assert.ok(ends.every(({outcome}) => outcome === 'cancelled'))
  } finally {
    await node.close()
  }
})

const runsAsRoot = process.geteuid?.() === 0

test(
  'a command of another user can reopen its output as /dev/stderr',
  {skip: runsAsRoot && ON_LINUX ? false : 'needs root, and /dev/stderr of Linux'},
  async () => {
    for (const spawn of ['portable', 'auto'] as const) {
      const node = await aNode({spawn, suAllowed: ['*']})
      try {
        const config = {
          command: 'echo one > /dev/stderr; echo two >&2',
          shell: 'true',
          su: 'nobody',
        }
        const end = await node.run(config)
        assert.deepEqual([end.outcome, end.text, end.foot], ['succeeded', 'one\ntwo\n', ''])
      } finally {
        await node.close()
      }
    }
  },
)
