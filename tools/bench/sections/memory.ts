/**
 * Memory of a server and an agent that have nothing to do, and of a saturated server. They are started with
 * `bin/belfry.js`, as an installed Belfry is. Linux only.
 */
import {type ChildProcess, spawn, spawnSync} from 'node:child_process'
import {existsSync} from 'node:fs'
import {delimiter, join} from 'node:path'
import {fileURLToPath} from 'node:url'
import {cleanEnvironment} from '../link.ts'
import {memoryUse, type MemoryUse, type Role} from '../memory-use.ts'
import type {Bench, Section} from '../section.ts'
import {saturate} from '../saturate.ts'
import {lineOf, ServerProcess, terminated} from '../server-process.ts'

const BIN = fileURLToPath(new URL('../../../bin/belfry.js', import.meta.url))
/** Jobs a second to start with. A server that can run more gets more until it is saturated. */
const FIRST_GUESS = 300

export const memory: Section = {
  name: 'memory',
  measure: async (bench) => {
    const {plan, scratch, say} = bench
    const command = [otherNode() ?? process.execPath, BIN]
    const [dataDir, agentDir] = [await scratch.folder(), await scratch.folder()]
    say('idle server and agent')
    const server = await ServerProcess.start(scratch, {dataDir, command})
    const agent = await startAgent(bench, [...command, 'agent'], server.url, agentDir)
    await new Promise((resolve) => setTimeout(resolve, plan.idleMs))
    addFigures(bench, 'idle server', memoryUse(server.pid, 'server'))
    addFigures(bench, 'idle agent', memoryUse(agent.pid!, 'agent'))
    await terminated(agent)
    await server.stop()
    say('full load')
    const busy = await ServerProcess.start(scratch, {dataDir: await scratch.folder(), command})
    await saturate(busy, FIRST_GUESS)
    await new Promise((resolve) => setTimeout(resolve, plan.windowMs))
    addFigures(bench, 'full load', memoryUse(busy.pid, 'server'))
    await busy.stop()
  },
}

function addFigures({figures}: Bench, label: string, roles: ReadonlyMap<Role, MemoryUse>): void {
  for (const measure of ['rss', 'pss'] as const) {
    const name = measure.toUpperCase()
    for (const [role, use] of roles) figures.add(`${label}: ${role}, ${name}`, 'MiB', use[measure])
    const sum = [...roles.values()].reduce((total, use) => total + use[measure], 0)
    figures.add(`${label}: together, ${name}`, 'MiB', sum)
  }
}

/** The first process of an agent. Resolves when it has joined. */
async function startAgent(
  {scratch}: Bench,
  [program, ...argv]: readonly string[],
  server: string,
  dataDir: string,
): Promise<ChildProcess> {
  const flags = [`--server=${server}`, `--data=${dataDir}`, '--name=bench-agent', '--grace=0']
  const child = scratch.watch(
    spawn(program!, [...argv, ...flags], {
      env: {...cleanEnvironment(), BELFRY_LOG_LEVEL: 'error'},
      stdio: ['ignore', 'pipe', 'inherit'],
    }),
  )
  await lineOf(child, /joined (\S+)/)
  return child
}

/** A Node in PATH that cannot run Belfry itself: `bin/belfry.js` then stays as the wrapper. */
function otherNode(): string | null {
  const places = (process.env['PATH'] ?? '').split(delimiter).map((folder) => join(folder, 'node'))
  const isOlder = (file: string) => {
    const version = spawnSync(file, ['--version'], {encoding: 'utf8'}).stdout
    return Number.parseInt(version.slice(1), 10) < Number.parseInt(process.versions.node, 10)
  }
  return places.find((file) => existsSync(file) && isOlder(file)) ?? null
}
