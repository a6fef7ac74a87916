/**
 * A whole server in a process that holds memory before the server starts: half of it small objects on
 * the collected heap, half of it buffers beside it, both really touched. What a node with much going on
 * looks like to the system.
 */
import {readFileSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {loadConfig} from '../../../src/config/server.ts'
import {startServer, type RunningServer} from '../../../src/app/server.ts'
import {parseAddress} from '../../../src/store/postgres/url.ts'
import {answerQuestions} from '../link.ts'

const MIB = 2 ** 20
/** About what one entry of the list below takes on the heap: an object of four fields, a text, a number. */
const OBJECT_BYTES = 96

const held: unknown[] = []
let server: RunningServer | null = null

export const handlers = {
  start: async ({argv, heldMiB}: {argv: readonly string[]; heldMiB: number}) => {
    hold(heldMiB)
    const loaded = loadConfig(argv, {}, host(), parseAddress)
    if (!loaded.ok) throw new Error(loaded.problem)
    server = await startServer(loaded.config, {ready: () => undefined})
    const {heapUsed, external, rss} = process.memoryUsage()
    return {
      url: server.url,
      heapMiB: heapUsed / MIB,
      externalMiB: external / MIB,
      rssMiB: rss / MIB,
    }
  },
}

function hold(mib: number): void {
  const bytes = (mib / 2) * MIB
  const objects = Array.from({length: Math.floor(bytes / OBJECT_BYTES)}, (_, index) => {
    return {index, next: index + 0.5, name: `object ${index}`, live: true}
  })
  const buffers = Array.from({length: Math.floor(mib / 2)}, () => Buffer.alloc(MIB, 1))
  held.push(objects, buffers)
}

function host() {
  return {
    name: 'bench',
    cores: availableParallelism(),
    timezone: 'UTC',
    directory: process.cwd(),
    readFile: (path: string) => readFileSync(path, 'utf8'),
  }
}

answerQuestions(handlers, async () => {
  await server?.stop()
})
