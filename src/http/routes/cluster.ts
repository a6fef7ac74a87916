/** Routes of the cluster: members, leader, leaving, pause switch, events. */
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {encodeMember, Member} from '../../wire/member.ts'
import {PauseStatus} from '../../wire/settings.ts'
import {PageQuery, readSlice} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import type {EventStreams} from '../api/event-streams.ts'
import {creates, deletes, lists, reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import type {HttpOptions} from '../options.ts'
import {sendJson, sendRows} from '../api/reply.ts'
import {actorOf, queryOf} from '../api/request.ts'

export function routeCluster(
  app: FastifyInstance,
  operations: Operations,
  options: HttpOptions,
  events: EventStreams,
): void {
  routeMembers(app, operations, options)
  routePause(app, operations)
  app.get('/events', {
    exposeHeadRoute: false,
    ...describeRoute({
      access: lists('/v1/events'),
      stream: true,
      operationId: 'followEvents',
      summary: 'The events of this server, as server-sent events',
      description: '[Event streams](#event-streams).',
      tag: 'cluster',
      reply: Type.String(),
      replyType: 'text/event-stream',
      errors: ['too_many_streams'],
    }),
    handler: (request, reply) => events.open(request, reply),
  })
}

function routeMembers(app: FastifyInstance, operations: Operations, options: HttpOptions): void {
  app.get('/members', {
    ...describeRoute({
      access: lists('/v1/members'),
      operationId: 'listMembers',
      isOfContract: true,
      summary: 'The nodes of the cluster',
      description:
        '`scheduling` says whether a node takes work (`active`, `cordoned`, `draining`, `drained`); ' +
        '`running` of `slots` is what it runs, `waiting` what is pending for it, counted up to 1,000.',
      tag: 'cluster',
      query: PageQuery,
      reply: Type.Array(schemaRef(Member)),
    }),
    handler: async (request, reply) => {
      const {start, end} = readSlice(queryOf(request))
      const members = await operations.members()
      const page = {total: members.length, rows: members.slice(start, end ?? members.length)}
      return sendRows(request, reply, options.clock, page, encodeMember)
    },
  })
  routeRemoval(app, operations)
  app.get('/leader', {
    ...describeRoute({
      access: reads('/v1/leader'),
      operationId: 'getLeader',
      isOfContract: true,
      summary: 'The leader of the cluster',
      tag: 'cluster',
      reply: schemaRef(Member),
      errors: ['no_leader'],
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, encodeMember(await operations.leader())),
  })
  app.get('/isleader', {
    ...describeRoute({
      access: reads('/v1/isleader'),
      operationId: 'isLeader',
      isOfContract: true,
      summary: 'Whether this server is the leader: 200, or 404 with an empty body',
      tag: 'cluster',
      reply: Type.String(),
      otherReplies: {404: {about: 'This server is a follower.', reply: null}},
    }),
    handler: (request, reply) =>
      operations.isLeader()
        ? sendJson(request, reply, 200, 'I am a leader')
        : reply.code(404).send(),
  })
  app.post('/leave', {
    ...describeRoute({
      access: creates('/v1/leave'),
      operationId: 'leave',
      isOfContract: true,
      summary: 'Drain this node: finish its executions, leave the cluster and exit',
      tag: 'cluster',
      reply: Type.Array(schemaRef(Member)),
    }),
    handler: async (request, reply) => {
      const members = await operations.leave(actorOf(request))
      return sendJson(request, reply, 200, members.map(encodeMember))
    },
  })
}

function routeRemoval(app: FastifyInstance, operations: Operations): void {
  app.delete('/members/:member', {
    ...describeRoute({
      access: deletes('/v1/members/:member'),
      operationId: 'removeMember',
      summary: 'Remove a member that has left or failed',
      description:
        'Its running executions become `lost` and are retried as their jobs say. Its pending executions go ' +
        'to other nodes. A node that was only disconnected joins again. ' +
        '[How to](../how-to/run-a-cluster.md#remove-a-node).',
      tag: 'cluster',
      params: {
        member: 'Id of the member, or its name if only one member of that name has left or failed.',
      },
      reply: schemaRef(Member),
      errors: ['member_unknown', 'member_present', 'member_ambiguous'],
    }),
    handler: async (request: FastifyRequest<{Params: {member: string}}>, reply) => {
      const removed = await operations.removeMember(request.params.member, actorOf(request))
      return sendJson(request, reply, 200, encodeMember(removed))
    },
  })
}

function routePause(app: FastifyInstance, operations: Operations): void {
  app.get('/pause', {
    ...describeRoute({
      access: reads('/v1/pause'),
      operationId: 'getPause',
      isOfContract: true,
      summary: 'Whether submissions are paused',
      tag: 'administration',
      reply: schemaRef(PauseStatus),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, {paused: await operations.paused()}),
  })
  const setPaused = (paused: boolean) => async (request: FastifyRequest, reply: FastifyReply) => {
    await operations.setPaused(paused, actorOf(request))
    return sendJson(request, reply, 200, {paused})
  }
  app.post('/pause', {
    ...describeRoute({
      access: creates('/v1/pause'),
      operationId: 'pause',
      isOfContract: true,
      summary: 'Pause submissions: jobs cannot be created, replaced, restored or reverted',
      description:
        'Jobs still run as planned, and can be run by hand, enabled, disabled and deleted.',
      tag: 'administration',
      reply: schemaRef(PauseStatus),
    }),
    handler: setPaused(true),
  })
  app.post('/unpause', {
    ...describeRoute({
      access: creates('/v1/unpause'),
      operationId: 'unpause',
      isOfContract: true,
      summary: 'Resume submissions',
      tag: 'administration',
      reply: schemaRef(PauseStatus),
    }),
    handler: setPaused(false),
  })
}
