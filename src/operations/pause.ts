/** The switch that stops jobs from being created or changed. Running and scheduling go on. */
import type {Events} from '../ports/events.ts'
import type {PauseStatusJson} from '../wire/cluster.ts'
import type {PatientStore} from './store-deadlines.ts'

export function createPause({events}: {readonly events: Events}, store: PatientStore) {
  async function paused(): Promise<PauseStatusJson> {
    return {paused: await store.read((data) => data.paused())}
  }

  /** Durable and for the whole cluster; setting what is set already changes nothing. */
  async function setPaused(wanted: boolean): Promise<PauseStatusJson> {
    await store.write((data) => data.setPaused(wanted))
    events.emit('submissions_paused', {paused: wanted})
    return {paused: wanted}
  }

  return {paused, setPaused}
}
