/** `belfry trace`: the chain of a launch as a tree. */
import type {Command} from 'commander'
import {reasonTold} from '../../core/explain/reasons.ts'
import {counted, type Words, wordsIn} from '../../core/explain/words.ts'
import type {TraceJson, TraceLaunchJson} from '../../wire/across-jobs.ts'
import {path} from '../client.ts'
import {type Column, duration, shownTime, table} from '../format.ts'
import {printJson, type Session, type WithSession} from '../session.ts'
import {status, toned} from '../terminal.ts'
import {whole} from '../values.ts'
import {factsOf} from './launches.ts'

export function addTraceCommand(program: Command, use: WithSession): void {
  program
    .command('trace')
    .description('Show the chain of a launch, from the launch that began it')
    .argument('<launch>', 'Number of the launch', whole('The launch'))
    .action(use(trace))
}

/** A launch with the lines of the tree before its job. */
interface Node {
  readonly launch: TraceLaunchJson
  readonly lines: string
}

async function trace(session: Session, launch: number): Promise<void> {
  const at = path('launches', String(launch), 'trace')
  const {value} = await session.client.call<TraceJson>('GET', at)
  if (session.json) return printJson(session, value)
  const {terminal, zone} = session
  const words = wordsIn(zone, session.clock.now())
  const critical = new Set(value.critical_path)
  const byGroup = new Map(value.launches.map((launch) => [launch.group, launch]))
  const columns: readonly Column<Node>[] = [
    {
      title: 'JOB',
      text: ({launch: {job_name: job}}) => job,
      indent: ({lines}) => lines,
      isName: true,
    },
    {
      title: 'LAUNCH',
      text: ({launch: {group}}) => String(group),
      shown: (text) => (critical.has(Number(text)) ? toned(terminal, 'strong', text) : text),
    },
    {
      title: 'STARTED',
      text: ({launch: {started_at: started}}) => shownTime(started ?? null, zone),
      isName: true,
    },
    {
      title: 'TOOK',
      text: ({launch: {started_at: started = '', ended_at: ended = ''}}) =>
        duration(started, ended),
    },
    {title: 'STATUS', text: stateOf, shown: (text) => status(terminal, text)},
    {title: 'WHY', text: ({launch}) => whyOf(launch, byGroup.get(launch.parent ?? 0), words)},
  ]
  terminal.out(table(terminal, columns, treeOf(value.launches), 'No launches that you may read.'))
  if (value.hidden > 0)
    terminal.out(`Not shown, as you may not read its job: ${counted(value.hidden, 'other row')}.\n`)
  if (value.partial) terminal.out('The chain has more launches.\n')
}

/** Launches in the order of the tree: those whose parent is not shown are at its top. */
function treeOf(launches: readonly TraceLaunchJson[]): readonly Node[] {
  const shown = new Set(launches.map(({group}) => group))
  const isTop = ({parent}: TraceLaunchJson) => parent === undefined || !shown.has(parent)
  const children = Map.groupBy(launches, (launch) => (isTop(launch) ? 0 : launch.parent!))
  const nodes: Node[] = []
  const add = (launch: TraceLaunchJson, lines: string, below: string) => {
    nodes.push({launch, lines})
    const own = children.get(launch.group) ?? []
    own.forEach((child, at) => {
      const isLast = at === own.length - 1
      add(child, `${below}${isLast ? '└ ' : '├ '}`, `${below}${isLast ? '  ' : '│ '}`)
    })
  }
  for (const top of children.get(0) ?? []) add(top, '', '')
  return nodes
}

function stateOf({launch: {decision, status: end, started_at: started}}: Node): string {
  if (decision === 'pending') return 'waiting'
  if (decision !== 'launched') return 'not run'
  return end === '' ? (started === undefined ? 'pending' : 'running') : end.replaceAll('_', ' ')
}

function whyOf(launch: TraceLaunchJson, parent: TraceLaunchJson | undefined, words: Words): string {
  if (launch.decision === 'launched') return launch.reason
  const known = parent === undefined ? {} : {parent: relatedOf(parent)}
  return reasonTold(factsOf(launch), known, words).sentences.join(' ')
}

function relatedOf(launch: TraceLaunchJson) {
  const {group, job_name: jobName, status: end} = launch
  return {
    group,
    jobName,
    launch: factsOf(launch),
    executions: [],
    status: end === '' ? null : end,
  }
}
