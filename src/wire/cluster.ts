/** Cluster and service in JSON: status, members, pause, policies, statistics, planned times, health. */
import {Type, type Static} from 'typebox'
import {type MemberRecord, type MemberStatus, type Scheduling, systemTags} from '../core/node.ts'
import {OptionalTime, schemaRef, TextMap, Time} from './shapes.ts'
import {formatOptionalTime, formatTime} from './time.ts'

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

export const PauseStatus = Type.Object(
  {paused: Type.Boolean({description: 'True when submissions are paused.'})},
  {
    $id: 'PauseStatus',
    description: 'Whether jobs can be created, replaced, restored and reverted.',
  },
)
export type PauseStatusJson = Static<typeof PauseStatus>

export const Firing = Type.Object(
  {resumed: Type.Boolean({description: 'False when firing was not paused.'})},
  {$id: 'Firing', description: 'Result of resuming firing.'},
)
export type FiringJson = Static<typeof Firing>

export const Policy = Type.Object(
  {
    Name: Type.String({description: 'Name of the policy.'}),
    Rules: Type.String({description: 'The rules, as the text in which they were sent.'}),
  },
  {$id: 'Policy', description: 'A named set of access rules.'},
)
export type PolicyJson = Static<typeof Policy>

export function encodePolicy(policy: {readonly name: string; readonly rules: string}): PolicyJson {
  return {Name: policy.name, Rules: policy.rules}
}

export const ExecutionStat = Type.Object(
  {
    date: Time('Midnight UTC of the day.'),
    success_count: Type.Integer({description: 'Executions of that day that succeeded.'}),
    failed_count: Type.Integer({
      description: 'Executions of that day that ended in another state.',
    }),
  },
  {$id: 'ExecutionStat', description: 'Executions of one day.'},
)
export const ExecutionStats = Type.Object(
  {stats: Type.Array(schemaRef(ExecutionStat))},
  {$id: 'ExecutionStats', description: 'One record a day, oldest first.'},
)
export type ExecutionStatsJson = Static<typeof ExecutionStats>

/** `date` = midnight UTC in ms since the epoch. */
export function encodeStatistics(
  days: readonly {
    readonly date: number
    readonly successCount: number
    readonly failedCount: number
  }[],
): ExecutionStatsJson {
  return {
    stats: days.map((day) => ({
      date: formatTime(day.date),
      success_count: day.successCount,
      failed_count: day.failedCount,
    })),
  }
}

export const PlannedTimes = Type.Object(
  {
    schedule: Type.String({description: 'The schedule.'}),
    timezone: Type.String({description: 'The time zone of the schedule.'}),
    next: Type.Array(Time('A planned time.'), {
      description: 'The next planned times, soonest first.',
    }),
    planned: Type.Array(
      Type.Object({
        at: Time('The planned time, as in `next`.'),
        local: Type.String({description: 'The same in the time zone, with its offset.'}),
        shift: Type.Enum(['', 'moved', 'first_pass', 'second_pass'], {
          description:
            'What daylight saving does to it. `moved`: its wall time does not exist on that day. ' +
            '`first_pass`, `second_pass`: its wall time is shown twice.',
        }),
        moved_from: Type.String({description: 'Of `moved`: that wall time. Else empty.'}),
      }),
      {description: 'The same times, as the wall clock shows them.'},
    ),
    clock_changes: Type.Array(
      Type.Object({
        at: Time('The change.'),
        before: Type.String({description: 'Offset before it, such as `+01:00`.'}),
        after: Type.String({description: 'Offset after it.'}),
      }),
      {description: 'Changes of the wall clock up to the last of these times.'},
    ),
    more: Type.Boolean({description: 'Whether more planned times follow, before `to`.'}),
    reason: Type.Enum(['', 'disabled', 'dependent', 'no_schedule', 'expired', 'ended'], {
      description:
        'Of a stored job: why it has no planned times; empty = it has. `dependent`: it runs after its ' +
        'parent. `no_schedule`: only by hand. `expired`: its `expires_at` ends them. `ended`: its ' +
        'schedule has no more.',
    }),
    paused: Type.Boolean({description: 'Whether firing of the stored job is paused now.'}),
    paused_until: OptionalTime(
      'Planned times before it are skipped. `null`: until the pause is ended, or no pause.',
    ),
  },
  {$id: 'PlannedTimes', description: 'The next planned times of a schedule.'},
)
export type PlannedTimesJson = Static<typeof PlannedTimes>

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

export const Problem = Type.Object(
  {
    type: Type.String({description: 'URN of the error code.'}),
    title: Type.String({description: 'The error code in words.'}),
    status: Type.Integer({description: 'The HTTP status.'}),
    detail: Type.String({description: 'What is wrong with this request, and the fix.'}),
    message: Type.String({description: 'The same as `detail`, for clients that read this member.'}),
    code: Type.String({description: 'Stable error code.'}),
  },
  {$id: 'Problem', description: 'An error (RFC 9457).', additionalProperties: true},
)
export type ProblemJson = Static<typeof Problem>

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
    deadline: Type.Optional(
      Type.String({
        description:
          'A duration: what still runs then is stopped, and is `lost`. 10 minutes unless set, ' +
          'at most 7 days.',
      }),
    ),
  },
  {$id: 'Drain', description: 'How a node is drained.'},
)

/** Fields of a member that the API shows besides its record. */
export interface MemberExtras {
  readonly isLeader: boolean
  readonly scheduling: Scheduling
  readonly running: number
  readonly waiting: number
}

/** A record of an older version may lack system tags; tags in the record take precedence. */
export function encodeTags(member: MemberRecord): Record<string, string> {
  return {...systemTags(member), ...member.tags}
}

export function encodeMember(member: MemberRecord & MemberExtras): MemberJson {
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
