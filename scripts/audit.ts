/**
 * `npm run audit`: asks the registry for known vulnerabilities of all locked packages. The bundle contains
 * development dependencies, so none is left out. Exit code 0: none is known. 1: some are. 3: the registry was
 * not able to say, which is no proof of anything.
 */
import {spawnSync} from 'node:child_process'

const FOUND = 1
const NOT_ASKED = 3

interface Answer {
  readonly vulnerabilities?: Readonly<Record<string, {severity: string; range: string}>>
  /** Message of npm's error. */
  readonly message?: string
  readonly error?: {readonly summary?: string}
}

function parsed(text: string): Answer {
  try {
    return JSON.parse(text) as Answer
  } catch {
    return {message: 'npm printed no JSON'}
  }
}

const {stdout, error} = spawnSync('npm', ['audit', '--json'], {encoding: 'utf8'})
const {vulnerabilities, message, error: refusal} = parsed(stdout ?? '')
if (error !== undefined || vulnerabilities === undefined) {
  const why = error?.message ?? message ?? refusal?.summary ?? 'it sent no list'
  console.error(
    `The known vulnerabilities cannot be listed: ${why}. Nothing was checked. ` +
      'Repeat it with a registry that offers the list: npm config set registry URL.',
  )
  process.exitCode = NOT_ASKED
} else {
  const found = Object.entries(vulnerabilities)
  for (const [name, {severity, range}] of found) console.error(`${severity}: ${name} ${range}`)
  console.error(`${found.length} packages with known vulnerabilities.`)
  process.exitCode = found.length === 0 ? 0 : FOUND
}
