/**
 * Cost of a token and its policies for a request: processor time of the server for each GET of a job,
 * without a token, and with a client token among many tokens and policies.
 */
import type {handlers as Client} from '../children/http-client.ts'
import {Link} from '../link.ts'
import {processorTimeMs} from '../processor-time.ts'
import type {Scratch} from '../scratch.ts'
import type {Section} from '../section.ts'
import {ServerProcess} from '../server-process.ts'

const TOKENS = 1_000
const POLICIES = 200
/** The most that one token can have. */
const POLICIES_OF_TOKEN = 16
/** Repetitions that make the unit of processor time, 10 ms, negligible. */
const REQUESTS = 4_000
const WARM_UP_REQUESTS = 2_000
const RATIO_MAX = 1.1
const JOB = {name: 'team-0-job', schedule: '@manually', executor: 'shell'}

interface Measured {
  readonly name: string
  readonly server: ServerProcess
  readonly token: string
}

export const access: Section = {
  name: 'access',
  measure: async ({plan, scratch, figures, note, say, again}) => {
    const open = await startServer(scratch)
    const locked = await startServer(scratch)
    say(`${TOKENS} tokens, ${POLICIES} policies`)
    const token = await fill(locked)
    const measured: readonly Measured[] = [
      {name: 'without a token', server: open, token: ''},
      {name: `with one of ${TOKENS} tokens`, server: locked, token},
    ]
    const client = Link.start<typeof Client>(scratch, 'http-client.ts')
    const walk = ({server, token: secret}: Measured, count: number) =>
      client.ask('walk', {urls: [`${server.url}/v1/jobs/${JOB.name}`], count, token: secret})
    for (const each of measured) await walk(each, WARM_UP_REQUESTS)
    for (let round = 0; again(round, plan.rounds); round += 1) {
      say(`round ${round + 1} of ${plan.rounds}`)
      const costs: number[] = []
      for (const each of measured) {
        const before = processorTimeMs(each.server.pid)
        await walk(each, REQUESTS)
        const after = processorTimeMs(each.server.pid)
        if (before === null || after === null)
          return note('There is no /proc: nothing is measured.')
        const eachMs = (after - before) / REQUESTS
        figures.add(`processor time ${each.name}`, 'ms', eachMs)
        costs.push(eachMs)
      }
      figures.add('with / without', '×', costs[1]! / costs[0]!, {atMost: RATIO_MAX})
    }
    await Promise.all([client.end(), open.stop(), locked.stop()])
  },
}

async function startServer(scratch: Scratch): Promise<ServerProcess> {
  const server = await ServerProcess.start(scratch, {dataDir: await scratch.folder(), slots: 1})
  await server.store([{...JOB, executor_config: {command: 'true'}}])
  return server
}

/** Stores the policies and tokens; returns the secret of a token that may read the job. */
async function fill({url}: ServerProcess): Promise<string> {
  let secret = ''
  const post = async (path: string, body: unknown) => {
    const response = await fetch(`${url}/v1/acl/${path}`, {
      method: 'POST',
      headers: {'x-service-token': secret},
      body: JSON.stringify(body),
    })
    if (!response.ok) throw new Error(`${path} answered ${response.status}`)
    return (await response.json()) as {readonly secret: string}
  }
  for (let team = 0; team < POLICIES; team += 1)
    await post(`policies/team-${team}`, {
      path: {
        '/v1/jobs': {capabilities: ['list']},
        [`/v1/jobs/team-${team}-*`]: {capabilities: ['create', 'read', 'update', 'delete']},
        [`/v1/jobs/team-${team}-*/**`]: {capabilities: ['create', 'read', 'list']},
      },
    })
  secret = (await post('bootstrap', {})).secret
  let last = ''
  for (let index = TOKENS - 1; index > 0; index -= 1) {
    const policies = Array.from({length: POLICIES_OF_TOKEN}, (_, at) => {
      return `team-${(index - 1 + at) % POLICIES}`
    })
    last = (await post('tokens', {name: `token ${index}`, type: 'client', policies})).secret
  }
  return last
}
