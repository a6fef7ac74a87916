/** Notices over killed leaders: three real servers, one PostgreSQL, and a receiver on this machine. */
import assert from 'node:assert/strict'
import {rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {test} from 'node:test'
import {startHttp} from '../notices/receivers.ts'
import {temporaryDirectory} from '../support/server-process.ts'
import {until} from '../support/waiting.ts'
import {ClusterProcess} from '../../tools/faults/cluster-process.ts'
import {byHand, settled} from './shared-cluster.ts'

interface Sent {
  readonly id: string
  readonly kind: string
  readonly repeat: boolean
}

test('red, red, green over two killed leaders are two messages; others repeat them', async (t) => {
  const names = ['north', 'east', 'west']
  const cluster = await ClusterProcess.start(t, {servers: names})
  const receiver = await startHttp(t)
  const broken = join(temporaryDirectory(t), 'broken')
  writeFileSync(broken, '')
  const sent = () => receiver.received.map(({body}) => JSON.parse(body) as Sent)
  const alive = new Set(names)
  const anyServer = () => cluster.server([...alive][0]!)
  const hook = {kind: 'webhook', config: {url: receiver.url}}
  assert.equal((await anyServer().ask('PUT', '/notices/channels/hook', hook)).status, 200)
  const rule = {to: ['hook'], when: {failed: {}}}
  assert.equal((await anyServer().ask('PUT', '/notices/rules/rule', rule)).status, 200)
  await anyServer().store(byHand('load', `test ! -e ${broken}`))
  const run = async () => {
    const answer = await anyServer().post('/jobs/load/run')
    await settled(anyServer(), 'load', Number(answer.headers.get('x-launch-id')))
  }
  for (let kills = 0; kills < 2; kills += 1) {
    const leader = await cluster.agreedLeader()
    await run()
    alive.delete(leader)
    cluster.program(leader).signal('SIGKILL')
    const survivors = [...alive]
    await until('the others have a leader', async () => {
      const name = await cluster.leaderName(anyServer())
      return survivors.includes(name)
    })
  }
  rmSync(broken)
  await run()
  await until('the recovery arrives', async () => sent().some(({kind}) => kind === 'closed'))
  const messages = sent()
  const firsts = messages.filter(({repeat}) => !repeat)
  assert.deepEqual(
    firsts.map(({kind}) => kind),
    ['opened', 'closed'],
  )
  const ids = new Set(messages.map(({id}) => id))
  assert.deepEqual(
    [...ids],
    firsts.map(({id}) => id),
  )
})
