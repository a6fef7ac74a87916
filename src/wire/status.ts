/** State of a server and of the cluster in JSON: status, health, readiness. */
import {Type, type Static} from 'typebox'
import {TextMap} from './shapes.ts'

export const Status = Type.Object(
  {
    agent: TextMap('The node that replies.'),
    gossip: TextMap('The cluster as this node sees it.'),
    serf: TextMap('The same as `gossip`.'),
    tags: TextMap('Tags of this node.'),
  },
  {$id: 'Status', description: 'Status of the node that replies and of the cluster.'},
)
export type StatusJson = Static<typeof Status>

export const Health = Type.Object(
  {status: Type.String()},
  {$id: 'Health', description: 'Whether the process is alive.'},
)

export const Readiness = Type.Object(
  {
    status: Type.Enum(['ready', 'not_ready']),
    checks: Type.Record(Type.String(), Type.String()),
  },
  {
    $id: 'Readiness',
    description: 'Whether the server can do its work, with the result of each check.',
  },
)
