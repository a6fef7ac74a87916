/** `belfry members` and `belfry node …`: the nodes, and whether they take work. */
import type {Command} from 'commander'
import {SYSTEM_TAGS} from '../../core/node.ts'
import {pause} from '../../lib/pause.ts'
import type {MemberJson} from '../../wire/member.ts'
import {path} from '../client.ts'
import {CommandFailed} from '../errors.ts'
import {type Column, table, timeAndAge} from '../format.ts'
import {poll, RETRY_MS} from '../poll.ts'
import {print, printJson, type Session, type WithSession} from '../session.ts'
import {ProgressLine, status, toned} from '../terminal.ts'
import {durationText} from '../values.ts'

export function addNodeCommands(program: Command, use: WithSession): void {
  program
    .command('members')
    .description('List the members of the cluster, their work and their tags')
    .action(use(members))
    .command('remove <member>')
    .description('Remove a member that has left or failed, by its name or id')
    .action(use(remove))
  const node = program
    .command('node')
    .description('Take a server or agent out for maintenance, and back')
  node
    .command('cordon <node>')
    .description('Give it no new work; what runs on it continues. By its name or id')
    .action(use((session, name: string) => change(session, name, 'cordon')))
  node
    .command('uncordon <node>')
    .description('Give it work again; ends a cordon or a drain')
    .action(use((session, name: string) => change(session, name, 'uncordon')))
  node
    .command('drain <node>')
    .description('Give it no new work, and stop what still runs on it at a deadline')
    .option('--deadline <duration>', 'Time for what runs, such as 30m; 10m unless set', (text) =>
      durationText('--deadline', text),
    )
    .option('--wait', 'Wait until nothing runs on it')
    .action(use(drain))
}

/** The server counts no further. */
const WAITING_MAX = 1_000

async function members(session: Session): Promise<void> {
  const {value} = await session.client.call<Listed[]>('GET', '/members')
  printMembers(session, value)
}

/** Prints addresses only if the lines then fit the terminal. */
function printMembers(session: Session, value: readonly Listed[]): void {
  if (session.json) return printJson(session, value)
  const columns = memberColumns(session)
  const wide = [...columns.slice(0, -1), ADDRESS, ...columns.slice(-1)]
  const width = session.terminal.columns ?? Infinity
  const lines = table({colours: false}, wide, value, '').split('\n')
  const fits = lines.every(({length}) => length <= width)
  session.terminal.out(table(session.terminal, fits ? wide : columns, value, 'No members.'))
}

const ADDRESS: Column<Listed> = {
  title: 'ADDRESS',
  text: ({Tags, Addr, Port}) => Tags['rpc_addr'] ?? `${Addr}:${Port}`,
}

type Added = 'leader' | 'scheduling' | 'slots' | 'running' | 'waiting'
/** A server of an earlier release does not send the added fields. */
type Listed = Omit<MemberJson, Added> & Partial<Pick<MemberJson, Added>>

function memberColumns({terminal}: Session): readonly Column<Listed>[] {
  return [
    {title: 'NAME', text: ({Name}) => Name, shown: (text) => toned(terminal, 'strong', text)},
    {
      title: 'STATUS',
      text: statusWithCordon,
      shown: (text) => status(terminal, text.replace(/^alive, |, .*/, ''), text),
      isName: true,
    },
    {title: 'ROLE', text: roleOf},
    {title: 'RUNNING', text: runningOf},
    {
      title: 'WAITING',
      text: ({waiting = '-'}) => (waiting === WAITING_MAX ? `${WAITING_MAX}+` : String(waiting)),
    },
    {title: 'VERSION', text: ({Tags}) => Tags['version'] ?? ''},
    {title: 'TAGS', text: ({Tags}) => ownTags(Tags)},
  ]
}

/** Status with the cordon: `alive`, `failed, drained`. */
function statusWithCordon({statusText, scheduling = 'active'}: Listed): string {
  return scheduling === 'active' ? statusText : `${statusText}, ${scheduling}`
}

function roleOf({leader = false, Tags}: Listed): string {
  if (leader) return 'leader'
  return Tags['server'] === 'true' ? 'server' : 'agent'
}

/** Running executions of how many slots; `-` for a server that runs no jobs. */
function runningOf({running, slots}: Listed): string {
  return slots === undefined || (slots === 0 && running === 0) ? '-' : `${running}/${slots}`
}

const BUILT_IN: ReadonlySet<string> = new Set(SYSTEM_TAGS)

function ownTags(tags: Readonly<Record<string, string>>): string {
  const own = Object.entries(tags).filter(([key]) => !BUILT_IN.has(key))
  return own.map(([key, text]) => `${key}=${text}`).join(' ')
}

async function remove(session: Session, member: string): Promise<void> {
  const {value} = await session.client.call<MemberJson>('DELETE', path('members', member))
  print(session, value, `removed ${value.Name} (status was ${value.statusText})\n`)
}

type Verb = 'cordon' | 'uncordon' | 'drain'

async function change(session: Session, node: string, verb: Verb): Promise<void> {
  const {value} = await session.client.call<MemberJson>('POST', path('members', node, verb))
  print(session, value, sentenceOf(session, value))
}

async function drain(
  session: Session,
  node: string,
  {deadline, wait}: {deadline?: string; wait?: true},
): Promise<void> {
  const {value} = await session.client.call<MemberJson>('POST', path('members', node, 'drain'), {
    query: {deadline},
  })
  // `--wait` reports failure itself, after the wait.
  const isSaid = wait === undefined || value.statusText !== 'failed' || value.running > 0
  if (!session.json && isSaid) session.terminal.out(sentenceOf(session, value))
  const last = wait === undefined ? value : await drained(session, value)
  if (session.json) printJson(session, last)
  else if (last !== value) session.terminal.out(sentenceOf(session, last))
}

/** Sentence about the node, and about what becomes of its work. */
function sentenceOf(session: Session, member: MemberJson): string {
  const {Name: name, statusText, scheduling, running, drainUntil} = member
  if (statusText === 'failed' || statusText === 'left') return awayText(member)
  const count = running === 1 ? '1 execution' : `${running} executions`
  const until = timeAndAge(drainUntil, session.zone, session.clock.now())
  const them = running === 1 ? 'it' : 'them'
  const runs = running === 0 ? 'nothing runs' : `${count} still ${running === 1 ? 'runs' : 'run'}`
  switch (scheduling) {
    case 'active':
      return `${name} is active: it takes work\n`
    case 'cordoned':
      return `${name} is cordoned: it takes no new work, and ${runs} on it\n`
    case 'draining':
      return `${name} is draining: ${count} may run until ${until}, then Belfry stops ${them}\n`
    case 'drained':
      return `${name} is drained: nothing runs on it, and it takes no new work\n${waitingText(member)}`
  }
}

/** Sentence about a node that has left or failed. Processes of a failed one are out of reach. */
function awayText({Name: name, statusText, scheduling, running}: MemberJson): string {
  const takes = scheduling === 'active' ? 'takes work' : 'takes no new work'
  const back = `It is ${scheduling}: it ${takes} when it is back\n`
  if (statusText === 'left') return `${name} has left: it runs nothing\n${back}`
  if (running === 0) return `${failedText(name)}\n${back}`
  const count = running === 1 ? '1 execution' : `${running} executions`
  return `${name} has failed: ${count} may still run on it, and it does not answer\n${back}`
}

function failedText(name: string): string {
  return `${name} has failed: what it ran was declared lost, and may still run`
}

/** Work that no other node has taken yet; `''` = none. */
function waitingText({waiting}: MemberJson): string {
  if (waiting === 0) return ''
  const count = waiting === 1 ? '1 pending execution waits' : `${waiting} pending executions wait`
  return `${count} for another matching node, or for the uncordon\n`
}

/**
 * Waits until nothing runs on the member. Throws `CommandFailed` if its drain is ended, and if it has failed:
 * the store does not know what it still runs.
 */
async function drained(session: Session, member: MemberJson): Promise<MemberJson> {
  const line = new ProgressLine(session.terminal, session.clock)
  const wait = () => pause(session.clock, RETRY_MS)
  let last = member
  try {
    while (last.scheduling === 'draining') {
      const done = Math.max(0, member.running - last.running)
      const isAway = last.statusText === 'failed'
      line.show({
        what: `executions have ended${isAway ? `; ${last.Name} does not answer` : ''}`,
        done,
        total: Math.max(member.running, last.running),
      })
      await wait()
      last = await poll(() => memberOf(session, member), wait)
    }
  } finally {
    line.end()
  }
  if (last.scheduling !== 'drained')
    throw new CommandFailed(`The drain of ${member.Name} was ended: it is ${last.scheduling}.`)
  if (last.statusText === 'failed') throw new CommandFailed(`${failedText(last.Name)}.`)
  return last
}

async function memberOf(session: Session, {id, Name: name}: MemberJson): Promise<MemberJson> {
  const {value} = await session.client.call<MemberJson[]>('GET', '/members')
  const found = value.find((each) => each.id === id)
  if (found === undefined) throw new CommandFailed(`${name} is no member any more.`)
  return found
}
