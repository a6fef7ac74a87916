/** Methods of the store that take lists, called for one node. */
import type {
  BeatReply,
  ClaimRequest,
  ClaimResult,
  Heartbeat,
  NodeStore,
} from '../../src/ports/node-store.ts'

export async function claimAs(
  store: Pick<NodeStore, 'claim'>,
  request: ClaimRequest,
): Promise<ClaimResult> {
  const [result] = await store.claim([request])
  return result!
}

export async function beatAs(
  store: Pick<NodeStore, 'beat'>,
  heartbeat: Heartbeat,
): Promise<BeatReply> {
  const [reply] = await store.beat([heartbeat])
  return reply!
}
