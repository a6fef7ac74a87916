/** The route of problems: what went wrong over all jobs. */
import type {FastifyInstance} from 'fastify'
import type {Operations} from '../../operations/operations.ts'
import {encodeProblems, Problems, ProblemsQuery, readProblemsQuery} from '../../wire/problems.ts'
import {encodeCursor} from '../../wire/query.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {callerOf, queryOf} from '../api/request.ts'
import {lists} from '../security/access.ts'

export function routeProblems(app: FastifyInstance, operations: Operations): void {
  app.get('/problems', {
    ...describeRoute({
      access: lists('/v1/problems'),
      operationId: 'listProblems',
      summary: 'What went wrong over all jobs, folded by cause, and whether it is over',
      description:
        'Computed at each request. Contains only jobs that the caller may read; failed nodes only with ' +
        '`list` on `/v1/members`, and channels only with `list` on `/v1/notices/channels`.',
      tag: 'history',
      query: ProblemsQuery,
      reply: schemaRef(Problems),
      errors: ['cursor_invalid'],
    }),
    handler: async (request, reply) => {
      const query = readProblemsQuery(queryOf(request))
      const {next, ...problems} = await operations.problems(query, callerOf(request))
      return sendJson(request, reply, 200, encodeProblems(problems, encodeCursor(next)))
    },
  })
}
