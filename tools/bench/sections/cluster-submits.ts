/**
 * Submits a second of many HTTP clients, to one server and to several, compared with the bare store (one at a
 * time) and with a plain client of the same PostgreSQL.
 */
import type {handlers as Client} from '../children/http-client.ts'
import type {handlers as PlainCommits} from '../children/plain-commits.ts'
import type {handlers as BareStore} from '../children/store.ts'
import {Cluster, startPostgres} from '../cluster.ts'
import {quantile} from '../figures.ts'
import {Link} from '../link.ts'
import type {Bench, Section} from '../section.ts'

/** Warm-up: the first statements of a connection are parsed and planned. */
const WARM_UP_MS = 500

export const clusterSubmits: Section = {
  name: 'submits',
  measure: async (bench) => {
    const {plan, scratch} = bench
    const postgres = await startPostgres(scratch)
    const bareDir = await scratch.folder()
    const parts = {
      bench,
      client: Link.start<typeof Client>(scratch, 'http-client.ts'),
      plain: Link.start<typeof PlainCommits>(scratch, 'plain-commits.ts'),
      bareStore: Link.start<typeof BareStore>(scratch, 'store.ts'),
      plainUrl: await postgres.database(),
    }
    const {client, plain, bareStore} = parts
    await bareStore.ask('open', {dataDir: bareDir, store: await postgres.database()})
    await bareStore.ask('submit', {inFlight: plan.submitClients, ms: WARM_UP_MS})
    for (const servers of plan.cluster.servers) {
      const cluster = await Cluster.start(scratch, postgres, {servers, slots: 1})
      await flood(parts, cluster, WARM_UP_MS, 'warm')
      for (let round = 0; bench.again(round, plan.cluster.submitRounds); round += 1) {
        bench.say(`${servers} servers, round ${round + 1} of ${plan.cluster.submitRounds}`)
        await measureRound(parts, cluster, `round-${round}`)
      }
      await cluster.end()
    }
    await bareStore.ask('close', null)
    await Promise.all([client.end(), plain.end(), bareStore.end()])
  },
}

interface Parts {
  readonly bench: Bench
  readonly client: Link<typeof Client>
  readonly plain: Link<typeof PlainCommits>
  readonly bareStore: Link<typeof BareStore>
  readonly plainUrl: string
}

async function measureRound(parts: Parts, cluster: Cluster, prefix: string): Promise<void> {
  const {bench, plain, bareStore, plainUrl: url} = parts
  const {figures, plan} = bench
  const {submitClients: clients, submitMs: ms} = plan
  const commits = await plain.ask('commits', {url, clients: 1, ms})
  const one = await bareStore.ask('submit', {inFlight: 1, ms})
  const many = await bareStore.ask('submit', {inFlight: clients, ms})
  const api = await flood(parts, cluster, ms, prefix)
  const {length} = cluster.servers
  const label = `API of ${length} ${length === 1 ? 'server' : 'servers'}, ${clients} clients`
  figures.add('one plain client, a commit each', '/s', commits.perSecond)
  figures.add('bare store, one at a time', '/s', one.perSecond)
  figures.add(`bare store, ${clients} in flight`, '/s', many.perSecond)
  figures.add('group commit: in flight / one at a time', '×', many.perSecond / one.perSecond)
  figures.add(label, '/s', api.perSecond)
  figures.add(`${label}, p50`, 'ms', api.p50Ms)
  figures.add(`${label}, p99`, 'ms', api.p99Ms)
  figures.add(`${label} / bare store, one at a time`, '×', api.perSecond / one.perSecond)
  figures.add(`${label} / one plain client`, '×', api.perSecond / commits.perSecond)
}

/** Clients are spread evenly over the servers. Latencies are those of the slowest server. */
async function flood(
  {bench, client}: Parts,
  {servers}: Cluster,
  ms: number,
  prefix: string,
): Promise<{perSecond: number; p50Ms: number; p99Ms: number}> {
  const clients = Math.ceil(bench.plan.submitClients / servers.length)
  const answers = await Promise.all(
    servers.map(({url}, index) =>
      client.ask('submit', {url: `${url}/v1/jobs`, clients, ms, prefix: `${prefix}-${index}`}),
    ),
  )
  return {
    perSecond: answers.reduce((sum, {perSecond}) => sum + perSecond, 0),
    p50Ms: quantile(
      answers.map(({p50Ms}) => p50Ms),
      1,
    ),
    p99Ms: quantile(
      answers.map(({p99Ms}) => p99Ms),
      1,
    ),
  }
}
