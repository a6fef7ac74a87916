/** Members of the cluster in JSON, and how one is drained. */
import {Type, type Static} from 'typebox'
import {type MemberRecord, type MemberStatus, type MemberView, systemTags} from '../core/node.ts'
import {Duration, MayBeUnset, OptionalTime, TextMap} from './shapes.ts'
import {formatOptionalTime} from '../lib/rfc3339.ts'

/** Versions of the protocol between nodes. `Protocol…` and `Delegate…` fields name the same one. */
const PROTOCOL_MIN = 1
const PROTOCOL_MAX = 1

/** `Status` of a member in JSON. 0 means "none". */
export const MEMBER_STATUS_CODES: Readonly<Record<MemberStatus, number>> = {
  alive: 1,
  leaving: 2,
  left: 3,
  failed: 4,
}

const version = (description: string) => Type.Integer({description})

/** Field names are capitalised as the API contract has them. */
export const Member = Type.Object(
  {
    Name: Type.String({description: 'Name of the node.'}),
    Addr: Type.String({description: 'IP address.'}),
    Port: Type.Integer({description: 'Membership port of the node.'}),
    Tags: TextMap('Tags of the node.'),
    Status: Type.Integer({description: '1 alive, 2 leaving, 3 left, 4 failed.'}),
    ProtocolMin: version('Minimum protocol version the node understands.'),
    ProtocolMax: version('Maximum protocol version the node understands.'),
    ProtocolCur: version('Protocol version the node uses.'),
    DelegateMin: version('The same as `ProtocolMin`.'),
    DelegateMax: version('The same as `ProtocolMax`.'),
    DelegateCur: version('The same as `ProtocolCur`.'),
    id: Type.String({description: 'Identity of the node. It survives restarts.'}),
    statusText: Type.Enum(['alive', 'leaving', 'left', 'failed'], {
      description: '`Status` as a word.',
    }),
    leader: Type.Boolean({description: 'Whether it leads the cluster.'}),
    scheduling: Type.Enum(['active', 'cordoned', 'draining', 'drained'], {
      description: 'Whether it takes work. `drained`: nothing runs on it any more.',
    }),
    cordonedAt: OptionalTime('Since when it takes no new work.'),
    drainUntil: OptionalTime('When what still runs on it is stopped, while it drains.'),
    slots: Type.Integer({description: 'Executions it runs at once. 0 = it runs none.'}),
    running: Type.Integer({description: 'Its running executions, by the store.'}),
    waiting: Type.Integer({
      description: 'Pending executions that wait for it, counted up to 1000.',
    }),
  },
  {$id: 'Member', description: 'A node of the cluster.'},
)
export type MemberJson = Static<typeof Member>

export const Drain = Type.Object(
  {
    deadline: MayBeUnset(
      Duration(
        'A duration: what still runs then is stopped, and is `lost`. 10 minutes unless set, at most 7 days.',
      ),
    ),
  },
  {$id: 'Drain', description: 'How a node is drained.'},
)

/** A record of an older version may lack system tags; tags in the record take precedence. */
export function encodeTags(member: MemberRecord): Record<string, string> {
  return {...systemTags(member), ...member.tags}
}

export function encodeMember(member: MemberView): MemberJson {
  return {
    Name: member.name,
    Addr: member.address,
    Port: member.port,
    Tags: encodeTags(member),
    Status: MEMBER_STATUS_CODES[member.status],
    ProtocolMin: PROTOCOL_MIN,
    ProtocolMax: PROTOCOL_MAX,
    ProtocolCur: PROTOCOL_MAX,
    DelegateMin: PROTOCOL_MIN,
    DelegateMax: PROTOCOL_MAX,
    DelegateCur: PROTOCOL_MAX,
    id: member.id,
    statusText: member.status,
    leader: member.isLeader,
    scheduling: member.scheduling,
    cordonedAt: formatOptionalTime(member.cordonedAt),
    drainUntil: formatOptionalTime(member.cordonedAt === null ? null : member.drainUntil),
    slots: member.runs ? member.slots : 0,
    running: member.running,
    waiting: member.waiting,
  }
}
