/** Routes of the settings that are stored in the cluster. */
import type {FastifyInstance} from 'fastify'
import type {Operations} from '../../operations/operations.ts'
import type {Settings as StoredSettings} from '../../operations/settings.ts'
import {decodeBody} from '../../wire/body.ts'
import {NewSettings, Settings, type SettingsJson} from '../../wire/settings.ts'
import {schemaRef} from '../../wire/shapes.ts'
import {reads} from '../security/access.ts'
import {describeRoute} from '../api/describe-route.ts'
import {sendJson} from '../api/reply.ts'
import {actorOf, bodyOf} from '../api/request.ts'
import {encodeFiring} from './firing.ts'

export function routeSettings(app: FastifyInstance, operations: Operations): void {
  app.get('/settings', {
    ...describeRoute({
      access: reads('/v1/settings'),
      operationId: 'getSettings',
      summary: 'The settings that are stored in the cluster',
      tag: 'administration',
      reply: schemaRef(Settings),
    }),
    handler: async (request, reply) =>
      sendJson(request, reply, 200, encodeSettings(await operations.settings())),
  })
  app.patch('/settings', {
    ...describeRoute({
      access: 'management',
      operationId: 'changeSettings',
      summary: 'Change the default time zone',
      description:
        'Jobs without a time zone of their own are planned anew from now on. This continues after the ' +
        'reply: `next` of some may be the old one for a moment. Planned times that have passed do not run. ' +
        '[What it does](../how-to/run-a-cluster.md#change-the-default-time-zone).',
      tag: 'administration',
      body: schemaRef(NewSettings),
      reply: schemaRef(Settings),
      errors: ['body_invalid'],
    }),
    handler: async (request, reply) => {
      const changed = await operations.changeSettings(
        decodeBody(NewSettings, bodyOf(request), 'The settings cannot be changed'),
        actorOf(request),
      )
      return sendJson(request, reply, 200, encodeSettings(changed))
    },
  })
}

function encodeSettings({timezone, submissionsPaused, firing}: StoredSettings): SettingsJson {
  return {timezone, submissions_paused: submissionsPaused, firing: encodeFiring(firing)}
}
