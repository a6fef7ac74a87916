/** `jobs check`, `jobs apply` and `restore` against the real API: mistakes are found before a change. */
import assert from 'node:assert/strict'
import {readFile, writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {test} from 'node:test'
import {commands} from './real-api.ts'

const JOB = {schedule: '0 30 2 * * *', timezone: 'Europe/Berlin', command: 'true'}

test('jobs check prints faults, warnings, next times and nodes, and stores nothing', async (t) => {
  const {run, state, api} = await commands(t)
  await api.join()
  const jobs = [
    {...JOB, name: 'load', parent_job: 'extract', schedule: ''},
    {...JOB, name: 'extract', disabled: null},
    {...JOB, name: 'typo', retrys: 3, retries: -1, tags: {disk: 'ssd'}},
  ]
  state.input = JSON.stringify(jobs.slice(0, 2))
  const fine = await run('jobs', 'check', '-')
  assert.deepEqual([fine.code, fine.err], [0, ''])
  assert.match(
    fine.out,
    /^extract would be created\n {2}next {5}2026-03-02 02:30:00 \+01:00 \(in 13h30m\)\n/,
  )
  assert.match(
    fine.out,
    /^load would be stored\n {2}next {5}after extract\n {2}nodes {4}1: node-a\n/m,
  )
  assert.match(fine.out, /All 2 jobs are valid\.\n$/)
  state.input = JSON.stringify(jobs)
  const {code, out} = await run('jobs', 'check', '-f', '-')
  assert.equal(code, 1)
  assert.match(
    out,
    /^typo is not valid\n {2}error {4}retries: must be .*, not -1\n {2}error {4}retrys: .*"retries"\?$/m,
  )
  assert.match(out, /^ {2}warning {2}tags: no node has disk=ssd/m)
  assert.match(out, /1 of 3 jobs is not valid\.\n$/)
  const json = await run('--json', 'jobs', 'check', '-')
  assert.equal(json.code, 1)
  const document = JSON.parse(json.out) as {valid: boolean; jobs: {name: string; valid: boolean}[]}
  assert.deepEqual(
    [document.valid, document.jobs.map(({name, valid}) => `${name} ${valid}`)],
    [false, ['extract true', 'typo false', 'load true']],
  )
  assert.deepEqual((await api.get('/v1/jobs')).json, [])
})

test('jobs apply stores all jobs of a file or none, and prints the action on each', async (t) => {
  const {run, state, api} = await commands(t)
  const apply = async (jobs: unknown, ...flags: string[]) => {
    state.input = JSON.stringify(jobs)
    return run('jobs', 'apply', '-', ...flags)
  }
  const good = [
    {...JOB, name: 'b', parent_job: 'a'},
    {...JOB, name: 'a'},
  ]
  const refused = await apply([...good, {...JOB, name: 'c', retrys: 1, catch_up: 'last'}])
  assert.deepEqual([refused.code, refused.out], [1, ''])
  assert.match(
    refused.err,
    /^belfry: Nothing was stored\. 1 of 3 jobs is not valid\.\n {2}c: catch_up: .*\n {2}c: retrys: /,
  )
  assert.match(refused.err, /^To ignore unknown fields and parameters, use --lenient\.$/m)
  assert.deepEqual((await api.get('/v1/jobs')).json, [])
  assert.equal((await apply(good)).out, 'created a\ncreated b\n')
  assert.equal((await apply([good[1], {...good[0], retries: 1}])).out, 'unchanged a\nupdated b\n')
  const lenient = await apply({...JOB, name: 'c', retrys: 1}, '--lenient')
  assert.deepEqual([lenient.code, lenient.out], [0, 'created c\n'])
  assert.match(lenient.err, /^warning: ignored fields: retrys$/m)
  for (const [jobs, expected] of [
    [[good[1], good[1]], /a: name: appears more than once in the file/],
    [
      [
        {...JOB, name: 'x', parent_job: 'y'},
        {...JOB, name: 'y', parent_job: 'x'},
      ],
      /x: parent_job: makes a cycle, x -> y -> x/,
    ],
    [
      [
        {...JOB, name: 'x', ephemeral: true},
        {...JOB, name: 'y', parent_job: 'x'},
      ],
      /y: parent_job: "x" is ephemeral/,
    ],
    [[{...JOB, name: 'x', parent_job: 'nobody'}], /x: parent_job: there is no job named "nobody"/],
  ] as const)
    assert.match((await apply(jobs)).err, expected)
  const done = JSON.parse((await apply([{...good[1], retries: 2}, good[0]], '--json')).out)
  assert.deepEqual(
    done.map(({name, action}: Record<string, string>) => [name, action]),
    [
      ['a', 'update'],
      ['b', 'update'],
    ],
  )
  const leap = await apply({...JOB, name: 'leap', schedule: '0 0 1 29 2 *', timezone: 'UTC'})
  assert.match(leap.err, /fires next at 2028-02-29 01:00:00Z, in more than a year/)
  const berlin = {...JOB, name: 'leap', schedule: '0 0 1 29 2 *', timezone: 'Europe/Berlin'}
  state.input = JSON.stringify(berlin)
  const checked = (await run('jobs', 'check', '-')).out
  assert.match(checked, /warning +schedule: fires next at 2028-02-29 01:00:00 \+01:00, in more/)
  assert.equal((await apply([])).out, 'The file has no jobs.\n')
  state.input = JSON.stringify([{...JOB, name: 'c', retries: -1}])
  const json = await run('--json', 'jobs', 'apply', '-')
  assert.equal(json.out, '')
  assert.deepEqual(JSON.parse(json.err).error.errors, [
    {name: 'c', field: 'retries', problem: 'must be an integer from 0 to 100, not -1'},
  ])
  assert.doesNotMatch(json.err, /--lenient/)
})

test('jobs check and apply work with the token of a team that access.md describes', async (t) => {
  const {run, state, api, directory} = await commands(t)
  await api.join({team: 'a'})
  state.token = (await run('token', 'bootstrap')).out.trim()
  const page = await readFile(new URL('../../docs/how-to/access.md', import.meta.url), 'utf8')
  const file = join(directory, 'team-a.json')
  await writeFile(file, /`team-a\.json`:\n\n```json\n(.*?)```/s.exec(page)![1]!)
  assert.equal((await run('policy', 'apply', 'team-a', '-f', file)).code, 0)
  state.token = (await run('token', 'create', 'team-a', '--policy', 'team-a')).out.trim()
  const job = {...JOB, name: 'team-a-x', executor: 'shell', tags: {team: 'a'}}
  const apply = async (command: string, definition: object) => {
    state.input = JSON.stringify(definition)
    return run('jobs', command, '-')
  }
  const checked = await apply('check', job)
  assert.deepEqual([checked.code, checked.err], [0, ''])
  assert.match(checked.out, /^team-a-x would be created$/m)
  assert.equal((await apply('apply', job)).out, 'created team-a-x\n')
  for (const [definition, why] of [
    [{...job, executor: 'kafka'}, /allows only the executors shell, http/],
    [{...job, name: 'team-b-x'}, /no glob of its policies matches/],
    [{...job, tags: {}}, /requires the tag team with one of a/],
  ] as const)
    assert.match((await apply('apply', definition)).err, why)
})

test('a file of another kind is named', async (t) => {
  const {run, state, directory} = await commands(t)
  state.input = 'name: x\nschedule: "@daily"\n'
  const yaml = await run('jobs', 'apply', '-')
  assert.match(
    yaml.err,
    /^belfry: Standard input must be JSON: .*; this looks like YAML: convert it to JSON\.$/m,
  )
  for (const [input, says] of [
    ['{', /^belfry: Standard input must be JSON: /],
    ['[1]', /must contain a job, or a list of jobs/],
    ['"text"', /must contain a job/],
  ] as const) {
    state.input = input
    const ran = await run('jobs', 'apply', '-f', '-')
    assert.deepEqual([ran.code, ran.out], [1, ''])
    assert.match(ran.err, says)
  }
  const file = join(directory, 'image.sqlite')
  await writeFile(file, 'SQLite format 3\0rest')
  const backup = await run('restore', file)
  assert.match(backup.err, /is a backup of a store, not a file of jobs\. Use belfry restore-store/)
  const jobs = join(directory, 'jobs.json')
  await writeFile(
    jobs,
    JSON.stringify([{...JOB, name: 'r', retrys: 1, executor_config: {comand: 'x'}}]),
  )
  const strict = await run('restore', jobs)
  assert.match(
    strict.err,
    /r: retrys: is not a field .*\n.*r: executor_config\.comand: is not used/,
  )
  assert.match(strict.err, /^To ignore unknown fields and parameters, use --lenient\.$/m)
  assert.equal((await run('restore', '--lenient', jobs)).out, 'created r\n')
  // The server refuses the file before it has read it.
  await run('pause')
  await writeFile(jobs, JSON.stringify([{name: 'r', displayname: 'x'.repeat(2_000_000)}]))
  for (let times = 0; times < 5; times += 1)
    assert.match(
      (await run('restore', jobs)).err,
      /are paused.* To end the pause, run "belfry unpause"/,
    )
  assert.equal((await run('jobs', 'check')).code, 2)
  const comma = join(directory, 'comma.json')
  await writeFile(comma, '[{"name": "r"},]')
  assert.match((await run('jobs', 'check', comma)).err, /JSON; JSON has no comma before \] or \}/)
})
