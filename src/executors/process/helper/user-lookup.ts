/**
 * Turns `user[:group]` into numbers the way the system itself does (local files, LDAP, …), by asking id(1)
 * and getent(1). Runs in the helper only, because asking starts a process.
 */
import {execFile} from 'node:child_process'

/**
 * Answers are kept this long: a changed account is seen within a minute, a busy job does not ask each time.
 */
const KEPT_MS = 60_000

/** A directory service that does not answer must not hold an execution for ever. */
const ANSWER_MS = 10_000

export interface Account {
  readonly uid: number
  readonly gid: number
  /** HOME, USER, LOGNAME and SHELL of the account. */
  readonly environment: Readonly<Record<string, string>>
}

export class UserLookup {
  readonly #kept = new Map<string, {until: number; account: Promise<Account>}>()

  /** `text` is `user[:group]`. Rejects with a sentence when the system does not know a name. */
  find(text: string): Promise<Account> {
    const kept = this.#kept.get(text)
    if (kept !== undefined && kept.until > Date.now()) return kept.account
    const account = lookUpAccount(text)
    this.#kept.set(text, {until: Date.now() + KEPT_MS, account})
    account.catch(() => this.#kept.delete(text))
    return account
  }
}

async function lookUpAccount(text: string): Promise<Account> {
  const [user, group] = text.split(':') as [string, string?]
  const entry = (await passwordEntry(user)).split(':')
  // macOS puts class, change and expire between the group and the name: counted from the end both are alike.
  const [name, , uid, gid] = entry
  const [home, shell] = entry.slice(-2)
  if (name === undefined || uid === undefined || gid === undefined || home === undefined) {
    throw new Error(`su: the system does not know the user ${JSON.stringify(user)}`)
  }
  const environment = {HOME: home, USER: name, LOGNAME: name, SHELL: shell ?? '/bin/sh'}
  return {
    uid: Number(uid),
    gid: group === undefined ? Number(gid) : await groupId(group),
    environment,
  }
}

async function passwordEntry(user: string): Promise<string> {
  const [file, args] =
    process.platform === 'darwin'
      ? (['id', ['-P', user]] as const)
      : (['getent', ['passwd', user]] as const)
  return ask(file, args, `su: the system does not know the user ${JSON.stringify(user)}`)
}

async function groupId(group: string): Promise<number> {
  const unknown = `su: the system does not know the group ${JSON.stringify(group)}`
  const [file, args] =
    process.platform === 'darwin'
      ? (['dscl', ['.', '-read', `/Groups/${group}`, 'PrimaryGroupID']] as const)
      : (['getent', ['group', group]] as const)
  const match = /:\s*(\d+)/.exec(await ask(file, args, unknown))
  if (match === null) throw new Error(unknown)
  return Number(match[1])
}

function ask(file: string, args: readonly string[], unknown: string): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(file, [...args], {timeout: ANSWER_MS}, (error, stdout) => {
      if (error === null) resolve(stdout.trim())
      else reject(new Error(unknown, {cause: error}))
    })
  })
}
