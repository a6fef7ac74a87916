/** A node of the cluster as it travels. Field names are capitalised as the interface has them. */
import Type, {type Static} from 'typebox'
import {systemTags, type MemberRecord, type MemberStatus} from '../core/node.ts'
import {TextMap} from './shapes.ts'

/** Versions of the protocol between our nodes; both pairs of fields speak of the same one. */
const PROTOCOL_MIN = 1
const PROTOCOL_MAX = 1

/** 0 is kept for "none". */
export const MEMBER_STATUS_CODES: Readonly<Record<MemberStatus, number>> = {
  alive: 1,
  leaving: 2,
  left: 3,
  failed: 4,
}

const version = (description: string) => Type.Integer({description})

export const Member = Type.Object(
  {
    Name: Type.String({description: 'Name of the node.'}),
    Addr: Type.String({description: 'IP address.'}),
    Port: Type.Integer({description: 'Port on which the node is a member.'}),
    Tags: TextMap('Tags of the node.'),
    Status: Type.Integer({description: '1 alive, 2 leaving, 3 left, 4 failed.'}),
    ProtocolMin: version('Minimum protocol version the node understands.'),
    ProtocolMax: version('Maximum protocol version the node understands.'),
    ProtocolCur: version('Protocol version it speaks.'),
    DelegateMin: version('The same as `ProtocolMin`.'),
    DelegateMax: version('The same as `ProtocolMax`.'),
    DelegateCur: version('The same as `ProtocolCur`.'),
    id: Type.String({description: 'Identity of the node, kept over restarts.'}),
    statusText: Type.Enum(['alive', 'leaving', 'left', 'failed'], {
      description: '`Status` in a word.',
    }),
  },
  {$id: 'Member', description: 'A node of the cluster.'},
)
export type MemberJson = Static<typeof Member>

export function encodeMember(member: MemberRecord): MemberJson {
  return {
    Name: member.name,
    Addr: member.address,
    Port: member.port,
    // Whatever version wrote its record; over them what the record says.
    Tags: {...systemTags(member), ...member.tags},
    Status: MEMBER_STATUS_CODES[member.status],
    ProtocolMin: PROTOCOL_MIN,
    ProtocolMax: PROTOCOL_MAX,
    ProtocolCur: PROTOCOL_MAX,
    DelegateMin: PROTOCOL_MIN,
    DelegateMax: PROTOCOL_MAX,
    DelegateCur: PROTOCOL_MAX,
    id: member.id,
    statusText: member.status,
  }
}
