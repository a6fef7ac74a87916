/** `belfry explain`: why a job ran, did not run, or waits, and what it does next. */
import type {Command} from 'commander'
import type {ExplanationJson} from '../../wire/explain.ts'
import {path} from '../client.ts'
import {UsageError} from '../errors.ts'
import {relative, shownTime} from '../format.ts'
import {oneLine} from '../sanitize.ts'
import {printJson, type Session, type WithSession} from '../session.ts'
import {toned} from '../terminal.ts'
import {momentOf, whole} from '../values.ts'

export function addExplainCommand(program: Command, use: WithSession): void {
  program
    .command('explain <job>')
    .description('Explain why a job ran, did not run, or waits, and what it does next')
    .option(
      '--at <when>',
      'Then: a time or a date in the time zone of the job, such as "yesterday 02:30", a duration ago, such ' +
        'as 2h, or now (default: the newest launch)',
    )
    .option('--launch <n>', 'This launch', whole('--launch'))
    .action(use(explain))
}

const HEADINGS: Readonly<Record<ExplanationJson['kind'], string>> = {
  launched: 'launched',
  not_run: 'did not run',
  waiting: 'waits',
  absent: 'no launch',
}

async function explain(
  session: Session,
  job: string,
  options: {at?: string; launch?: number},
): Promise<void> {
  if (options.at !== undefined && options.launch !== undefined)
    throw new UsageError('--at and --launch cannot be used together: a launch has one time.')
  const now = session.clock.now()
  const at = options.at === undefined ? undefined : momentOf('--at', options.at, now, session.zone)
  const query = {at, launch: options.launch}
  const {value} = await session.client.call<ExplanationJson>('GET', path('jobs', job, 'explain'), {
    query,
  })
  if (session.json) return printJson(session, value)
  const {terminal} = session
  const line = (text: string) => terminal.out(`${oneLine(text)}\n`)
  const zone = session.utc ? 'UTC' : value.timezone
  const title = `${value.job} at ${shownTime(value.at, zone)}: ${HEADINGS[value.kind]}`
  terminal.out(`${toned(terminal, 'strong', oneLine(title))}\n`)
  value.sentences.forEach(line)
  line('')
  line(`Now: ${value.now.sentences.join(' ')}`)
  if (value.next.length === 0) line('Next: no planned time.')
  for (const each of value.next) {
    const unless = each.unless.length === 0 ? '' : `, unless ${each.unless.join('; or ')}`
    line(`Next: ${shownTime(each.at, zone)} (${relative(each.at, now)})${unless}`)
  }
  if (value.advice !== '' || value.commands.length > 0) line('')
  if (value.advice !== '') line(value.advice)
  for (const command of value.commands) terminal.out(`  ${oneLine(command)}\n`)
  // The title has the offset of all times, unless it is in another zone.
  if (zone !== value.timezone && terminal.progress)
    terminal.err(`Times in sentences are in ${value.timezone}.\n`)
}
