/*
 * The status page at /ui/: this server and its jobs, read from the API and refreshed. The page changes
 * nothing. Everything it shows is set as text, never as markup.
 */

const JOBS_SHOWN = 200
const REFRESH_MS = 5_000
const TOKEN_KEY = 'belfry-token'

const element = (id) => document.getElementById(id)
let token = sessionStorage.getItem(TOKEN_KEY) ?? ''

/** The server needs a token, or another one. */
class TokenRequired extends Error {}

async function read(path) {
  // The second header keeps the browser from opening its own login dialog.
  const headers = {
    ...(token === '' ? {} : {'X-Service-Token': token}),
    'X-Requested-With': 'XMLHttpRequest',
  }
  const response = await fetch(path, {headers, cache: 'no-store'})
  if (response.status === 401) throw new TokenRequired()
  const body = await response.json()
  if (!response.ok) throw new Error(body.detail ?? `The server replied with ${response.status}.`)
  return {body, total: Number(response.headers.get('X-Total-Count') ?? 0)}
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
  const state = job.disabled ? 'disabled' : job.status === '' ? 'not run yet' : job.status
  const status = textElement('td', state.replaceAll('_', ' '))
  status.className = job.disabled || job.status === '' ? 'quiet' : job.status
  row.append(
    name,
    textElement('td', job.parent_job === '' ? job.schedule : `after ${job.parent_job}`),
    status,
    textElement('td', job.next === null ? '' : localTime(job.next)),
    textElement('td', String(job.success_count)),
    textElement('td', String(job.error_count)),
  )
  return row
}

function textElement(tag, text) {
  const created = document.createElement(tag)
  created.textContent = text
  return created
}

function localTime(text) {
  return new Date(text).toLocaleString()
}

/** Shows the token form, an error, or (`null`) neither. */
function showError(error) {
  const needsToken = error instanceof TokenRequired
  element('token-form').hidden = !needsToken
  element('error').hidden = error === null || needsToken
  element('error').textContent = error === null ? '' : `Refresh failed: ${error.message}`
}

async function refresh() {
  // A token may be allowed to read only one of them.
  const [status, jobs] = await Promise.allSettled([
    read('/v1/'),
    read(`/v1/jobs?_start=0&_end=${JOBS_SHOWN}`),
  ])
  if (status.status === 'fulfilled') showStatus(status.value.body)
  if (jobs.status === 'fulfilled') showJobs(jobs.value.body, jobs.value.total)
  showError(status.reason ?? jobs.reason ?? null)
}

async function refreshRepeatedly() {
  if (!document.hidden && element('token-form').hidden) await refresh()
  setTimeout(refreshRepeatedly, REFRESH_MS)
}

element('token-form').addEventListener('submit', (event) => {
  event.preventDefault()
  token = element('token').value.trim()
  sessionStorage.setItem(TOKEN_KEY, token)
  void refresh()
})
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) void refresh()
})
void refreshRepeatedly()
