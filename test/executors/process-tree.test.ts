/** The process tree of a command that ends or is ended. Uses real processes. */
import assert from 'node:assert/strict'
import {readdirSync, readFileSync} from 'node:fs'
import {after, before, describe, test} from 'node:test'
import {aNode, aRun, KeepingSink, realClock, type TestNode} from './support.ts'

const ON_LINUX = process.platform === 'linux'

/** Processes, without zombies, whose environment or command line contains `mark`. */
function processesWith(mark: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && pid !== process.pid)
    .filter((pid) => {
      try {
        if (/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'latin1'))) return false
        const environment = readFileSync(`/proc/${pid}/environ`, 'latin1')
        return (environment + readFileSync(`/proc/${pid}/cmdline`, 'latin1')).includes(mark)
      } catch {
        return false
      }
    })
}

/** Waits until the number of processes that carry `mark` is right: a KILL takes effect after an instant. */
async function untilCount(mark: string, isRight: (count: number) => boolean): Promise<void> {
  const deadline = performance.now() + 5_000
  for (;;) {
    const count = processesWith(mark).length
    if (isRight(count)) return
    assert.ok(performance.now() < deadline, `${count} processes run`)
    await new Promise<void>((resolve) => {
      realClock.after(10, resolve)
    })
  }
}

const gone = (mark: string) => untilCount(mark, (count) => count === 0)

for (const spawn of ['portable', 'auto'] as const) {
  describe(`the process tree, ${spawn}`, {skip: ON_LINUX ? false : 'reads /proc'}, () => {
    let node: TestNode
    before(async () => {
      node = await aNode({spawn})
    })
    after(async () => {
      await node.close()
    })

    /** Starts a command that prints `ready` when it stands. */
    async function stand(command: string, more: Record<string, string> = {}) {
      const sink = new KeepingSink()
      const run = aRun({command, shell: 'true', ...more})
      const handle = node.executors.get('shell')!.start(run, sink)
      await sink.until('ready')
      return {run, sink, handle, mark: `BELFRY_EXECUTION=${run.executionId}\0`}
    }

    test('a command can clean up after TERM', async () => {
      const {sink, handle} = await stand(
        `trap 'echo bye; exit 9' TERM; echo ready; while :; do sleep 0.05; done`,
      )
      handle.cancel()
      const end = await handle.ended
      assert.deepEqual([end.outcome, end.exitCode, end.head], ['cancelled', 9, ''])
      assert.match(sink.text, /bye\n$/)
    })

    test('a group that ignores TERM is killed', async () => {
      const {handle, mark} = await stand(
        `trap '' TERM; sleep 60 & sleep 60 & echo ready; wait; sleep 60`,
      )
      // The children may still be in their exec, during which they show no environment.
      await untilCount(mark, (count) => count >= 3)
      handle.cancel()
      const end = await handle.ended
      assert.equal(end.outcome, 'cancelled')
      assert.deepEqual(processesWith(mark), [])
    })

    test('children have the full grace even if their parent dies of TERM immediately', async () => {
      const child = `(trap 'sleep 0.1; echo cleaned' TERM; echo ready; while :; do sleep 0.02; done) & wait`
      const {sink, handle} = await stand(child.replace('echo cleaned', 'echo cleaned; exit'))
      handle.cancel()
      assert.equal((await handle.ended).outcome, 'cancelled')
      assert.match(sink.text, /cleaned/)
    })

    test('a process that called setsid is ended', async () => {
      const {handle, mark} = await stand(
        `setsid sh -c 'trap "" TERM; echo ready; sleep 60; sleep 60' & wait`,
      )
      assert.notEqual(processesWith(mark).length, 0)
      handle.cancel()
      assert.equal((await handle.ended).outcome, 'cancelled')
      assert.deepEqual(processesWith(mark), [])
    })

    test('a tree that keeps forking is ended', async () => {
      const {handle, mark} = await stand(
        `trap '' TERM; f() { while :; do sleep 60 & setsid sleep 60 & sleep 0.02; done; }
         f & f & f & echo ready; wait`,
      )
      handle.kill()
      assert.equal((await handle.ended).outcome, 'cancelled')
      assert.deepEqual(processesWith(mark), [])
    })

    test('after a normal exit, remaining processes of the group are killed', async () => {
      const {run, handle, mark} = await stand('sleep 60 >/dev/null 2>&1 & echo ready')
      const end = await handle.ended
      assert.deepEqual([end.outcome, end.foot], ['succeeded', ''], run.executionId)
      await gone(mark)
    })

    test('a grandchild that holds the output open does not delay the end', async () => {
      const {sink, handle, mark} = await stand('sleep 60 & echo ready')
      const end = await handle.ended
      assert.equal(end.outcome, 'succeeded')
      assert.match(end.foot, /^output closed here/)
      assert.equal(sink.text, 'ready\n')
      await gone(mark)
    })

    test('a grandchild that floods the output does not delay the end', async () => {
      const {handle} = await stand('setsid cat /dev/zero & echo ready')
      const end = await handle.ended
      assert.equal(end.outcome, 'succeeded')
      assert.match(end.foot, /^output closed here/)
    })

    test('a daemon survives the normal end of its job', async () => {
      const {handle, mark} = await stand(
        `up=$(mktemp -u); setsid sh -c 'touch "$0"; exec sleep 60' $up >/dev/null 2>&1 &
         while [ ! -e $up ]; do sleep 0.01; done; rm $up; echo ready`,
      )
      assert.equal((await handle.ended).outcome, 'succeeded')
      const [daemon] = processesWith(mark)
      assert.notEqual(daemon, undefined)
      process.kill(daemon!, 'SIGKILL')
    })

    test('mem_limit kills the group and reports its size', async () => {
      const script = 'const held = Buffer.alloc(400e6, 1); setInterval(() => held, 1e4)'
      const end = await node.run({
        command: `${process.execPath} -e "${script}"`,
        mem_limit: '300MB',
      })
      assert.deepEqual([end.outcome, end.exitCode], ['failed', null])
      assert.match(
        end.foot,
        /^killed: [3-9]\d{8} bytes of resident memory, over mem_limit 300MB\n$/,
      )
    })

    test('stop ends all commands and settles all ends', async () => {
      const own = await aNode({spawn})
      const sink = new KeepingSink()
      const run = aRun({command: `trap '' TERM; echo ready; sleep 60; sleep 60`, shell: 'true'})
      const handle = own.executors.get('shell')!.start(run, sink)
      await sink.until('ready')
      await own.close()
      assert.equal((await handle.ended).outcome, 'cancelled')
      assert.deepEqual(processesWith(`BELFRY_EXECUTION=${run.executionId}\0`), [])
    })
  })
}
