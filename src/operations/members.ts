/** Who belongs to the cluster, who leads it, and leaving it. */
import type {MemberRecord} from '../core/node.ts'
import {DomainError} from '../core/refusal.ts'
import type {OperationsDependencies} from './dependencies.ts'
import type {PatientStore} from './patience.ts'

export function createMembers(dependencies: OperationsDependencies, store: PatientStore) {
  const {node} = dependencies

  /** By name. */
  async function members(): Promise<readonly MemberRecord[]> {
    const all = await store.read((data) => data.members())
    return all.toSorted((one, other) => (one.name < other.name ? -1 : 1))
  }

  /** Throws `no_leader`. */
  async function leader(): Promise<MemberRecord> {
    const lease = await store.read((data) => data.leader())
    const leading = (await members()).find((member) => member.id === lease?.nodeId)
    if (leading === undefined)
      throw new DomainError('no_leader', 'No server leads at the moment; try again shortly.', {
        retryAfterSeconds: 1,
      })
    return leading
  }

  function isLeader(): boolean {
    return dependencies.isLeader()
  }

  /** Begins leaving; answers the members with this node as `leaving` while work runs here, else as `left`. */
  async function leave(): Promise<readonly MemberRecord[]> {
    const all = await members()
    const running = await store.read((data) => data.busy({start: 0, end: null, outputBytes: 0}))
    const works = running.rows.some((execution) => execution.node === node.name)
    dependencies.leave()
    return all.map((member) =>
      member.id === node.id ? {...member, status: works ? 'leaving' : 'left'} : member,
    )
  }

  return {members, leader, isLeader, leave}
}
