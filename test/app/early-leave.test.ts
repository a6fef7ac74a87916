/** A request to leave during the start: the server finishes its start, then stops gracefully. */
import assert from 'node:assert/strict'
import {join} from 'node:path'
import {after, before, test} from 'node:test'
import {withCluster} from '../support/postgres-cluster.ts'
import {freePort, TestPostgres} from '../support/postgres.ts'
import {runProgram, temporaryDirectory} from '../support/server-process.ts'
import {until, within} from '../support/waiting.ts'

let postgres: TestPostgres
before(async () => (postgres = await TestPostgres.start()))
after(() => postgres.close())

test('a server asked to leave before it has joined stops gracefully', async (t) => {
  await withCluster(postgres, async ({url, hold, second}) => {
    // The server can read members and cannot join.
    const holder = await hold('LOCK TABLE members IN SHARE MODE')
    const address = `127.0.0.1:${await freePort()}`
    const data = join(temporaryDirectory(t), 'data')
    const flags = ['--http', address, '--data', data, '--store', url, '--name', 'early']
    const server = runProgram(t, ['server', ...flags])
    await until('it is asked', async () => {
      const asking = fetch(`http://${address}/v1/leave`, {method: 'POST'})
      const answer = await asking.catch(() => null)
      return answer?.ok === true
    })
    assert.equal((await second.members()).length, 1)
    await holder.release()
    const exit = await within(server.exit, 'it ends', 20_000)
    assert.equal(exit.code, 0, server.stderr())
    const {status} = (await second.members()).find(({name}) => name === 'early')!
    assert.equal(status, 'left')
  })
})
