/** Routes of the audit log. */
import type {FastifyInstance} from 'fastify'
import {Type} from 'typebox'
import type {Operations} from '../../operations/operations.ts'
import {AuditEntry, AuditListQuery, encodeAuditEntry, readAuditQuery} from '../../wire/audit.ts'
import {Refer} from '../../wire/shapes.ts'
import {lists} from '../access.ts'
import {describeRoute} from '../openapi.ts'
import {type ListParts, sendRows} from '../reply.ts'
import {callerOf, queryOf} from '../request.ts'

export function routeAudit(app: FastifyInstance, operations: Operations, parts: ListParts): void {
  app.get('/audit', {
    config: {access: lists('/v1/audit')},
    schema: describeRoute({
      operationId: 'listAudit',
      summary: 'The audit log: every change and every refused access, newest first',
      description: 'A `client` token sees the entries of the jobs that it may read, and no others.',
      tag: 'administration',
      query: AuditListQuery,
      reply: Type.Array(Refer(AuditEntry)),
      refusals: {400: 'A parameter is invalid.'},
    }),
    handler: async (request, reply) => {
      const page = await operations.audit(readAuditQuery(queryOf(request)), callerOf(request))
      return sendRows(request, reply, parts.clock, page, encodeAuditEntry)
    },
  })
}
