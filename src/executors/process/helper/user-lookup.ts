/**
 * Resolves `user[:group]` to numeric ids as the system does (local files, LDAP, …), with id(1) and getent(1).
 * Runs in the helper only, because a look-up starts a process.
 */
import {execFile} from 'node:child_process'

/** Cache time: a changed account applies within a minute, and a frequent job needs few look-ups. */
const CACHE_MS = 60_000

/** A directory service that is down must not block an execution. */
const LOOKUP_TIMEOUT_MS = 10_000

export interface Account {
  readonly uid: number
  readonly gid: number
  /** HOME, USER, LOGNAME and SHELL of the account. */
  readonly environment: Readonly<Record<string, string>>
}

export class UserLookup {
  readonly #cache = new Map<string, {until: number; account: Promise<Account>}>()

  /** `text` is `user[:group]`. Rejects when the user or group is unknown. */
  find(text: string): Promise<Account> {
    const cached = this.#cache.get(text)
    if (cached !== undefined && cached.until > Date.now()) return cached.account
    const account = lookUpAccount(text)
    this.#cache.set(text, {until: Date.now() + CACHE_MS, account})
    account.catch(() => this.#cache.delete(text))
    return account
  }
}

async function lookUpAccount(text: string): Promise<Account> {
  const [user, group] = text.split(':') as [string, string?]
  const entry = (await passwordEntry(user)).split(':')
  // macOS inserts class, change and expire after the group, so the last fields are counted from the end.
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
  return run(file, args, `su: the system does not know the user ${JSON.stringify(user)}`)
}

async function groupId(group: string): Promise<number> {
  const unknown = `su: the system does not know the group ${JSON.stringify(group)}`
  const [file, args] =
    process.platform === 'darwin'
      ? (['dscl', ['.', '-read', `/Groups/${group}`, 'PrimaryGroupID']] as const)
      : (['getent', ['group', group]] as const)
  const match = /:\s*(\d+)/.exec(await run(file, args, unknown))
  if (match === null) throw new Error(unknown)
  return Number(match[1])
}

function run(file: string, args: readonly string[], unknown: string): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(file, [...args], {timeout: LOOKUP_TIMEOUT_MS}, (error, stdout) => {
      if (error === null) resolve(stdout.trim())
      else reject(new Error(unknown, {cause: error}))
    })
  })
}
