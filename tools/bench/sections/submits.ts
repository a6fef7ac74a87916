/** Submits a second of many HTTP clients, compared with the bare store and a bare HTTP server. */
import type {handlers as BareHttp} from '../children/bare-http.ts'
import type {handlers as Client} from '../children/http-client.ts'
import type {handlers as BareStore} from '../children/store.ts'
import {Link} from '../link.ts'
import type {Section} from '../section.ts'
import {ServerProcess} from '../server-process.ts'

/** Warm-up: rates over a small file differ from those of one in use. */
const WARM_UP_MS = 300

export const submits: Section = {
  name: 'submits',
  measure: async ({plan, scratch, figures, say, again}) => {
    const {submitClients: clients, submitMs: ms} = plan
    const [dataDir, bareDir] = [await scratch.folder(), await scratch.folder()]
    const server = await ServerProcess.start(scratch, {dataDir, slots: 1})
    const client = Link.start<typeof Client>(scratch, 'http-client.ts')
    const bareStore = Link.start<typeof BareStore>(scratch, 'store.ts')
    const bareHttp = Link.start<typeof BareHttp>(scratch, 'bare-http.ts')
    await bareStore.ask('open', {dataDir: bareDir})
    const {url: bareUrl} = await bareHttp.ask('listen', null)
    const url = `${server.url}/v1/jobs`
    await client.ask('submit', {url, clients, ms: WARM_UP_MS, prefix: 'warm'})
    await bareStore.ask('submit', {inFlight: clients, ms: WARM_UP_MS})
    for (let round = 0; again(round, plan.submitRounds); round += 1) {
      say(`round ${round + 1} of ${plan.submitRounds}`)
      const one = await bareStore.ask('submit', {inFlight: 1, ms})
      const many = await bareStore.ask('submit', {inFlight: clients, ms})
      const api = await client.ask('submit', {url, clients, ms, prefix: `round-${round}`})
      const bare = await client.ask('submit', {url: bareUrl, clients, ms, prefix: 'bare'})
      figures.add('bare store, one at a time (a commit each)', '/s', one.perSecond)
      figures.add(`bare store, ${clients} in flight`, '/s', many.perSecond)
      figures.add(`bare HTTP server, ${clients} clients`, '/s', bare.perSecond)
      figures.add(`API, ${clients} clients`, '/s', api.perSecond)
      figures.add(`API, ${clients} clients, p50`, 'ms', api.p50Ms)
      figures.add(`API, ${clients} clients, p99`, 'ms', api.p99Ms)
      figures.add('group commit: in flight / one at a time', '×', many.perSecond / one.perSecond)
      figures.add('API / bare store, one at a time', '×', api.perSecond / one.perSecond)
      figures.add('API / bare store in flight', '×', api.perSecond / many.perSecond)
      figures.add('API / bare HTTP server', '×', api.perSecond / bare.perSecond)
    }
    await bareStore.ask('close', null)
    await Promise.all([bareStore.end(), bareHttp.end(), client.end(), server.stop()])
    await Promise.all([dataDir, bareDir].map((folder) => scratch.remove(folder)))
  },
}
