/**
 * System requirements: Debian's PostgreSQL with all its programs, and an account other than root. Names
 * missing packages; installs nothing.
 */
import {execFile} from 'node:child_process'
import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import {promisify} from 'node:util'
import {accountOf, type Account} from '../../test/support/postgres.ts'

const DEBIAN = '/usr/lib/postgresql'
const NEEDED = ['initdb', 'pg_basebackup', 'pg_ctl', 'pg_rewind', 'postgres']
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024

/** A missing program, with the package to install. */
export class Missing extends Error {
  override readonly name = 'Missing'
}

export class Programs {
  /** Folder of the programs of the newest installed PostgreSQL. */
  readonly folder: string
  /** Account of the programs; `null` = the current one. */
  readonly account: Account | null

  /** Throws `Missing`. */
  constructor() {
    const folder = releases().find((bin) => NEEDED.every((name) => existsSync(join(bin, name))))
    if (folder === undefined)
      throw new Missing(
        `${NEEDED.join(', ')} were not found under ${DEBIAN}/<release>/bin: apt-get install postgresql`,
      )
    this.folder = folder
    this.account = accountOf()
  }

  /** Runs a program in `home`; returns its output. Throws with its messages if it fails. */
  async run(name: string, flags: readonly string[], home: string): Promise<string> {
    const {stdout} = await promisify(execFile)(join(this.folder, name), flags, {
      cwd: home,
      maxBuffer: OUTPUT_BYTES_MAX,
      ...this.account,
    })
    return stdout
  }
}

/** Newest first. */
function releases(): string[] {
  if (!existsSync(DEBIAN)) return []
  return readdirSync(DEBIAN)
    .toSorted((a, b) => Number(b) - Number(a))
    .map((release) => join(DEBIAN, release, 'bin'))
}

/** Checks that programs of other packages are in PATH. Throws `Missing`. */
export function needOnPath(packages: Readonly<Record<string, string>>): void {
  const folders = ['/usr/bin', '/usr/local/bin', ...(process.env['PATH'] ?? '').split(':')]
  const missing = Object.entries(packages).filter(
    ([program]) => !folders.some((folder) => existsSync(join(folder, program))),
  )
  if (missing.length > 0) {
    const names = missing.map(([program]) => program).join(', ')
    const install = missing.map(([, name]) => name).join(' ')
    throw new Missing(`${names} were not found: apt-get install ${install}`)
  }
}
