/*
 * The status page at /ui/: this server and its jobs, read from the API and refreshed. A token is sent once,
 * to sign in; after that the browser has the cookie of a session, which this page cannot read. Everything
 * it shows is set as text, never as markup.
 */

const JOBS_SHOWN = 200
const REFRESH_MS = 5_000

const element = (id) => document.getElementById(id)
/** A person did something here since the last refresh. Refreshes alone do not keep a session open. */
let isInUse = true
let isSignedIn = false

/** The server needs a token, or another one. */
class SignInRequired extends Error {}

/** The token of the caller may not do this. */
class NotAllowed extends Error {}

async function call(method, path, more = {}) {
  // This header keeps the browser from opening its own login dialog.
  const headers = {'X-Requested-With': 'XMLHttpRequest', ...more}
  const response = await fetch(path, {method, headers, cache: 'no-store'})
  const body = await response.json()
  if (response.status === 401) throw new SignInRequired(body.detail)
  if (response.status === 403) throw new NotAllowed(body.detail)
  if (!response.ok) throw new Error(body.detail ?? `The server replied with ${response.status}.`)
  return {body, total: Number(response.headers.get('X-Total-Count') ?? 0)}
}

function showCaller({name, type, session}) {
  isSignedIn = session
  element('caller').hidden = !session
  const shown = name === '' ? 'the token of the configuration' : name
  element('caller-name').textContent = `${shown} (${type})`
}

function showStatus({agent, gossip}) {
  const rows = [
    ['Node', agent.name],
    ['Version', agent.version],
    ['Leader', gossip.leader === '' ? 'none at the moment' : gossip.leader],
    ['Members alive', gossip.alive],
    ['Running', gossip.running],
    ['Pending', gossip.pending],
    ['Store', `${gossip.store} ${gossip.store_version}`],
    ['Firing', gossip.firing.replaceAll(INSTANT, localTime)],
    ['Submissions', gossip.paused === 'true' ? 'paused' : 'enabled'],
    ['Default time zone', gossip.default_timezone],
    ['Started', localTime(agent.started_at)],
  ]
  element('status').replaceChildren(
    ...rows.map(([name, value]) => {
      const pair = document.createElement('div')
      pair.append(textElement('dt', name), textElement('dd', value))
      return pair
    }),
  )
  showBanner(agent)
}

function showBanner(agent) {
  const banner = element('banner')
  banner.hidden = agent.token_configured === 'true'
  const risk =
    agent.runs_as_root === 'true'
      ? 'The server runs as root, so every user of this machine can run commands as root.'
      : ''
  banner.textContent = [
    'There is no token: every user of this machine has full access.',
    risk,
    'Create one with belfry token bootstrap, or start the server with --token.',
  ].join(' ')
}

function showJobs(jobs, total) {
  element('count').textContent = total > jobs.length ? `(${jobs.length} of ${total})` : `(${total})`
  element('empty').hidden = total > 0
  element('jobs').hidden = total === 0
  element('jobs').tBodies[0].replaceChildren(...jobs.map(jobRow))
}

function jobRow(job) {
  const row = document.createElement('tr')
  const name = textElement('th', job.displayname === '' ? job.name : job.displayname)
  name.scope = 'row'
  name.title = job.name
  const state = stateOf(job)
  const status = textElement('td', state.replaceAll('_', ' '))
  status.className = state === job.status ? state : 'quiet'
  row.append(
    name,
    textElement('td', job.parent_job === '' ? job.schedule : `after ${job.parent_job}`),
    status,
    textElement('td', nextOf(job)),
    textElement('td', String(job.success_count)),
    textElement('td', String(job.error_count)),
  )
  return row
}

function stateOf(job) {
  if (job.disabled) return 'disabled'
  if (job.waits_for_node) return 'waits for a node'
  return job.status === '' ? 'not run yet' : job.status
}

/** A planned time of a paused job is skipped. */
function nextOf(job) {
  if (job.next === null) return ''
  return job.firing_paused ? `paused (${localTime(job.next)} is skipped)` : localTime(job.next)
}

/** Instants in the texts of the API. */
const INSTANT = /\d{4}-\d\d-\d\dT[\d:.]+Z/g

function textElement(tag, text) {
  const created = document.createElement(tag)
  created.textContent = text
  return created
}

function localTime(text) {
  return new Date(text).toLocaleString()
}

/** `''` = no error. */
function showError(text) {
  element('error').hidden = text === ''
  element('error').textContent = text
}

/** Removes what the page shows: the next person here may not see it. */
function showSignIn(why) {
  isSignedIn = false
  element('sign-in').hidden = false
  element('content').hidden = true
  element('caller').hidden = true
  element('banner').hidden = true
  element('status').replaceChildren()
  element('jobs').tBodies[0].replaceChildren()
  showError(why)
}

function showContent() {
  element('sign-in').hidden = true
  element('content').hidden = false
}

async function refresh() {
  const headers = isInUse ? {} : {'X-Belfry-Refresh': '1'}
  isInUse = false
  // A token may be allowed to read only some of them.
  const [caller, status, jobs] = await Promise.allSettled([
    call('GET', '/v1/session', headers),
    call('GET', '/v1/', headers),
    call('GET', `/v1/jobs?_start=0&_end=${JOBS_SHOWN}`, headers),
  ])
  if (caller.reason instanceof SignInRequired)
    return showSignIn(isSignedIn ? 'The session has ended. Sign in again.' : '')
  showContent()
  if (caller.status === 'fulfilled') showCaller(caller.value.body)
  if (status.status === 'fulfilled') showStatus(status.value.body)
  if (jobs.status === 'fulfilled') showJobs(jobs.value.body, jobs.value.total)
  // Panels that the caller may not read are hidden, and are no error.
  const isHidden = ({reason}) => caller.status === 'fulfilled' && reason instanceof NotAllowed
  element('server').hidden = isHidden(status)
  element('all-jobs').hidden = isHidden(jobs)
  element('nothing').hidden = !isHidden(status) || !isHidden(jobs)
  const failed = [caller, status, jobs].find((each) => 'reason' in each && !isHidden(each))
  const error = failed?.reason ?? null
  showError(error === null ? '' : `Refresh failed: ${error.message}`)
}

/** Times are those of the browser, whatever the zone of a job. */
element('zone').textContent = Intl.DateTimeFormat().resolvedOptions().timeZone

async function refreshRepeatedly() {
  if (!document.hidden && element('sign-in').hidden) await refresh()
  setTimeout(refreshRepeatedly, REFRESH_MS)
}

async function signIn() {
  const field = element('token')
  const token = field.value.trim()
  field.value = ''
  try {
    await call('POST', '/v1/session', {'X-Service-Token': token})
  } catch (error) {
    field.focus()
    const isWrong = error instanceof SignInRequired
    return showError(isWrong ? 'This token is not valid.' : `Sign-in failed: ${error.message}`)
  }
  await refresh()
}

async function signOut() {
  try {
    await call('DELETE', '/v1/session')
  } catch (error) {
    // A missing session needs no sign-out.
    if (!(error instanceof SignInRequired)) return showError(`Sign-out failed: ${error.message}`)
  }
  showSignIn('')
}

element('token-form').addEventListener('submit', (event) => {
  event.preventDefault()
  void signIn()
})
element('sign-out').addEventListener('click', () => void signOut())
for (const name of ['pointerdown', 'keydown'])
  document.addEventListener(name, () => {
    isInUse = true
  })
document.addEventListener('visibilitychange', () => {
  if (!document.hidden && element('sign-in').hidden) void refresh()
})
void refreshRepeatedly()
