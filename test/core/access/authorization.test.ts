/** Authorization: which rule decides, limits of definitions, and lists that agree with single decisions. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import fc from 'fast-check'
import {
  decide,
  isShown,
  jobPath,
  NO_RULES,
  type Principal,
  readableExecutions,
  readableJobs,
  RuleSet,
  type TokenKind,
} from '../../../src/core/access/authorization.ts'
import {decideStore} from '../../../src/core/access/job-permission.ts'
import {compileGlob, matchesGlob, matchesText} from '../../../src/core/access/glob.ts'
import {
  type Capability,
  type ExecutorTraits,
  type ProcessorTraits,
  readRules,
} from '../../../src/core/access/policy.ts'
import {DEFINITION_TRAITS} from '../../support/definition-traits.ts'
import {PLAIN_SPEC} from '../../support/fixtures.ts'

const MAIL: ExecutorTraits = {
  name: 'mail',
  runsCommands: false,
  takesAccount: false,
  fileParameters: ['attachment'],
}
const CONTAINER: ExecutorTraits = {
  name: 'container',
  runsCommands: true,
  takesAccount: true,
  fileParameters: [],
}
const PIPE: ProcessorTraits = {name: 'pipe', fileParameters: ['socket']}
const TRAITS = {
  executors: [...DEFINITION_TRAITS.executors, MAIL, CONTAINER],
  processors: [...DEFINITION_TRAITS.processors, PIPE],
}

type Paths = Readonly<Record<string, readonly string[]>>

type Written = Paths | {readonly path: Paths; readonly limits: object}

function client(...policies: readonly Written[]) {
  return principal('client', new RuleSet(parsed(policies), TRAITS))
}

/** A person whose groups grant policies, and to read everything. */
function viewer(...policies: readonly Written[]) {
  return principal('client', new RuleSet(parsed(policies), TRAITS, true))
}

function parsed(policies: readonly Written[]) {
  return policies.map((policy, at) => {
    const {path, limits} = 'limits' in policy ? policy : {path: policy, limits: {}}
    const globs = Object.entries(path as Paths).map(([glob, capabilities]) => [
      glob,
      {capabilities},
    ])
    const reading = readRules(JSON.stringify({path: Object.fromEntries(globs), ...limits}))
    assert(reading.ok, reading.ok ? '' : reading.problem)
    return {name: `p${at}`, rules: reading.rules, limits: reading.limits}
  })
}

function principal(kind: TokenKind, rules = NO_RULES): Principal {
  return {kind, name: 'who', accessor: 'id', isSession: false, rules}
}

const GLOBS: readonly (readonly [glob: string, path: string, matches: boolean])[] = [
  ['/v1/jobs', '/v1/jobs', true],
  ['/v1/jobs', '/v1/jobs-x', false],
  ['/v1/jobs/*', '/v1/jobs', false],
  ['/v1/jobs/*', '/v1/jobs/a', true],
  ['/v1/jobs/*', '/v1/jobs/a/b', false],
  ['/v1/jobs/team-a-*', '/v1/jobs/team-a-', true],
  ['/v1/jobs/team-a-*', '/v1/jobs/team-b-team-a-x', false],
  ['/v1/jobs/*-a-*-x', '/v1/jobs/1-a-2-a-3-x', true],
  ['/v1/jobs/*-a-*-x', '/v1/jobs/1-a-x', false],
  ['/v1/**', '/v1', true],
  ['/v1/**', '/v1/jobs/a/b/c', true],
  ['/v1/**', '/v10', false],
  ['/v1/**/output', '/v1/jobs/a/executions/1/output', true],
  ['/v1/**/output', '/v1/output', true],
  ['/v1/**/output', '/v1/output/x', false],
  ['/v1/**/a/**/b', '/v1/a/x/a/y/b', true],
  ['/v1/jobs/*/**', '/v1/jobs/a', true],
  ['/V1/jobs', '/v1/jobs', false],
]

test('globs: * is within a segment, ** is any number of segments', () => {
  for (const [glob, path, matches] of GLOBS)
    assert.equal(
      matchesGlob(compileGlob(glob), path.slice(1).split('/')),
      matches,
      `${glob} ${path}`,
    )
})

test('a glob of many wildcards takes few steps', () => {
  const text = 'a'.repeat(128)
  let steps = 0
  const counted = new Proxy(
    {length: text.length},
    {
      get: (target, key) => {
        if (key === 'length') return target.length
        steps += 1
        return text[Number(key)]
      },
    },
  )
  assert.equal(matchesText('*a'.repeat(120) + 'b', counted as unknown as string), false)
  assert.ok(steps < 100_000, `${steps} steps`)
})

const DECISIONS: readonly (readonly [Capability, string, boolean])[] = [
  ['read', '/v1/jobs/team-a-1', true],
  ['update', '/v1/jobs/team-a-1', false],
  ['list', '/v1/jobs', true],
  ['read', '/v1/jobs', true],
  ['read', '/v1/jobs/team-b-1', false],
  ['read', '/v1/jobs/team-a-secret', false],
  ['read', '/v1/jobs/team-a-secret/executions', false],
  ['read', '/v1/jobs/team-a-secret-not', true],
  ['create', '/v1/jobs/team-a-1/run', true],
  ['create', '/v1/members', false],
]

test('the most specific globs decide: deny beats them, else capabilities add up', () => {
  const who = client(
    {'/v1/**': ['read', 'list'], '/v1/jobs/*': ['deny'], '/v1/jobs/team-a-*': ['read']},
    {'/v1/jobs/team-a-secret/**': ['deny'], '/v1/jobs/team-a-*/run': ['create']},
  )
  for (const [capability, path, allowed] of DECISIONS)
    assert.equal(decide(who, capability, path).allowed, allowed, `${capability} ${path}`)
  const decision = decide(who, 'read', '/v1/jobs/team-a-secret')
  assert.deepEqual(decision.rule, {policy: 'p1', glob: '/v1/jobs/team-a-secret/**'})
  assert.equal(decision.denied, true)
  assert.equal(decide(client(), 'read', '/v1').rule, null)
})

test('a glob without wildcards is before a glob that also matches below it', () => {
  const who = client({'/v1/jobs': ['list'], '/v1/jobs/**': ['deny']})
  assert.equal(decide(who, 'list', '/v1/jobs').allowed, true)
  assert.equal(decide(who, 'read', '/v1/jobs/x').allowed, false)
})

test('list is enough for a list, read is enough for both', () => {
  assert.equal(decide(client({'/v1/jobs': ['list']}), 'list', '/v1/jobs').allowed, true)
  assert.equal(decide(client({'/v1/jobs': ['read']}), 'list', '/v1/jobs').allowed, true)
  assert.equal(decide(client({'/v1/jobs/*': ['list']}), 'read', '/v1/jobs/x').allowed, false)
})

test('the kind decides for tokens without policies', () => {
  const may = (kind: TokenKind, capability: Capability) =>
    decide(principal(kind), capability, '/v1/jobs/x').allowed
  const table = (['management', 'client', 'read', 'metrics', 'agent', 'join'] as const).map(
    (kind) => [kind, may(kind, 'read'), may(kind, 'update')],
  )
  assert.deepEqual(table, [
    ['management', true, true],
    ['client', false, false],
    ['read', true, false],
    ['metrics', false, false],
    ['agent', false, false],
    ['join', false, false],
  ])
  assert.deepEqual(
    (['management', 'client', 'read', 'metrics', 'agent', 'join'] as const).map((kind) =>
      readableJobs(principal(kind)),
    ),
    [null, [], null, [], [], []],
  )
})

test('limits of a policy hold for what it grants, and for nothing else', () => {
  const free: Paths = {'/v1/jobs/free-*': ['create', 'update']}
  const limited = {path: {'/v1/jobs/*': ['create', 'update']}, limits: {executors: ['http']}}
  const shell = (name: string) => ({...PLAIN_SPEC, name, executor: 'shell'})
  const both = client(free, limited)
  assert.equal(decideStore(both, 'free-x', shell('free-x')).allowed, true)
  const refused = decideStore(both, 'x', shell('x'))
  assert(!refused.allowed)
  assert.match(refused.sentence, /the policy p1 allows only the executors http/)
  // Equal globs of two policies: one of them is enough.
  const either = client(limited, {'/v1/jobs/*': ['update']})
  assert.deepEqual(decideStore(either, 'x', shell('x')), {
    allowed: true,
    may: {create: false, update: true},
  })
  assert.equal(
    decideStore(client({'/v1/jobs/*': ['read']}, limited), 'x', shell('x')).allowed,
    false,
  )
})

const ACCOUNTS: readonly (readonly [
  su: readonly string[],
  executor: string,
  account: string,
  fits: boolean,
])[] = [
  [[''], 'shell', '', true],
  [[''], 'shell', 'root', false],
  [['deploy'], 'shell', '', false],
  [['deploy'], 'shell', 'deploy', true],
  [['deploy'], 'shell', 'deploy:root', false],
  [['deploy:*'], 'shell', 'deploy:www', true],
  [['*'], 'shell', '', true],
  [['deploy'], 'http', '', true],
  [['deploy'], 'http', 'root', false],
  [['deploy'], '', '', false],
]

test('a limit of accounts holds for every executor that may have one', () => {
  for (const [su, executor, account, fits] of ACCOUNTS) {
    const who = client({path: {'/v1/jobs/*': ['update']}, limits: {su}})
    const executorConfig: Record<string, string> = account === '' ? {} : {su: account}
    const spec = {...PLAIN_SPEC, executor, executorConfig}
    const about = `${su.join()} ${executor} ${account}`
    assert.equal(decideStore(who, 'job', spec).allowed, fits, about)
  }
})

test('a definition that names a secret needs read of the secret', () => {
  const executorConfig = {env: 'A=${secret:team-a-db},B=${secret:shared}'}
  const spec = {...PLAIN_SPEC, executor: 'shell', executorConfig}
  const jobs = {'/v1/jobs/*': ['create', 'update']}
  const decided = (paths: Paths) => {
    const decision = decideStore(client({...jobs, ...paths}), 'job', spec)
    return decision.allowed ? 'allowed' : decision.sentence
  }
  assert.match(decided({}), /may not read \/v1\/secrets\/team-a-db: .*"job" uses this secret\.$/)
  const own = {'/v1/secrets/team-a-*': ['read']}
  assert.match(decided(own), /may not read \/v1\/secrets\/shared/)
  assert.match(decided({...own, '/v1/secrets/shared': ['update']}), /may not read/)
  assert.equal(decided({...own, '/v1/secrets/shared': ['read']}), 'allowed')
  assert.equal(decideStore(client(jobs), 'job', {...spec, executorConfig: {}}).allowed, true)
})

const PART = fc.constantFrom('a', 'b', 'ab', '*', 'a*', '*b', 'a*b', '**', 'A', 'ü', '_', 'a-')
const GLOB = fc
  .tuple(fc.constantFrom('/v1/jobs', '/v1', '/v1/**', '/**'), fc.array(PART, {maxLength: 3}))
  .map(([start, parts]) => [start, ...parts].join('/'))
const RULES = fc.dictionary(GLOB, fc.subarray(['read', 'list', 'update', 'deny'], {minLength: 1}), {
  maxKeys: 6,
})
const NAME = fc.stringMatching(/^[abü_-]{1,4}$/)

test('who reads everything besides policies can do no less than each alone, and use no other secret', () => {
  const who = viewer({
    '/v1/jobs/team-a-*': ['update'],
    '/v1/secrets/mine': ['read'],
    '/v1/x': ['deny'],
  })
  for (const [capability, path, allowed] of [
    ['read', '/v1/jobs/other', true],
    ['read', '/v1/jobs/team-a-x', true],
    ['update', '/v1/jobs/team-a-x', true],
    ['update', '/v1/jobs/other', false],
    ['list', '/v1/secrets', true],
    ['read', '/v1/secrets/mine', true],
    ['read', '/v1/secrets/other', false],
    ['read', '/v1/x', false],
  ] as const)
    assert.equal(decide(who, capability, path).allowed, allowed, `${capability} ${path}`)
  assert.equal(readableJobs(who), null, 'all of them')
})

test('law: a list shows a job exactly if the job may be read', () => {
  fc.assert(
    fc.property(fc.array(RULES, {maxLength: 3}), NAME, fc.boolean(), (policies, name, readsAll) => {
      const who = readsAll ? viewer(...policies) : client(...policies)
      const path = jobPath(name)
      assert.equal(isShown(readableJobs(who), name), decide(who, 'read', path).allowed)
      const listed = decide(who, 'list', `${path}/executions`).allowed
      assert.equal(isShown(readableExecutions(who), name), listed)
    }),
    {numRuns: 2_000},
  )
})

test('a decision takes a look for each length of a prefix, however many globs there are', (t) => {
  const globs = Array.from({length: 1_000}, (_, at): [string, string[]] => [
    `/v1/jobs/team-${at}-*`,
    ['read'],
  ])
  const who = client(Object.fromEntries(globs))
  const get = t.mock.method(Map.prototype, 'get')
  assert.equal(decide(who, 'read', '/v1/jobs/team-77-x').allowed, true)
  assert.equal(decide(who, 'read', '/v1/jobs/none').allowed, false)
  assert.ok(get.mock.callCount() <= 6, `${get.mock.callCount()} look-ups`)
})

test('another processor is judged by its traits', () => {
  const may = (limits: object, config: Record<string, string>) => {
    const caller = client({path: {'/v1/jobs/*': ['create']}, limits})
    const spec = {...PLAIN_SPEC, executor: 'http', processors: {pipe: config}}
    return decide(caller, 'create', '/v1/jobs/a', spec)
  }
  assert.equal(may({executors: ['http']}, {}).allowed, true)
  assert.equal(may({}, {socket: '/run/docker.sock'}).allowed, true)
  const {allowed, why} = may({executors: ['http']}, {socket: '/run/docker.sock'})
  assert.equal(allowed, false)
  assert.match(why, /does not allow the executor shell or container, and so no socket/)
})

test('another executor is judged by its traits', () => {
  const may = (limits: object, executor: string, executorConfig: Record<string, string> = {}) => {
    const caller = client({path: {'/v1/jobs/*': ['create']}, limits})
    return decide(caller, 'create', '/v1/jobs/a', {...PLAIN_SPEC, executor, executorConfig})
  }
  const deploy = {su: ['deploy']}
  assert.equal(may(deploy, 'mail').allowed, true, 'it takes no account')
  assert.equal(may(deploy, 'mail', {su: 'root'}).allowed, false)
  assert.equal(may(deploy, 'container').allowed, false)
  assert.equal(may(deploy, 'container', {su: 'deploy'}).allowed, true)
  assert.equal(may(deploy, 'unknown').allowed, false, 'it may take an account')
  const mails = {executors: ['mail', 'http']}
  assert.equal(may(mails, 'mail').allowed, true)
  const {allowed, why} = may(mails, 'mail', {attachment: '/etc/shadow'})
  assert.equal(allowed, false)
  assert.match(why, /does not allow the executor shell or container, and so no attachment/)
  const runs = {executors: ['mail', 'container']}
  assert.equal(may(runs, 'mail', {attachment: '/etc/shadow'}).allowed, true)
})
