/** Tokens and policies for tests of the HTTP API. */
import type {TestContext} from 'node:test'
import {type ApiOptions, type Reply, startApi} from './harness.ts'

/** The management token of the configuration. */
export const ADMIN = 'the-token-of-the-configuration'
export const TEAM_A = {
  path: {
    '/v1/jobs': {capabilities: ['list']},
    '/v1/busy': {capabilities: ['list']},
    '/v1/launches': {capabilities: ['list']},
    '/v1/executions': {capabilities: ['list']},
    '/v1/problems': {capabilities: ['list']},
    '/v1/events': {capabilities: ['list']},
    '/v1/jobs/team-a-*': {capabilities: ['create', 'read', 'update', 'delete']},
    '/v1/jobs/team-a-*/**': {capabilities: ['create', 'read', 'list', 'delete']},
  },
}

export interface Client {
  readonly accessor: string
  readonly secret: string
  readonly headers: Record<string, string>
  call(method: string, path: string, body?: unknown): Promise<Reply>
}

/** An API with the token `ADMIN`, and calls with it and with other tokens. */
export async function startLockedApi(test: TestContext, options: ApiOptions = {}) {
  const api = await startApi(test, {token: ADMIN, ...options})
  const headers = {'x-service-token': ADMIN}
  const as = (accessor: string, secret: string): Client => {
    const own = {'x-service-token': secret}
    return {
      accessor,
      secret,
      headers: own,
      call: (method, path, body) => api.call(method, path, {body, headers: own}),
    }
  }
  const admin = as('', ADMIN)
  const ok = (reply: Reply) => {
    if (reply.status >= 300) throw new Error(reply.text)
    return reply.json
  }
  return {
    api,
    admin,
    headers,
    policy: async (name: string, rules: unknown) =>
      ok(await admin.call('POST', `/v1/acl/policies/${name}`, rules)),
    token: async (type: string, more: Readonly<Record<string, unknown>> = {}) => {
      const {accessor, secret} = ok(
        await admin.call('POST', '/v1/acl/tokens', {name: type, type, ...more}),
      )
      return as(accessor, secret)
    },
    /** A client token with one policy of these rules. */
    client: async (name: string, rules: unknown) => {
      ok(await admin.call('POST', `/v1/acl/policies/${name}`, rules))
      const body = {name, type: 'client', policies: [name]}
      const {accessor, secret} = ok(await admin.call('POST', '/v1/acl/tokens', body))
      return as(accessor, secret)
    },
    job: async (name: string, more: Readonly<Record<string, unknown>> = {}) =>
      ok(await admin.call('POST', '/v1/jobs', definition(name, more))),
  }
}

export type LockedApi = Awaited<ReturnType<typeof startLockedApi>>

export function definition(name: string, more: Readonly<Record<string, unknown>> = {}) {
  const executor_config = {command: 'true'}
  return {name, schedule: '@manually', executor: 'shell', executor_config, ...more}
}

/** A restore file as a multipart body with its content type. */
export function upload(jobs: unknown) {
  const text = [
    '--border',
    'content-disposition: form-data; name="file"; filename="jobs.json"',
    '',
    JSON.stringify(jobs),
    '--border--',
    '',
  ].join('\r\n')
  return {body: text, headers: {'content-type': 'multipart/form-data; boundary=border'}}
}
