/** The shell executor with real processes, for each spawn method. */
import assert from 'node:assert/strict'
import {chmodSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {after, before, describe, test} from 'node:test'
import {exerciseExecutor} from './exercise-executor.ts'
import {lookUp} from '../../src/executors/process/helper/spawn.ts'
import {aNode, type TestNode} from './support.ts'

const ON_POSIX_SPAWN = process.platform === 'linux' && ['x64', 'arm64'].includes(process.arch)

const CONFIGS = {
  succeeding: {command: 'echo hello'},
  failing: {command: 'echo hello; exit 3', shell: 'true'},
  waiting: {command: 'echo ready; sleep 60', shell: 'true'},
  flooding: {command: 'cat /dev/zero'},
  timingOut: {command: 'sleep 60', timeout: '100ms'},
  wrong: {command: 'echo "', timeout: 'soon'},
}

for (const spawn of ['portable', 'posix'] as const) {
  describe(
    `shell, ${spawn}`,
    {skip: spawn === 'posix' && !ON_POSIX_SPAWN ? 'no posix_spawn here' : false},
    () => {
      let node: TestNode
      before(async () => {
        const environment = {
          ...process.env,
          SECRET: 'hunter2',
          TZ: 'UTC',
          LC_MESSAGES: 'C',
          LD_DEBUG: '',
        }
        node = await aNode({spawn, environment, suAllowed: ['nobody']})
      })
      after(async () => {
        await node.close()
      })

      exerciseExecutor(
        `shell ${spawn}`,
        async () => {
          const own = await aNode({spawn})
          return {executor: own.executors.get('shell')!, close: () => own.close()}
        },
        () => CONFIGS,
      )

      test('the requested spawn method is used', () => {
        assert.deepEqual(node.executors.spawnUsed(), {spawn, why: ''})
      })

      test('arguments and variables of any length and language arrive whole', async () => {
        const long = `${'ü€😀'.repeat(3_000)}.`
        for (const text of ['a', long, 'né', '']) {
          const many = Array.from({length: 200}, (_, index) => `V${index}=${index}`)
          const command = `printf '%s|%s|%s' '${text}' "$LAST" "$V199"`
          const env = [...many, `LAST=${text}`].join(',')
          const end = await node.run({command, shell: 'true', env})
          assert.equal(end.text, `${text}|${text}|199`)
        }
      })

      test('the exit status precedes the output', async () => {
        const end = await node.run(CONFIGS.failing)
        assert.deepEqual([end.exitCode, end.head, end.foot], [3, 'exit status 3\n', ''])
      })

      test('a fatal signal is named in the output', async () => {
        const end = await node.run({command: 'kill -SEGV $$', shell: 'true'})
        assert.deepEqual(
          [end.outcome, end.exitCode, end.head, end.foot],
          ['failed', null, '', 'killed by signal SIGSEGV\n'],
        )
      })

      test('every exit status is reported unchanged', async () => {
        const codes = Array.from({length: 64}, (_, index) => index * 4)
        const ends = await Promise.all(
          codes.map((code) => node.run({command: `exit ${code}`, shell: 'true'})),
        )
        assert.deepEqual(
          ends.map((end) => end.exitCode),
          codes,
        )
      })

      test('standard output and error keep their order and their bytes', async () => {
        const command = `i=0; while [ $i -lt 200 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done
          printf '\\377\\000\\n'`
        const {text} = await node.run({command, shell: 'true'})
        const expected = Array.from({length: 200}, (_, index) => `o${index}\ne${index}\n`).join('')
        assert.equal(text.slice(0, expected.length), expected)
        assert.equal(text.length, expected.length + 3)
      })

      test('/dev/stdout and /dev/stderr can be opened', async () => {
        const end = await node.run({
          command: 'echo a > /dev/stdout; echo b > /dev/stderr',
          shell: 'true',
        })
        assert.deepEqual([end.outcome, end.text], ['succeeded', 'a\nb\n'])
      })

      test('without a shell, arguments are not interpreted', async () => {
        const {text} = await node.run({command: `printf '%s|' $HOME "a  b" 'c"d' e\\ f * ; true`})
        assert.equal(text, '$HOME|a  b|c"d|e f|*|;|true|')
      })

      test('the environment contains the documented variables only', async () => {
        const {text} = await node.run(
          {command: '/usr/bin/env -0', env: 'A=1,B=x\\,y,EMPTY='},
          {executionId: '7-web-2', attempt: 2},
        )
        const variables = new Map(
          text
            .split('\0')
            .slice(0, -1)
            .map(
              (pair) =>
                [pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1)] as const,
            ),
        )
        const promised = {
          A: '1',
          B: 'x,y',
          EMPTY: '',
          BELFRY_JOB: 'backup',
          BELFRY_EXECUTION: '7-web-2',
          BELFRY_SCHEDULED_AT: '2026-03-29T01:30:00.000Z',
          BELFRY_ATTEMPT: '2',
          BELFRY_NODE: 'web',
          BELFRY_NODE_ID: node.nodeId,
          ENV_JOB_NAME: 'backup',
          TZ: 'UTC',
          LC_MESSAGES: 'C',
        }
        for (const [name, value] of Object.entries(promised))
          assert.equal(variables.get(name), value, name)
        const own = ['PATH', 'HOME', 'USER', 'LANG', 'TMPDIR', 'SHELL']
        const extra = [...variables.keys()].filter(
          (name) => !(name in promised) && !own.includes(name),
        )
        assert.deepEqual(
          extra.filter((name) => !name.startsWith('LC_')),
          [],
        )
      })

      test('a command has three descriptors only, and an empty standard input', async () => {
        const {text} = await node.run({command: 'ls /proc/self/fd; cat', shell: 'true'})
        // 3 is the directory that ls itself reads.
        if (process.platform === 'linux') assert.equal(text, '0\n1\n2\n3\n')
      })

      test('no signal is ignored or blocked, and the command leads its own session', async () => {
        const command =
          'grep -E "^Sig(Blk|Ign)" /proc/self/status; cut -d" " -f6 /proc/$$/stat; echo $$'
        const {text} = await node.run({command, shell: 'true'})
        const [blocked, ignored, session, pid] = text.trim().split('\n')
        assert.match(blocked!, /SigBlk:\s*0+$/)
        // glibc's posix_spawn ignores its own two internal signals, 32 and 33.
        assert.match(
          ignored!,
          spawn === 'posix' ? /SigIgn:\s*0000000[01][08]0000000$/ : /SigIgn:\s*0+$/,
        )
        assert.equal(session, pid)
      })

      test('a payload larger than a pipe reaches the standard input', async () => {
        const payload = Buffer.alloc(200_000, 'payload ')
        const end = await node.run({command: 'cat', payload: payload.toString('base64')})
        assert.equal(end.text.length, payload.length)
        assert.equal(end.text, payload.toString())
      })

      test('the payload can be opened as /dev/stdin, also by another account', async () => {
        const payload = Buffer.from('echo from the payload').toString('base64')
        assert.equal(
          (await node.run({command: 'sh /dev/stdin', payload})).text,
          'from the payload\n',
        )
        if (process.geteuid?.() !== 0) return
        const end = await node.run({command: 'sh /dev/stdin', payload, su: 'nobody', cwd: '/'})
        assert.deepEqual([end.outcome, end.text], ['succeeded', 'from the payload\n'])
      })

      test('a command of another account can open /dev/stdout and /dev/stderr', async () => {
        if (process.geteuid?.() !== 0) return
        const command = 'echo out > /dev/stdout; echo error > /dev/stderr'
        const end = await node.run({command, shell: 'true', su: 'nobody', cwd: '/'})
        assert.deepEqual([end.outcome, end.text], ['succeeded', 'out\nerror\n'])
        const next = await node.run({command, shell: 'true'})
        assert.deepEqual([next.outcome, next.text], ['succeeded', 'out\nerror\n'])
      })

      test('an unread payload does not fail the command', async () => {
        const payload = Buffer.alloc(200_000).toString('base64')
        assert.equal((await node.run({command: 'true', payload})).outcome, 'succeeded')
      })

      test('cwd is the working directory', async () => {
        assert.equal((await node.run({command: 'pwd', cwd: '/usr/bin'})).text, '/usr/bin\n')
      })

      test('a missing program, missing permission or missing cwd is explained in the output', async () => {
        const plain = join(node.dataDir, 'plain')
        writeFileSync(plain, 'x')
        const lines = [
          [
            {command: 'no-such-program'},
            /^command not found: "no-such-program" is not in PATH=.+\n$/,
          ],
          [{command: '/no/such'}, /^command not found: "\/no\/such" does not exist/],
          [{command: plain}, /^permission denied: /],
          [
            {command: 'true', cwd: '/no/such'},
            /^cwd "\/no\/such" is not a directory on this node\n$/,
          ],
          [{command: 'true', cwd: plain}, /^cwd ".+" is not a directory on this node\n$/],
        ] as const
        for (const [config, foot] of lines) {
          const end = await node.run(config)
          assert.deepEqual([end.outcome, end.exitCode], ['failed', null])
          assert.match(end.foot, foot)
          const isMissing = end.foot.startsWith('command not found')
          assert.equal(end.reason, isMissing ? 'command_not_found' : 'not_started')
        }
      })

      test('a script without an interpreter line is run by /bin/sh', async () => {
        const script = join(node.dataDir, 'script')
        writeFileSync(script, 'echo "I am $1"\n')
        chmodSync(script, 0o755)
        assert.equal((await node.run({command: `${script} here`})).text, 'I am here\n')
      })

      test('commands still run after the directory of pipes was deleted', async () => {
        const executions = join(node.dataDir, 'executions')
        for (const name of readdirSync(executions)) {
          if (name.startsWith('pipes-')) rmSync(join(executions, name), {recursive: true})
        }
        const ends = await Promise.all(
          Array.from({length: 50}, () => node.run({command: 'echo fine'})),
        )
        for (const end of ends) assert.equal(end.text, 'fine\n')
      })

      test('runProgram passes the input, and reports the output of a failed program', async () => {
        const input = Buffer.from('exit 4')
        assert.equal(await node.executors.runProgram(['sh', '-c', 'cat > /dev/null'], input), '')
        const failed = await node.executors.runProgram(
          ['sh', '-c', 'echo no luck; . /dev/stdin'],
          input,
        )
        assert.equal(failed, 'exit status 4 no luck')
        assert.match(
          await node.executors.runProgram(['no-such-program'], input),
          /^command not found/,
        )
      })

      test('the program is looked up in the PATH of the job', async () => {
        const directory = join(node.dataDir, 'bin')
        mkdirSync(directory)
        writeFileSync(join(directory, 'greet'), '#!/bin/sh\necho greetings\n')
        chmodSync(join(directory, 'greet'), 0o755)
        assert.equal(
          (await node.run({command: 'greet', env: `PATH=${directory}`})).text,
          'greetings\n',
        )
      })

      test('a cwd that cannot be looked up is explained in the output', async () => {
        const {foot} = await node.run({command: 'echo fine', cwd: join(loopIn(node.dataDir), 'x')})
        assert.match(foot, /^cwd ".+" is not a directory on this node\n$/)
      })
    },
  )
}

/** A directory that no user can look up, root neither: a link to itself. */
function loopIn(directory: string): string {
  const loop = join(directory, 'loop')
  symlinkSync('loop', loop)
  return loop
}

test('a directory in PATH that cannot be looked up is passed over', async () => {
  const node = await aNode()
  try {
    const path = `${loopIn(node.dataDir)}:/usr/bin:/bin`
    assert.match(lookUp('echo', path, '/') ?? 'not found', /^(\/usr)?\/bin\/echo$/)
    assert.equal(lookUp('no-such-program', path, '/'), null)
  } finally {
    await node.close()
  }
})

describe('shell, permissions of a node', () => {
  test('an executor that the node may not run is checked, and its runs fail with the reason', async () => {
    const node = await aNode({allowed: ['http']})
    try {
      const shell = node.executors.get('shell')!
      assert.deepEqual(shell.check({command: 'true'}), {problems: [], warnings: []})
      assert.equal(shell.check({command: 'true', timeout: 'x'}).problems.length, 1)
      const end = await node.run({command: 'true'})
      assert.equal(end.outcome, 'failed')
      assert.match(end.foot, /^not started: .*"shell"; see --executor-allow\n$/)
    } finally {
      await node.close()
    }
  })

  test('su is rejected unless the node runs as root and allows the account', async () => {
    const node = await aNode({suAllowed: ['nobody']})
    try {
      const shell = node.executors.get('shell')!
      const isRoot = process.geteuid?.() === 0
      const refused = shell.check({command: 'id -un', su: 'root'}).problems[0]!
      assert.match(
        refused,
        isRoot ? /su "root" is not allowed on this node: .*; allowed: nobody/ : /runs as root/,
      )
      assert.match(
        shell.check({command: 'id', su: 'nobody:root'}).problems[0]!,
        /not allowed|runs as root/,
      )
      assert.match(
        shell.check({command: 'id', su: '-x'}).problems[0]!,
        /su must be user or user:group/,
      )
      if (!isRoot) return
      const end = await node.run({
        command: 'id -un; id -G; echo $USER',
        shell: 'true',
        su: 'nobody',
        cwd: '/',
      })
      const [user, groups, variable] = end.text.trim().split('\n')
      assert.deepEqual([user, variable], ['nobody', 'nobody'])
      assert.doesNotMatch(groups!, /(^| )0( |$)/)
    } finally {
      await node.close()
    }
  })
})
