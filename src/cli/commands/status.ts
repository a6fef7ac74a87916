/** `belfry status`: whether the cluster is healthy, in the first line and in the exit code. */
import type {Command} from 'commander'
import type {StatusJson} from '../../wire/status.ts'
import {NegativeResult} from '../errors.ts'
import {fieldList, localTimes, relative} from '../format.ts'
import {oneLine} from '../sanitize.ts'
import {printJson, type Session, type WithSession} from '../session.ts'
import {toned} from '../terminal.ts'

export function addStatusCommand(program: Command, use: WithSession): void {
  program
    .command('status')
    .description('Show whether the cluster is healthy; exit code 0 if it is, else 1')
    .option('--all', 'Show every detail of the server and the cluster')
    .action(use(show))
}

async function show(session: Session, {all}: {all?: true}): Promise<void> {
  const {value} = await session.client.call<StatusJson>('GET', '/')
  const {health, health_sentence: sentence = ''} = value.gossip
  if (session.json) printJson(session, value)
  else {
    // A server of an earlier release does not say how it is.
    if (health !== undefined)
      printSummary(session, value, localTimes(`${health}: ${sentence}`, session.zone))
    if (all !== undefined || health === undefined) printAll(session, value)
  }
  if (health !== undefined && health !== 'healthy') throw new NegativeResult(sentence)
}

function printSummary(session: Session, {agent, gossip}: StatusJson, line: string): void {
  const {terminal} = session
  const isHealthy = gossip['health'] === 'healthy'
  terminal.out(`${toned(terminal, isHealthy ? 'good' : 'bad', oneLine(line))}\n\n`)
  const of = (name: string) => oneLine(gossip[name] ?? '')
  const started = relative(agent['started_at'] ?? null, session.clock.now())
  const leader =
    of('leader') === ''
      ? 'none'
      : `${of('leader')}, term ${of('term')} (grows with each change of the leader)`
  const warnings = of('store_warnings')
  terminal.out(
    fieldList(terminal, [
      ['server', oneLine(`${agent['name']} ${agent['version']}, started ${started}`)],
      ['leader', leader],
      ['nodes', nodesText(of)],
      ['jobs', of('jobs')],
      ['running', `${of('running')} of ${of('slots')} slots`],
      ['pending', `${of('pending')} (executions that wait for a slot, a node or a retry)`],
      ['undecided', `${of('undecided')} (launches that wait for a node or an earlier launch)`],
      ['firing', localTimes(of('firing'), session.zone)],
      ['backup', backupText(session, of)],
      ['notices', noticesText(of)],
      ['submissions', of('paused') === 'true' ? 'paused' : 'enabled'],
      ['store', `${of('store')} ${of('store_version')}, schema ${of('schema_version')}`],
      ...(warnings === '' ? [] : [['warning', warnings] as const]),
    ]),
  )
}

function backupText(session: Session, of: (name: string) => string): string {
  if (of('backups') !== 'on') return 'not scheduled on this server'
  const at = of('last_backup')
  return at === '' ? 'none yet' : `${relative(at, session.clock.now())}, ${of('last_backup_file')}`
}

/** A server of an earlier release has no notices. */
function noticesText(of: (name: string) => string): string {
  const failing = of('notices_failing')
  const dead = of('notices_dead')
  const problems = [
    ...(failing === '' ? [] : [`not delivered over ${failing.replaceAll(',', ', ')}`]),
    ...(dead === '' || dead === '0' ? [] : [`${dead} of the last day could not be delivered`]),
  ]
  return problems.length === 0 ? 'delivered' : problems.join('; ')
}

const COUNTED = ['alive', 'cordoned', 'leaving', 'failed', 'left'] as const

function nodesText(of: (name: string) => string): string {
  return COUNTED.filter((name) => name === 'alive' || (of(name) !== '0' && of(name) !== ''))
    .map((name) => `${of(name)} ${name}`)
    .join(', ')
}

function printAll({terminal}: Session, value: StatusJson): void {
  for (const section of ['agent', 'gossip', 'tags'] as const) {
    terminal.out(`${toned(terminal, 'strong', section)}\n`)
    terminal.out(
      fieldList(
        terminal,
        Object.entries(value[section]).map(([key, text]) => [`  ${key}`, oneLine(text)]),
      ),
    )
  }
}
