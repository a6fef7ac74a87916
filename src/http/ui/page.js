/*
 * The page at /ui/: what this server is and which jobs it has, read from the API and kept fresh. It only
 * reads, and everything it shows is set as text, never as markup.
 */

const JOBS_SHOWN = 200
const REFRESH_MS = 5_000
const TOKEN_PLACE = 'belfry-token'

const element = (id) => document.getElementById(id)
let token = sessionStorage.getItem(TOKEN_PLACE) ?? ''

/** Thrown when the server wants a token, or another one. */
class TokenWanted extends Error {}

async function ask(path) {
  const headers = token === '' ? {} : {'X-Service-Token': token}
  const response = await fetch(path, {headers, cache: 'no-store'})
  if (response.status === 401) throw new TokenWanted()
  const body = await response.json()
  if (!response.ok) throw new Error(body.detail ?? `The server answered ${response.status}.`)
  return {body, total: Number(response.headers.get('X-Total-Count') ?? 0)}
}

function showStatus({agent, gossip}) {
  const facts = [
    ['Node', agent.name],
    ['Version', agent.version],
    ['Leader', gossip.leader === '' ? 'none at the moment' : gossip.leader],
    ['Members alive', gossip.alive],
    ['Running', gossip.running],
    ['Waiting', gossip.pending],
    ['Store', `${gossip.store} ${gossip.store_version}`],
    ['Submissions', gossip.paused === 'true' ? 'paused' : 'open'],
    ['Default zone', gossip.default_timezone],
    ['Started', shownTime(agent.started_at)],
  ]
  element('facts').replaceChildren(
    ...facts.map(([name, value]) => {
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
      ? 'It runs as root, so every user of this machine can run commands as root.'
      : ''
  banner.textContent = [
    'No token is configured: everyone on this machine may do everything here.',
    risk,
    'Start the server with --token to change that.',
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
    textElement('td', job.next === null ? '' : shownTime(job.next)),
    textElement('td', String(job.success_count)),
    textElement('td', String(job.error_count)),
  )
  return row
}

function textElement(tag, text) {
  const made = document.createElement(tag)
  made.textContent = text
  return made
}

function shownTime(text) {
  return new Date(text).toLocaleString()
}

function showTrouble(error) {
  const wantsToken = error instanceof TokenWanted
  element('token-form').hidden = !wantsToken
  element('trouble').hidden = error === null || wantsToken
  element('trouble').textContent = error === null ? '' : `Not up to date: ${error.message}`
}

async function refresh() {
  try {
    const [status, jobs] = await Promise.all([
      ask('/v1/'),
      ask(`/v1/jobs?_start=0&_end=${JOBS_SHOWN}`),
    ])
    showStatus(status.body)
    showJobs(jobs.body, jobs.total)
    showTrouble(null)
  } catch (error) {
    showTrouble(error)
  }
}

async function keepFresh() {
  if (!document.hidden && element('token-form').hidden) await refresh()
  setTimeout(keepFresh, REFRESH_MS)
}

element('token-form').addEventListener('submit', (event) => {
  event.preventDefault()
  token = element('token').value.trim()
  sessionStorage.setItem(TOKEN_PLACE, token)
  void refresh()
})
document.addEventListener('visibilitychange', () => {
  if (!document.hidden) void refresh()
})
void keepFresh()
