/** Ephemeral jobs: deleted after the first success, with the last launch readable for a day. */
import assert from 'node:assert/strict'
import type {Case} from './case.ts'
import {ALL_EXECUTIONS, ALL_ROWS, DAY, textOf} from './scene.ts'

export function ephemeralCases(when: Case): void {
  when('an ephemeral job survives a failure and is deleted by its first success', async (scene) => {
    await scene.submit('once', {ephemeral: true})
    await scene.complete('once', 'failed')
    assert.notEqual(await scene.store.job('once'), null)
    const group = await scene.run('once')
    const outcome = await scene.end(await scene.claimOne(), 'succeeded', {output: 'done'})
    assert(outcome.kind === 'finished')
    assert.equal(outcome.jobDeleted, true)
    assert.equal(await scene.store.job('once'), null)

    const page = await scene.store.executions('once', ALL_EXECUTIONS)
    assert.deepEqual(
      page!.rows.map((row) => [row.group, textOf(row.output)]),
      [[group, 'done']],
    )
    const key = {group, node: 'node-1', attempt: 1}
    assert.equal((await scene.store.execution('once', key, 10))!.status, 'succeeded')
    assert.equal((await scene.store.launch('once', group))!.decision, 'launched')
    const history = await scene.store.launches('once', {...ALL_ROWS, decision: null})
    assert.equal(history!.total, 1)
    scene.advance(DAY)
    assert.equal(await scene.store.executions('once', ALL_EXECUTIONS), null)
    assert.equal(await scene.store.launch('once', group), null)
  })

  when(
    'the success of an ephemeral job ends its other running and pending executions',
    async (scene) => {
      await scene.submit('once', {ephemeral: true, retries: 1})
      const first = await scene.run('once')
      const second = await scene.run('once')
      await scene.run('once', ['n2'])
      const [one, two] = await scene.claim()
      await scene.end(one!, 'succeeded')
      assert.deepEqual(await scene.store.cancelled('n1'), [
        {group: second, node: 'node-1', attempt: 1},
      ])
      assert.deepEqual(await scene.claim('n2'), [])
      assert.equal((await scene.end(two!, 'failed')).kind, 'unknown')
      const page = await scene.store.executions('once', ALL_EXECUTIONS)
      assert.deepEqual(
        page!.rows.map(({group}) => group),
        [first],
      )
      assert.equal((await scene.store.totals()).pending, 0)
    },
  )

  when('of two successes of an ephemeral job in one batch only the first counts', async (scene) => {
    await scene.submit('once', {ephemeral: true})
    await scene.run('once')
    await scene.run('once')
    const both = await scene.claim()
    const {finish} = scene.store
    const items = both.map(({execution: {group, node, attempt}, token}) => ({
      key: {group, node, attempt},
      token,
      status: 'succeeded' as const,
      durationMs: 1,
      startedAfterMs: 0,
      exitCode: 0,
      reason: '',
      outputHead: '',
      outputFoot: '',
      output: {offset: 0, bytes: new Uint8Array(0), totalBytes: 0},
      dropOutput: false,
      jitter: 0,
    }))
    assert.deepEqual(
      (await finish(items)).map(({kind}) => kind),
      ['finished', 'unknown'],
    )
    await scene.submit('once', {concurrency: 'forbid'})
    const free = await scene.store.requestRun({name: 'once', forced: false, idempotency: null})
    assert.equal(free.kind, 'accepted')
  })
}
