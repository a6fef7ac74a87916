/** Processes of a killed node or helper are ended, and no others. Uses real processes. */
import assert from 'node:assert/strict'
import {type ChildProcess, spawn} from 'node:child_process'
import {once} from 'node:events'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {describe, test} from 'node:test'
import {fileURLToPath} from 'node:url'
import {Journal, readJournal} from '../../src/executors/process/journal.ts'
import {endOrphans} from '../../src/executors/process/orphans.ts'
import {bootId} from '../../src/platform/boot-id.ts'
import {
  listMarked,
  listProcesses,
  readLinuxProcess,
} from '../../src/executors/process/process-table.ts'
import {aNode, aRun, KeepingSink, realClock} from './support.ts'

const ON_LINUX = {skip: process.platform === 'linux' ? false : 'reads /proc'}
const OWNER = fileURLToPath(new URL('orphan-owner.ts', import.meta.url))

function inTemporary(work: (dataDir: string) => Promise<void>): () => Promise<void> {
  return async () => {
    const dataDir = mkdtempSync(join(tmpdir(), 'belfry-orphans-'))
    try {
      await work(dataDir)
    } finally {
      rmSync(dataDir, {recursive: true, force: true})
    }
  }
}

async function anOwner(dataDir: string, nodeId: string, commands: string[]): Promise<ChildProcess> {
  const owner = spawn(process.execPath, [OWNER, dataDir, nodeId, ...commands], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(owner.stdout, 'data')
  return owner
}

async function killed(owner: ChildProcess): Promise<void> {
  const gone = once(owner, 'exit')
  owner.kill('SIGKILL')
  await gone
}

describe('orphans', ON_LINUX, () => {
  test(
    'a copy of the directory of a living node ends none of its processes',
    inTemporary(async (dataDir) => {
      const nodeId = `orphans-${process.pid}-copied`
      const command = `trap '' TERM HUP; echo ready; while :; do sleep 1; done`
      const owner = await anOwner(dataDir, nodeId, [command])
      const copy = join(dataDir, 'copy', 'executions')
      cpSync(join(dataDir, 'executions'), copy, {
        recursive: true,
        filter: (path) => !path.includes('pipes-'),
      })
      const {ended} = await endOrphans({directory: copy, nodeId, clock: realClock, graceMs: 0})
      await killed(owner)
      assert.deepEqual(ended, [])
      const directory = join(dataDir, 'executions')
      const ofOriginal = await endOrphans({directory, nodeId, clock: realClock, graceMs: 0})
      assert.deepEqual(ofOriginal.ended, ['1-owner-1'])
    }),
  )

  test(
    'the next incarnation of a killed node ends all its processes',
    inTemporary(async (dataDir) => {
      const nodeId = `orphans-${process.pid}-a`
      const owner = await anOwner(dataDir, nodeId, [
        `trap '' TERM HUP; echo ready; while :; do sleep 1; done`,
        `setsid sh -c 'trap "" TERM; echo ready; while :; do sleep 1; done' & wait`,
      ])
      await killed(owner)
      const directory = join(dataDir, 'executions')
      const {ended} = await endOrphans({directory, nodeId, clock: realClock, graceMs: 100})
      assert.deepEqual(ended.toSorted(), ['1-owner-1', '2-owner-1'])
      assert.equal(listMarked(nodeId).size, 0)
      assert.deepEqual(readdirSync(directory), [])
      assert.deepEqual(await endOrphans({directory, nodeId, clock: realClock}), {ended: []})
    }),
  )

  test(
    'the helper ends all commands when its node is killed',
    inTemporary(async (dataDir) => {
      const nodeId = `orphans-${process.pid}-b`
      const owner = await anOwner(dataDir, nodeId, [
        'echo ready; sleep 60',
        'echo ready; sleep 60 & wait',
      ])
      const helper = (await listProcesses()).find((row) => row.pid === helperOf(dataDir))
      assert.notEqual(helper, undefined)
      await killed(owner)
      await until(() => listMarked(nodeId).size === 0 && readLinuxProcess(helper!.pid) === null)
    }),
  )

  test(
    'a reused pid, other nodes and daemons of finished jobs are not signalled',
    inTemporary(async (dataDir) => {
      const directory = join(dataDir, 'executions')
      mkdirSync(directory)
      const environment = {...process.env, BELFRY_EXECUTION: '9-web-1', BELFRY_NODE_ID: 'another'}
      const bystanders = [
        spawn('sleep', ['60'], {detached: true}),
        spawn('sleep', ['60'], {detached: true, env: environment}),
        spawn('sleep', ['60'], {
          detached: true,
          env: {...environment, BELFRY_EXECUTION: '8-web-1', BELFRY_NODE_ID: 'me'},
        }),
      ]
      const journal = new Journal(
        directory,
        {
          helper: 2 ** 22 + 1,
          started: 1,
          boot: bootId(),
          node: 'me',
        },
        () => undefined,
      )
      journal.started('1-web-1', bystanders[0]!.pid!, () => 12345)
      journal.beginning('9-web-1')
      journal.beginning('8-web-1')
      journal.ended('8-web-1')
      journal.flush()
      try {
        assert.deepEqual(
          await endOrphans({directory, nodeId: 'me', clock: realClock, graceMs: 0}),
          {ended: []},
        )
        for (const each of bystanders) assert.notEqual(readLinuxProcess(each.pid!), null)
      } finally {
        for (const each of bystanders) each.kill('SIGKILL')
      }
    }),
  )

  test(
    'the beginning of an announced execution is written with the next start',
    inTemporary(async (dataDir) => {
      const head = {helper: 7, started: 1, boot: bootId(), node: 'me'}
      const journal = new Journal(dataDir, head, () => undefined)
      const path = join(dataDir, 'journal-7-1')
      const left = () => readJournal(path)?.left.map(({executionId}) => executionId)
      for (const id of ['1-web-1', '2-web-1', '3-web-1']) journal.announce(id)
      assert.deepEqual(left(), [])
      journal.ended('3-web-1')
      journal.beginning('2-web-1')
      assert.deepEqual(left(), ['1-web-1', '2-web-1'])
      const {size} = statSync(path)
      journal.beginning('1-web-1')
      assert.equal(statSync(path).size, size)
      journal.beginning('4-web-1')
      journal.ended('1-web-1')
      journal.flush()
      assert.deepEqual(left(), ['2-web-1', '4-web-1'])
    }),
  )

  test(
    'journals of an earlier boot, truncated journals and foreign files end no process',
    inTemporary(async (dataDir) => {
      const bystander = spawn('sleep', ['60'], {detached: true})
      const started = readLinuxProcess(bystander.pid!)!.started
      const line = JSON.stringify({s: '1-web-1', p: bystander.pid, t: started})
      writeFileSync(
        join(dataDir, 'journal-1-1'),
        `{"helper":1,"started":1,"boot":"earlier","node":"me"}\n${line}\n`,
      )
      writeFileSync(
        join(dataDir, 'journal-2-2'),
        `{"helper":1,"started":1,"boot":"${bootId()}"}\n${line.slice(0, -3)}`,
      )
      writeFileSync(join(dataDir, 'journal-3-3'), '\0\0\0')
      try {
        assert.deepEqual(
          await endOrphans({directory: dataDir, nodeId: 'me', clock: realClock, graceMs: 0}),
          {ended: []},
        )
        assert.notEqual(readLinuxProcess(bystander.pid!), null)
      } finally {
        bystander.kill('SIGKILL')
      }
    }),
  )

  test('signals do not end the helper, and none opens the debugger', ON_LINUX, async () => {
    const node = await aNode()
    try {
      const sink = new KeepingSink()
      const run = aRun({command: 'echo ready; sleep 0.3; echo done', shell: 'true'})
      const handle = node.executors.get('shell')!.start(run, sink)
      await sink.until('ready')
      const helper = helperOf(node.dataDir)
      const listening = listenersOf(helper)
      for (const signal of [
        'SIGINT',
        'SIGTERM',
        'SIGHUP',
        'SIGQUIT',
        'SIGUSR1',
        'SIGUSR2',
      ] as const)
        process.kill(helper, signal)
      assert.equal((await handle.ended).outcome, 'succeeded')
      assert.equal(listenersOf(helper), listening)
    } finally {
      await node.close()
    }
  })

  test('a killed helper fails its executions with the reason and is replaced', async () => {
    const reports: string[] = []
    const node = await aNode({report: (sentence) => reports.push(sentence)})
    try {
      const sink = new KeepingSink()
      const run = aRun({command: 'echo ready; sleep 60', shell: 'true'})
      const handle = node.executors.get('shell')!.start(run, sink)
      await sink.until('ready')
      process.kill(helperOf(node.dataDir), 'SIGKILL')
      const end = await handle.ended
      assert.deepEqual([end.outcome, end.reason], ['failed', undefined], 'it did start')
      assert.match(end.foot, /^the process helper of this node ended unexpectedly \(SIGKILL\)/)
      assert.equal(listMarked(node.nodeId).size, 0)
      assert.deepEqual(reports, ['the process helper ended unexpectedly (SIGKILL)'])
      // Waits for the next helper and runs there.
      assert.equal((await node.run({command: 'echo again'})).text, 'again\n')
    } finally {
      await node.close()
    }
  })
})

test(
  'the journal stays small after many commands and keeps the running ones',
  inTemporary(async (dataDir) => {
    const journal = new Journal(
      dataDir,
      {helper: 7, started: 8, boot: 'b', node: 'me'},
      () => undefined,
    )
    journal.started('long-1', 5, () => 6)
    journal.flush()
    for (let number = 0; number < 20_000; number++) {
      journal.beginning(`${number}`)
      journal.started(`${number}`, number + 1, () => 1)
      journal.ended(`${number}`)
    }
    journal.beginning('late-1')
    const [name] = readdirSync(dataDir)
    const path = join(dataDir, name!)
    assert.deepEqual(readJournal(path)!.left, [
      {executionId: 'long-1', pid: 5, started: 6},
      {executionId: 'late-1', pid: 0, started: 0},
    ])
    assert.ok(statSync(path).size < 1024 * 1024)
  }),
)

/** How many sockets a process has. */
function listenersOf(pid: number): number {
  const links = readdirSync(`/proc/${pid}/fd`).map((name) => linkTo(`/proc/${pid}/fd/${name}`))
  return links.filter((link) => link.startsWith('socket:')).length
}

function linkTo(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return '' // closed meanwhile
  }
}

/** Pid of the helper, from its journal. */
function helperOf(dataDir: string): number {
  const directory = join(dataDir, 'executions')
  const name = readdirSync(directory).find((each) => each.startsWith('journal-'))!
  return readJournal(join(directory, name))!.head.helper
}

/** Polls for ten seconds at most. */
async function until(condition: () => boolean): Promise<void> {
  const deadline = performance.now() + 10_000
  while (!condition()) {
    assert.ok(performance.now() < deadline, 'it did not come about within ten seconds')
    await new Promise<void>((resolve) => {
      realClock.after(20, resolve)
    })
  }
}
