/** Routes of firing: pauses of planned times, and resuming a store that was put back. */
import type {FastifyInstance} from 'fastify'
import {Type} from 'typebox'
import type {Firing} from '../../operations/firing.ts'
import type {Operations} from '../../operations/operations.ts'
import {
  decodePause,
  decodePausedJobs,
  encodePause,
  FiringStatus,
  type FiringStatusJson,
  NewPause,
  PausedJobs,
  Resumed,
} from '../../wire/firing.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {creates, reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson, setWarnings} from '../api/reply.ts'
import {actorOf, bodyOf} from '../api/request.ts'

export function routeFiring(app: FastifyInstance, operations: Operations): void {
  app.get('/firing', {
    ...describeRoute({
      access: reads('/v1/firing'),
      operationId: 'getFiring',
      summary: 'Whether planned times are launched, and the pauses of firing',
      tag: 'administration',
      reply: schemaRef(FiringStatus),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, encodeFiring(await operations.firing())),
  })
  app.post('/firing/pause', {
    ...describeRoute({
      access: creates('/v1/firing/pause'),
      operationId: 'pauseFiring',
      summary: 'Pause firing: planned times of the jobs are skipped',
      description:
        'After the reply no planned time of these jobs runs, on any server, and none is caught up later. ' +
        'Dependents among these jobs do not run either. Manual runs, retries and what is running continue. ' +
        'A pause of the same `jobs` is replaced. [How to](../how-to/pause.md).',
      tag: 'administration',
      body: schemaRef(NewPause),
      reply: schemaRef(FiringStatus),
      errors: ['body_invalid', 'too_many_pauses'],
    }),
    handler: async (request, reply) => {
      const {firing, warnings} = await operations.pauseFiring(
        decodePause(bodyOf(request)),
        actorOf(request),
      )
      setWarnings(reply, warnings)
      return sendJson(request, reply, 200, encodeFiring(firing))
    },
  })
  app.post('/firing/resume', {
    ...describeRoute({
      access: creates('/v1/firing/resume'),
      operationId: 'endPause',
      summary: 'End a pause of firing',
      description: 'The jobs run at their next planned times. What was skipped stays skipped.',
      tag: 'administration',
      body: schemaRef(PausedJobs),
      reply: Type.Object({
        ended: Type.Boolean({description: 'False when there was no such pause.'}),
        firing: schemaRef(FiringStatus),
      }),
      errors: ['body_invalid'],
    }),
    handler: async (request, reply) => {
      const {ended, firing} = await operations.endPause(
        decodePausedJobs(bodyOf(request)),
        actorOf(request),
      )
      return sendJson(request, reply, 200, {ended, firing: encodeFiring(firing)})
    },
  })
  app.post('/resume', {
    ...describeRoute({
      access: creates('/v1/resume'),
      operationId: 'resumeFiring',
      summary: 'Resume firing in a store that was put back from a backup',
      description:
        'All jobs are planned from now on. Times before now are recorded as missed. ' +
        '[How to](../how-to/back-up-and-restore.md#start-a-restored-store).',
      tag: 'administration',
      reply: schemaRef(Resumed),
    }),
    handler: async (request, reply) => {
      const resumed = await operations.resumeFiring(actorOf(request))
      return sendJson(request, reply, 200, {resumed})
    },
  })
}

export function encodeFiring({store, pauses}: Firing): FiringStatusJson {
  return {
    paused: store !== null || pauses.length > 0,
    store: store ?? '',
    pauses: pauses.map(encodePause),
  }
}
