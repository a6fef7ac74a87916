/** Parameters of shell jobs as a table. No process is started. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {readShell, shellWarnings} from '../../src/executors/shell-parameters.ts'
import {shellSyntaxIn, splitWords} from '../../src/executors/shell-words.ts'

const LIMITS = {suAllowed: ['deploy', 'deploy:www'], runsAsRoot: true}

test('words are split by quoting rules only', () => {
  const rows: readonly (readonly [string, readonly string[] | RegExp])[] = [
    ['', []],
    ['  a   b\tc\n', ['a', 'b', 'c']],
    [`'a b' "c d" e\\ f`, ['a b', 'c d', 'e f']],
    [`a'b'"c"d`, ['abcd']],
    [`'' ""`, ['', '']],
    [`"a\\"b" "a\\\\b" "a\\$b" "a\\nb"`, ['a"b', 'a\\b', 'a$b', 'a\\nb']],
    [`'a\\b'`, ['a\\b']],
    ['a\\\nb "c\\\nd"', ['ab', 'cd']],
    ['echo $HOME `id` * | > & ; # x', ['echo', '$HOME', '`id`', '*', '|', '>', '&', ';', '#', 'x']],
    ['\\#  ü', ['#', 'ü']],
    [`echo "`, /quote " at character 6 is never closed/],
    [`echo 'a"`, /quote ' at character 6 is never closed/],
    ['echo \\', /ends in a backslash/],
  ]
  for (const [text, expected] of rows) {
    const split = splitWords(text)
    if (expected instanceof RegExp)
      assert.match('problem' in split ? split.problem : '', expected, text)
    else assert.deepEqual('words' in split ? split.words : split.problem, expected, text)
  }
})

test('shell syntax is found outside of quotes only', () => {
  const rows: readonly (readonly [string, readonly string[]])[] = [
    ['echo a | wc -c > out.txt', ['|', '>']],
    ['a && b || c; d', ['&&', '||', ';']],
    ['a>>b 2>&1 &', ['>>', '>', '&']],
    ['echo $HOME ${X} $(id) `id`', ['$HOME', '${', '$(', '`']],
    ['echo "$HOME is home" "\\$X"', ['$HOME']],
    ['rm -f *.log ~/x', ['*', '~']],
    ['PASSWORD=s3cret pg_dump db', ['PASSWORD=']],
    [`bash -o pipefail -c 'a | b > c; echo $X *'`, []],
    [`grep "a|b" 'c;d' e\\;f "2 > 1"`, []],
    ['find . -name "*.log" -exec rm {} \\;', []],
    ['curl http://host/path?a=b&c=d https://x/*', []],
    ['rsync --exclude=*.tmp a b', []],
    ['cost 5$ a~b ~x $5 100%', []],
    ['echo "never | closed', []],
    ['', []],
  ]
  for (const [text, expected] of rows) assert.deepEqual(shellSyntaxIn(text), expected, text)
  const long = '*'.repeat(60_000) + '='.repeat(60_000)
  assert.deepEqual(shellSyntaxIn(`a ${long}`), ['*'])
})

test('a command that probably means something else is stored with a warning', () => {
  const rows = [
    [
      {command: 'a | b'},
      /^command has \| and no shell .* Set shell to "true", or put it into single quotes$/,
    ],
    [{command: 'a | b', shell: 'true'}, /^command has a pipe, .* bash -o pipefail -c '…'$/],
    [{command: 'a', shell: 'yes'}, /^shell: "yes" is read as true; write "true"$/],
    [{command: 'a', shell: '0'}, /^shell: "0" is read as false; write "false"$/],
    [{command: 'exit 7'}, /^command begins with exit, .* Set shell to "true"$/],
    [{command: ' cd\t/tmp'}, /^command begins with cd, /],
  ] as const
  for (const [config, expected] of rows) {
    const warnings = shellWarnings(config)
    assert.equal(warnings.length, 1)
    assert.match(warnings[0]!, expected)
  }
  const fine = ['a', `a '|' b`, 'exits 7', 'echo exit', '/bin/cd x']
  for (const command of fine) assert.deepEqual(shellWarnings({command, shell: 'False'}), [])
  // A refused word has no warning.
  assert.deepEqual(shellWarnings({command: 'a', shell: 'ja'}), [])
  for (const command of ['exit 7', 'a || b', 'set -o pipefail; a | b', 'a > b'])
    assert.deepEqual(shellWarnings({command, shell: 'true'}), [])
})

test('each valid parameter is read', () => {
  const rows = [
    [{command: 'a b'}, 'argv', ['a', 'b']],
    [{command: 'a b', shell: 'true'}, 'argv', ['/bin/sh', '-c', 'a b']],
    [{command: 'a b', shell: 'False'}, 'argv', ['a', 'b']],
    [{command: '   '}, 'argv', []],
    [{env: 'A=1,B=x\\,y,, C=,D=a=b'}, 'environment', {A: '1', B: 'x,y', C: '', D: 'a=b'}],
    [{env: 'P=C:\\dir'}, 'environment', {P: 'C:\\dir'}],
    [{timeout: '1m30s'}, 'timeoutMs', 90_000],
    [{timeout: '500us'}, 'timeoutMs', 1],
    [{payload: ' aGVs\nbG8= '}, 'payload', 'aGVsbG8='],
    [{su: 'deploy:www'}, 'user', 'deploy:www'],
    [{mem_limit: '512MB'}, 'memoryBytesMax', 512e6],
    [{mem_limit: '1.5 GiB'}, 'memoryBytesMax', 1.5 * 2 ** 30],
    [{mem_limit: '1048576'}, 'memoryBytesMax', 2 ** 20],
    [{mem_limit: '1b'}, 'memoryBytesMax', 1],
    [{cwd: '/srv'}, 'cwd', '/srv'],
  ] as const
  for (const [config, name, expected] of rows) {
    const {plan, problems} = readShell(config, LIMITS)
    assert.deepEqual(problems, [], JSON.stringify(config))
    assert.deepEqual(plan[name], expected, JSON.stringify(config))
  }
})

test('each invalid parameter is reported by name', () => {
  const rows = [
    [{command: 'a "b'}, /^command cannot be split/],
    [{command: '"" b'}, /^command cannot be split.*program, is empty/],
    [{command: 'a\0b'}, /^command must not contain a NUL/],
    [{shell: 'bash'}, /^shell must be "true" or "false", not "bash"/],
    [{env: 'A=1,s3cret'}, /^env must be (?!.*s3cret).* pair 2 is not one/],
    [{env: '=1'}, /^env must be/],
    [{env: 'A B=1'}, /^env must be/],
    [{env: 'A=\0'}, /^env must be/],
    [{env: 'BELFRY_EXECUTION=1-x-1'}, /^env cannot set BELFRY_EXECUTION/],
    [{env: 'ENV_JOB_NAME=x'}, /^env cannot set ENV_JOB_NAME/],
    [{cwd: 'here'}, /^cwd must be an absolute path/],
    [{cwd: '/a\0b'}, /^cwd must be/],
    [{timeout: '5'}, /^timeout must be a duration/],
    [{timeout: '0s'}, /^timeout must be .* longer than 0/],
    [{timeout: '-1s'}, /^timeout must be/],
    [{payload: 'hello!'}, /^payload must be base64/],
    [{payload: 'aGVsbG8'}, /^payload must be base64/],
    [{mem_limit: 'lots'}, /^mem_limit must be a size/],
    [{mem_limit: '0'}, /^mem_limit must be a size/],
    [{mem_limit: '5XB'}, /^mem_limit must be a size/],
    [
      {su: 'root'},
      /^su "root" is not allowed on this node: [^]* --su-allow root, .*; allowed: deploy, deploy:www/,
    ],
    [{su: 'deploy:root'}, /^su "deploy:root" is not allowed/],
    [{su: '--help'}, /^su must be user or user:group/],
    [{su: 'a:b:c'}, /^su must be/],
  ] as const
  for (const [config, expected] of rows) {
    const {problems} = readShell(config, LIMITS)
    assert.equal(problems.length, 1, JSON.stringify(config))
    assert.match(problems[0]!, expected)
  }
})

test('su without root is rejected for every account, and all problems are reported together', () => {
  const limits = {...LIMITS, runsAsRoot: false}
  const {problems} = readShell({command: 'x', su: 'deploy', timeout: 'x', mem_limit: 'y'}, limits)
  assert.deepEqual(
    problems.map((problem) => problem.split(' ')[0]),
    ['timeout', 'su', 'mem_limit'],
  )
})

test('names of Object.prototype are not units', () => {
  const {problems} = readShell({command: 'x', mem_limit: '5constructor', shell: 'true'}, LIMITS)
  assert.equal(problems.length, 1)
})

test('a secret is put in place after the variables are split, and only in their values', () => {
  const secrets = {db: 'a,B=injected', key: 'line 1\nline 2'}
  const env = 'A=${secret:db},KEY=x${secret:key}y,NONE=${secret:none}'
  const {plan, problems} = readShell({command: 'true', env}, LIMITS, secrets)
  assert.deepEqual(problems, [])
  assert.deepEqual(plan.environment, {
    A: 'a,B=injected',
    KEY: 'xline 1\nline 2y',
    NONE: '${secret:none}',
  })
  const named = readShell({command: 'true', env: '${secret:db}=x'}, LIMITS, secrets)
  assert.match(named.problems[0]!, /^env can name a secret only in a value/)
  const command = readShell({command: 'echo ${secret:db}'}, LIMITS, secrets)
  assert.deepEqual(command.plan.argv, ['echo', '${secret:db}'])
})
