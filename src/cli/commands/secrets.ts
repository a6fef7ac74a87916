/** `belfry secret …`: values for jobs, set and never shown. */
import type {Command} from 'commander'
import type {SecretJson} from '../../wire/secret.ts'
import {path} from '../client.ts'
import {type Column, relative} from '../format.ts'
import {readSecret} from '../input.ts'
import {oneLine} from '../sanitize.ts'
import {print, printTable, type Session, type WithSession} from '../session.ts'
import {toned} from '../terminal.ts'

export function addSecretCommands(program: Command, use: WithSession): void {
  const secret = program.command('secret').description('Set, list and delete secrets of jobs')
  secret
    .command('set <name>')
    .description('Set the value of a secret, from standard input or a file')
    .option('-f, --file <file>', 'File with the value; - means standard input', '-')
    .action(use(set))
  secret.command('list').description('List the secrets, without values').action(use(list))
  secret.command('delete <name>').description('Delete a secret').action(use(remove))
}

/** Never from an argument: other users of the machine see the arguments of a process. */
async function set(session: Session, name: string, {file}: {file: string}): Promise<void> {
  const body = {value: await readSecret(session.terminal, file)}
  const {value} = await session.client.call<SecretJson>('PUT', path('secrets', name), {body})
  print(session, value, `set ${oneLine(value.name)}\n`)
}

async function list(session: Session): Promise<void> {
  const {value} = await session.client.call<SecretJson[]>('GET', '/secrets')
  const {terminal} = session
  const now = session.clock.now()
  const columns: readonly Column<SecretJson>[] = [
    {title: 'NAME', text: ({name}) => name, shown: (text) => toned(terminal, 'strong', text)},
    {title: 'SET', text: ({set_at}) => relative(set_at, now)},
    {title: 'BY', text: ({set_by}) => set_by},
  ]
  printTable(session, columns, value, 'No secrets.')
}

async function remove(session: Session, name: string): Promise<void> {
  const {value} = await session.client.call<SecretJson>('DELETE', path('secrets', name))
  print(session, value, `deleted ${oneLine(value.name)}\n`)
}
