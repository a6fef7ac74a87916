/** Connection strings: parsing, refusals, and no secret in any sentence. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {describeAddress, parseAddress, type Address} from '../../../src/store/postgres/url.ts'

function addressOf(url: string): Address {
  const parsed = parseAddress(url)
  assert(parsed.ok, parsed.ok ? '' : parsed.problem)
  return parsed.address
}

const PLAIN: Address = {
  hosts: [{host: 'db', port: 5432}],
  user: null,
  password: null,
  database: 'jobs',
  schema: 'belfry',
  tls: null,
}

describe('a connection string', () => {
  const rows: readonly (readonly [url: string, expected: Partial<Address>])[] = [
    ['postgres://db/jobs', {}],
    ['postgresql://me@db/jobs', {user: 'me'}],
    [
      'postgres://me:secret@db:6000/jobs',
      {user: 'me', password: 'secret', hosts: [{host: 'db', port: 6000}]},
    ],
    ['postgres://me:p%40s%3As@db/jobs', {user: 'me', password: 'p@s:s'}],
    ['postgres://me:a@b:c@db/jobs', {user: 'me', password: 'a@b:c'}],
    ['postgres://me:@db/jobs', {user: 'me', password: ''}],
    ['postgres://[::1]:7000/jobs', {hosts: [{host: '::1', port: 7000}]}],
    [
      'postgres://a,b:6000,[::1]/jobs',
      {
        hosts: [
          {host: 'a', port: 5432},
          {host: 'b', port: 6000},
          {host: '::1', port: 5432},
        ],
      },
    ],
    ['postgres://db/my%20jobs', {database: 'my jobs'}],
    ['postgres://db/jobs?schema=other', {schema: 'other'}],
    ['postgres://db/jobs?sslmode=disable', {}],
    ['postgres://db/jobs?sslmode=require', {tls: {rejectUnauthorized: false}}],
    ['postgres://db/jobs?sslmode=verify-full', {tls: {rejectUnauthorized: true}}],
  ]
  for (const [url, expected] of rows)
    it(url, () => assert.deepEqual(addressOf(url), {...PLAIN, ...expected}))

  it('verify-ca checks the authority, not the name', () => {
    const {tls} = addressOf('postgres://db/jobs?sslmode=verify-ca')
    assert.equal(tls?.rejectUnauthorized, true)
    assert.equal(tls?.checkServerIdentity?.('db', {} as never), undefined)
  })

  it('is described without user and password', () => {
    const address = addressOf('postgres://me:secret@a,[::1]:6000/jobs')
    assert.equal(describeAddress(address), 'postgres://a:5432,[::1]:6000/jobs')
  })
})

describe('a connection string that is refused', () => {
  const rows: readonly (readonly [url: string, problem: RegExp])[] = [
    ['mysql://me:secret@db/jobs', /must be a URL such as/],
    ['postgres://me:secret@db', /names no database/],
    ['postgres://me:secret@/jobs', /names no host/],
    ['postgres://me:secret@db:0/jobs', /must name each host as name:port/],
    ['postgres://me:secret@db:99999/jobs', /must name each host as name:port/],
    ['postgres://me:secret@a,,b/jobs', /must name each host as name:port/],
    ['postgres://me:secret%ZZ@db/jobs', /has a "%"/],
    ['postgres://me:secret@db/jobs?sslmode=prefer', /sslmode/],
    ['postgres://me:secret@db/jobs?sslmode=require&sslcert=a', /needs sslcert and sslkey together/],
    ['postgres://me@db/jobs?sslmod=require', /"sslmod", .*; the nearest name is "sslmode"/],
    ['postgres://me:secret@db/jobs?secret=1', /parameter that is not known; there are schema,/],
    ['postgres://me:secret@db/jobs?schema=A-b', /names a schema/],
    [
      'postgres://me:secret@db/jobs?sslmode=require&sslrootcert=/secret/not/there',
      /cannot be read/,
    ],
    // A slash that is not written as %2F splits the password.
    ['postgres://me:sec/ret@db/jobs', /must be a URL such as/],
    ['postgres://me:123/secret@db', /must be a URL such as/],
    ['postgres://me:123?secret@db/jobs', /must be a URL such as/],
  ]
  for (const [url, problem] of rows)
    it(`${problem.source}: ${url}`, () => {
      const parsed = parseAddress(url)
      assert(!parsed.ok)
      assert.match(parsed.problem, problem)
      assert.match(parsed.problem, /^The connection string of the store .*\.$/)
      assert.doesNotMatch(parsed.problem, /secret|sec/)
    })
})
