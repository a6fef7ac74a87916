/**
 * Reload of settings while a node runs (SIGHUP): certificates, the token and the log level. All of them are
 * replaced, or none: a file that cannot be used leaves everything as it was. Other settings wait for the next
 * start.
 */
import type {NodeConfig} from '../config/node.ts'
import type {Events} from '../ports/events.ts'
import type {Log} from '../telemetry/log.ts'

/** Settings that were read again. */
export type Reloaded<Settings> =
  {readonly ok: true; readonly config: Settings} | {readonly ok: false; readonly problem: string}

export interface ReloadParts<Settings> {
  /** Configuration of the start. */
  readonly config: Settings
  readonly log: Log
  readonly events: Events
  /** Fields that `apply` puts into effect. */
  readonly fields: readonly (keyof Settings & string)[]
  readonly apply: (config: Settings) => void
}

/** The function that puts settings into effect. It emits `settings_reloaded` or `reload_failed`. */
export function createReload<Settings extends NodeConfig>({
  config,
  log,
  events,
  fields,
  apply,
}: ReloadParts<Settings>): (loaded: Reloaded<Settings>) => void {
  const reloadable: ReadonlySet<string> = new Set(['logLevel', ...fields])
  let current = config
  return (loaded) => {
    if (!loaded.ok) return events.emit('reload_failed', {message: loaded.problem})
    const next = loaded.config
    const changed = Object.keys(next).filter((name) => isChanged(current, next, name))
    const now = changed.filter((name) => reloadable.has(name))
    try {
      apply(next)
    } catch (error) {
      return events.emit('reload_failed', {message: String(error)})
    }
    current = {...current, ...pick(next, now)}
    if (now.length < changed.length)
      log.logger.warn('other settings have changed: they take effect at the next start')
    // Emitted before the level changes, so that the log says why it becomes silent.
    events.emit('settings_reloaded', {changed: now.toSorted().map(inWords).join(', ')})
    log.logger.level = next.logLevel
  }
}

function isChanged(before: object, after: object, name: string): boolean {
  const [one, other] = [before, after].map((each) => JSON.stringify(Reflect.get(each, name)))
  return one !== other
}

function pick<Settings extends object>(config: Settings, names: readonly string[]) {
  return Object.fromEntries(names.map((name) => [name, Reflect.get(config, name)]))
}

/** `logLevel` → `log level` */
function inWords(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)
}
