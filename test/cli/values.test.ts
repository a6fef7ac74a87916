/** Values that cannot be right: exit code 2, a message that names the flag, and no request. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {timeOf} from '../../src/cli/values.ts'
import {commands} from './real-api.ts'

test('a value that cannot be right is refused by its flag', async (t) => {
  const {run} = await commands(t)
  const time = 'a duration such as 90d, or a time such as 2027-01-31T00:00:00Z'
  const cases: readonly (readonly [command: string, message: string])[] = [
    ['jobs list --limit x', '--limit must be a whole number from 1 on, not "x".'],
    ['jobs history report --limit 0', '--limit must be a whole number from 1 on, not "0".'],
    ['audit --limit -1', '--limit must be a whole number from 1 on, not "-1".'],
    ['runs list report --limit 1.5', '--limit must be a whole number from 1 on, not "1.5".'],
    ['jobs launches report --limit x', '--limit must be a whole number from 1 on, not "x".'],
    ['jobs next report --count 101', '--count must be a whole number from 1 to 100, not "101".'],
    ['audit --from yesterday', `--from must be ${time}, not "yesterday".`],
    ['audit --to 99999999d', '--to must be at most 36525d, not "99999999d".'],
    ['audit --from 1h --to 2h', '--from must be before --to: nothing is between them.'],
    ['audit --result no', '--result must be one of done, refused, not "no".'],
    ['token create x --expires 1w', `--expires must be ${time}, not "1w".`],
    ['token create x --expires 90', `--expires must be ${time}, not "90".`],
    ['token create x --expires -1d', `--expires must be ${time}, not "-1d".`],
    [
      'token create x --type admin',
      '--type must be one of management, client, read, metrics, agent, join, not "admin".',
    ],
    ['token create x --slots 0', '--slots must be a whole number from 1 on, not "0".'],
    ['token create x --uses 10001', '--uses must be a whole number from 1 to 10000, not "10001".'],
    ['token create x --names ', '--names must not be empty.'],
    ['token create ', 'The name of the token must not be empty.'],
    ['jobs diff report x', 'The revision must be a whole number from 1 on, not "x".'],
    ['jobs revert report x', 'The revision must be a whole number from 1 on, not "x".'],
    ['secret set ', 'A name on the command line must not be empty.'],
    ['jobs delete ', 'A name on the command line must not be empty.'],
  ]
  for (const [command, message] of cases)
    assert.deepEqual(
      await run(...command.split(' ')),
      {code: 2, out: '', err: `belfry: ${message}\n`},
      command,
    )
  const action = await run('audit', '--action', 'job.dlete')
  assert.equal(action.code, 2)
  assert.match(action.err, /--action must be one of job\.create, .*, job, .*, not "job\.dlete"/)
})

test('a duration counts from now, and a time stays', () => {
  const now = Date.parse('2026-03-01T12:00:00Z')
  assert.equal(timeOf('--expires', '1d', now, 1), '2026-03-02T12:00:00.000Z')
  assert.equal(timeOf('--from', '1d', now, -1), '2026-02-28T12:00:00.000Z')
  assert.equal(timeOf('--from', '2026-03-01T12:00:00+01:00', now, -1), '2026-03-01T12:00:00+01:00')
})
