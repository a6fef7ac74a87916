/**
 * Signing in to the console: its script against the real API, in a document that has only what the script
 * uses and a browser's cookies. How it looks is not tested here.
 */
import assert from 'node:assert/strict'
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {createContext, runInContext} from 'node:vm'
import {ADMIN, startLockedApi, TEAM_A} from './tokens.ts'

const UI = join(import.meta.dirname, '../../src/http/ui')
const PAGE = readFileSync(join(UI, 'index.html'), 'utf8')
const SCRIPT = readFileSync(join(UI, 'page.js'), 'utf8')

type Listener = (event: {preventDefault(): void}) => void

class FakeElement {
  hidden: boolean
  value = ''
  textContent = ''
  children: FakeElement[] = []
  readonly listeners = new Map<string, Listener>()
  constructor(isHidden = false) {
    this.hidden = isHidden
  }
  get tBodies() {
    return [this]
  }
  append(...children: FakeElement[]) {
    this.children.push(...children)
  }
  replaceChildren(...children: FakeElement[]) {
    this.children = children
  }
  addEventListener(name: string, listener: Listener) {
    this.listeners.set(name, listener)
  }
  focus() {}
  get text(): string {
    return [this.textContent, ...this.children.map(({text}) => text)].join(' ').trim()
  }
}

async function openConsole(t: TestContext) {
  const locked = await startLockedApi(t)
  const {api} = locked
  const elements = new Map(
    [...PAGE.matchAll(/<[^>]*\bid="([\w-]+)"[^>]*>/g)].map(([tag, id]) => {
      return [id!, new FakeElement(/\shidden\b/.test(tag))]
    }),
  )
  const element = (id: string) => {
    const found = elements.get(id)
    assert.ok(found !== undefined, `the page has ${id}`)
    return found
  }
  const timers: (() => void)[] = []
  const sent: {method: string; headers: Record<string, string>}[] = []
  const pending = new Set<Promise<unknown>>()
  let cookie = ''
  const fetched = async (path: string, more: {method: string; headers: Record<string, string>}) => {
    sent.push(more)
    const own = {origin: api.url, 'sec-fetch-site': 'same-origin', 'sec-fetch-mode': 'cors'}
    const headers = {...more.headers, ...own, ...(cookie === '' ? {} : {cookie})}
    const reply = await api.call(more.method, path, {headers})
    for (const set of reply.headers['set-cookie'] ?? []) {
      if (!set.startsWith('belfry-session=')) continue
      cookie = set.includes('Max-Age=0') ? '' : set.split(';')[0]!
    }
    const {status, json} = reply
    const get = (name: string) => reply.headers[name.toLowerCase()] ?? null
    return {status, ok: status < 300, json: async () => json, headers: {get}}
  }
  const page = new FakeElement()
  const document = Object.assign(page, {
    hidden: false,
    getElementById: element,
    createElement: () => new FakeElement(),
  })
  const fetch = (path: string, more: {method: string; headers: Record<string, string>}) => {
    const call = fetched(path, more)
    pending.add(call)
    return call.finally(() => pending.delete(call))
  }
  runInContext(
    SCRIPT,
    createContext({document, fetch, setTimeout: (next: () => void) => void timers.push(next)}),
  )
  /** Runs the script until it has nothing to do. */
  const settle = async () => {
    for (let calm = 0; calm < 20; calm += 1) {
      if (pending.size > 0) calm = 0
      await Promise.allSettled(pending)
    }
  }
  const fire = async (target: FakeElement, name: string) => {
    target.listeners.get(name)!({preventDefault: () => undefined})
    await settle()
  }
  await settle()
  return {
    ...locked,
    element,
    sent,
    page,
    cookie: () => cookie,
    fire,
    signIn: async (token: string) => {
      element('token').value = token
      await fire(element('token-form'), 'submit')
    },
    refresh: async () => {
      timers.splice(0).forEach((next) => next())
      await settle()
    },
  }
}

test('a person signs in with a token, which the page does not keep, and signs out', async (t) => {
  const {element, sent, page, cookie, fire, signIn, refresh, job} = await openConsole(t)
  await job('nightly')
  assert.deepEqual([element('sign-in').hidden, element('content').hidden], [false, true])
  assert.equal(element('error').hidden, true, 'no error before the first try')
  await signIn('belfry_wrong')
  assert.equal(element('error').textContent, 'This token is not valid.')
  assert.equal(element('content').hidden, true)
  await signIn(` ${ADMIN} `)
  assert.deepEqual([element('sign-in').hidden, element('content').hidden], [true, false])
  assert.equal(element('error').hidden, true)
  assert.equal(element('token').value, '')
  assert.equal(element('caller-name').textContent, 'the token of the configuration (management)')
  assert.match(element('jobs').text, /nightly/)
  const tokens = () => sent.filter(({headers}) => headers['X-Service-Token'] !== undefined)
  assert.equal(tokens().length, 2, 'sent once for each try')
  await refresh()
  assert.ok(sent.slice(-3).every(({headers}) => headers['X-Belfry-Refresh'] === '1'))
  await fire(page, 'keydown')
  await refresh()
  assert.ok(sent.slice(-3).every(({headers}) => headers['X-Belfry-Refresh'] === undefined))
  assert.equal(tokens().length, 2)
  await fire(element('sign-out'), 'click')
  assert.equal(cookie(), '')
  assert.deepEqual([element('sign-in').hidden, element('content').hidden], [false, true])
  assert.equal(element('jobs').text, '', 'nothing stays on the page')
})

test('the console says that firing is paused, and in which zone it shows times', async (t) => {
  const {element, signIn, refresh, job, admin} = await openConsole(t)
  const next = () => element('jobs').text
  await job('nightly', {schedule: '@hourly'})
  await signIn(ADMIN)
  assert.doesNotMatch(next(), /paused/)
  assert.match(element('status').text, /Firing active/)
  const paused = await admin.call('POST', '/v1/firing/pause', {jobs: 'nightly'})
  assert.equal(paused.status, 200, paused.text)
  await refresh()
  assert.match(next(), /paused \(.* is skipped\)/)
  assert.match(element('status').text, /Firing paused \(nightly\)/)
  assert.equal(element('zone').textContent, Intl.DateTimeFormat().resolvedOptions().timeZone)
})

test('the console hides what a token may not read, which is no error', async (t) => {
  const {client, element, job, signIn} = await openConsole(t)
  await job('team-a-nightly')
  const team = await client('team-a', TEAM_A)
  await signIn(team.secret)
  assert.equal(element('error').hidden, true, element('error').textContent)
  assert.deepEqual([element('server').hidden, element('all-jobs').hidden], [true, false])
  assert.match(element('jobs').text, /team-a-nightly/)
  const path = {'/v1/jobs/deploy/run': {capabilities: ['create']}}
  await signIn((await client('ci', {path})).secret)
  assert.equal(element('error').hidden, true)
  assert.deepEqual([element('all-jobs').hidden, element('nothing').hidden], [true, false])
})

test('the console says why a token cannot sign in, and that a session has ended', async (t) => {
  const {api, element, token, signIn, refresh, admin} = await openConsole(t)
  await signIn((await token('metrics')).secret)
  assert.match(element('error').textContent, /^Sign-in failed: .* its type is metrics/)
  const reader = await token('read')
  await signIn(reader.secret)
  assert.equal(element('caller-name').textContent, 'read (read)')
  await admin.call('DELETE', `/v1/acl/tokens/${reader.accessor}`)
  await refresh()
  assert.equal(element('error').textContent, 'The session has ended. Sign in again.')
  assert.equal(element('content').hidden, true)
  assert.deepEqual(api.faults, [])
})
