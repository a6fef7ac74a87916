/**
 * What every command that reads settings does with them: the strongest source of each, its text read by its
 * kind, and the sentences with which a start is refused. Which settings there are, and what they come to
 * together, stands with each command.
 */
import {resolve} from 'node:path'
import type {Option, SettingsCommand} from './options.ts'
import {
  readEnvironment,
  readFileSettings,
  readFlags,
  type Given,
  type Settings,
} from './config-sources.ts'
import {READERS, readToken, type Reading, type Tag, type ValueOf} from './values.ts'

/** What the machine says about itself, and its files. */
export interface Host {
  readonly name: string
  readonly cores: number
  readonly timezone: string
  /** The working directory, absolute. */
  readonly directory: string
  /** The text of a file; throws when it cannot be read. */
  readonly readFile: (path: string) => string
}

/** What was written in the three places. */
export interface Sources {
  /** What follows the command's name. */
  readonly argv: readonly string[]
  readonly env: Readonly<Record<string, string | undefined>>
  readonly host: Host
}

/** The sentence with which a start is refused; never leaves the reading of a configuration. */
export class Refused extends Error {}

/** `build`, or the sentence it was refused with. */
export function orProblem<Config>(
  build: () => Config,
): {readonly ok: true; readonly config: Config} | {readonly ok: false; readonly problem: string} {
  try {
    return {ok: true, config: build()}
  } catch (error) {
    if (error instanceof Refused) return {ok: false, problem: error.message}
    throw error
  }
}

const SLOTS_PER_CORE = 8
const SLOTS_MIN = 16
const NODE_NAME_LENGTH_MAX = 63

/** How many executions a node runs at once when nobody says it. */
export function slotsOf({cores}: Host): number {
  return Math.max(SLOTS_MIN, SLOTS_PER_CORE * cores)
}

/** The host's name with what a node's name may not hold left out. */
export function nameFrom({name}: Host): string {
  const kept = name.replaceAll(/[^A-Za-z0-9._-]+/g, '-').slice(0, NODE_NAME_LENGTH_MAX)
  return kept === '' ? 'belfry' : kept
}

type NameIn<Options extends readonly Option[]> = Options[number]['name']
type ValueIn<Options extends readonly Option[], Name extends string> = ValueOf<
  Extract<Options[number], {readonly name: Name}>['kind']
>

/** Values by name, read by the kind of each; what was not given and has no fallback is absent. */
export interface Values<Options extends readonly Option[]> {
  one<Name extends NameIn<Options>>(name: Name): ValueIn<Options, Name> | undefined
  many<Name extends NameIn<Options>>(name: Name): readonly ValueIn<Options, Name>[]
  given(name: string): Given | undefined
}

/** Reads all settings of a command. Throws `Refused`. */
export function valuesOf<Options extends readonly Option[]>(
  command: SettingsCommand & {readonly options: Options},
  sources: Sources,
): Values<Options> {
  const settings = gather(command, sources)
  const values = new Map<string, readonly unknown[]>()
  for (const option of command.options) {
    const given = settings.get(option.name) ?? fallbackOf(option)
    if (given !== null) values.set(option.name, given.texts.map(readerOf(option, given)))
  }
  const many = <Name extends NameIn<Options>>(name: Name) =>
    (values.get(name) ?? []) as readonly ValueIn<Options, Name>[]
  return {many, one: (name) => many(name)[0], given: (name) => settings.get(name)}
}

/** The strongest source of each setting. */
function gather(command: SettingsCommand, {argv, env, host}: Sources): Settings {
  const flags = valueOf(readFlags(argv, command))
  const environment = readEnvironment(env, command)
  const file = flags.get('config') ?? environment.get('config')
  const fromFile =
    file === undefined
      ? new Map<string, Given>()
      : valueOf(readFileSettings(file.texts[0]!, readNamed(file, host), command))
  return new Map([...fromFile, ...environment, ...flags])
}

/** The text of the file that a setting names. */
export function readNamed(given: Given, host: Host): string {
  const path = given.texts[0]!
  if (path === '') throw new Refused(`${given.place} is empty.`)
  try {
    return host.readFile(resolve(host.directory, path))
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : String(error)
    const meaning = FILE_PROBLEMS[why] ?? `cannot be read (${why})`
    throw new Refused(`${given.place} names ${path}, which ${meaning}.`, {cause: error})
  }
}

const FILE_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'may not be read by this user',
  EISDIR: 'is a directory',
}

function fallbackOf(option: Option): Given | null {
  return option.fallback === null ? null : {place: `--${option.name}`, texts: [option.fallback]}
}

function readerOf(option: Option, given: Given): (text: string) => unknown {
  const read: (text: string) => Reading<unknown> = READERS[option.kind]
  return (text) => {
    const reading = read(text)
    if (!reading.ok) throw new Refused(`${given.place} ${reading.problem}.`)
    return reading.value
  }
}

export function tagsOf(tags: readonly Tag[]): Readonly<Record<string, string>> {
  const keys = tags.map(([key]) => key)
  const twice = keys.find((key, index) => keys.indexOf(key) !== index)
  if (twice !== undefined)
    throw new Refused(`--tag gives "${twice}" twice; a node has one value for each tag.`)
  return Object.fromEntries(tags)
}

/** Of `--token` or `--token-file`; `null` = none. */
export function tokenOf(
  token: string | undefined,
  given: (name: 'token' | 'token-file') => Given | undefined,
  host: Host,
): string | null {
  const file = given('token-file')
  if (file === undefined) return token ?? null
  if (given('token') !== undefined)
    throw new Refused('Give either --token or --token-file, not both.')
  const reading = readToken(readNamed(file, host).replace(/\r?\n$/, ''))
  if (!reading.ok) throw new Refused(`The token in ${file.texts[0]} ${reading.problem}.`)
  return reading.value
}

/** `source` of a setting, or the end of the start. */
function valueOf(
  source: {readonly ok: true; readonly value: Settings} | {readonly ok: false; problem: string},
): Settings {
  if (!source.ok) throw new Refused(source.problem)
  return source.value
}

export function deepFreeze<Value extends object>(value: Value): Value {
  for (const inner of Object.values(value))
    if (typeof inner === 'object' && inner !== null) deepFreeze(inner as object)
  return Object.freeze(value)
}
