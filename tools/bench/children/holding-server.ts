/**
 * A server in a process that allocates memory before the server starts: half small objects on the heap, half
 * buffers outside it, all touched. To the system it looks like a busy node.
 */
import {readFileSync} from 'node:fs'
import {availableParallelism} from 'node:os'
import {loadConfig} from '../../../src/config/server.ts'
import {startServer, type RunningServer} from '../../../src/app/server.ts'
import {parseAddress} from '../../../src/store/postgres/url.ts'
import {answerQuestions} from '../link.ts'

const MIB = 2 ** 20
/** Approximate heap size of one entry of the list below: an object of four fields, a string, a number. */
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
