/**
 * What every command that reads settings does with them: the strongest source of each, its text read by its
 * kind, and the sentences with which a start is refused. Which settings there are, and what they come to
 * together, stands with each command.
 */
import {resolve} from 'node:path'
import {Command, CommanderError, Option as Flag} from 'commander'
import {parse, YAMLError} from 'yaml'
import {
  CONFIG_OPTION,
  environmentName,
  type Option,
  SERVER_COMMAND,
  type SettingsCommand,
} from './options.ts'
import {READERS, type Reading, readToken, type Tag, type ValueOf} from './values.ts'

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
export class ParseError extends Error {}

/** `build`, or the sentence it was refused with. */
export function orProblem<Config>(
  build: () => Config,
): {readonly ok: true; readonly config: Config} | {readonly ok: false; readonly problem: string} {
  try {
    return {ok: true, config: build()}
  } catch (error) {
    if (error instanceof ParseError) return {ok: false, problem: error.message}
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
  if (path === '') throw new ParseError(`${given.place} is empty.`)
  try {
    return host.readFile(resolve(host.directory, path))
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : String(error)
    const meaning = FILE_PROBLEMS[why] ?? `cannot be read (${why})`
    throw new ParseError(`${given.place} names ${path}, which ${meaning}.`, {cause: error})
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
    if (!reading.ok) throw new ParseError(`${given.place} ${reading.problem}.`)
    return reading.value
  }
}

export function tagsOf(tags: readonly Tag[]): Readonly<Record<string, string>> {
  const keys = tags.map(([key]) => key)
  const twice = keys.find((key, index) => keys.indexOf(key) !== index)
  if (twice !== undefined)
    throw new ParseError(`--tag gives "${twice}" twice; a node has one value for each tag.`)
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
    throw new ParseError('Give either --token or --token-file, not both.')
  const reading = readToken(readNamed(file, host).replace(/\r?\n$/, ''))
  if (!reading.ok) throw new ParseError(`The token in ${file.texts[0]} ${reading.problem}.`)
  return reading.value
}

/** `source` of a setting, or the end of the start. */
function valueOf(
  source: {readonly ok: true; readonly value: Settings} | {readonly ok: false; problem: string},
): Settings {
  if (!source.ok) throw new ParseError(source.problem)
  return source.value
}

export function deepFreeze<Value extends object>(value: Value): Value {
  for (const inner of Object.values(value))
    if (typeof inner === 'object' && inner !== null) deepFreeze(inner as object)
  return Object.freeze(value)
}

/*
 * Where settings come from: the command line, the environment, and a YAML file, all as plain text by name. A
 * flag beats the environment, which beats the file; a repeatable setting is taken whole from the strongest
 * that has it. What the texts mean is not decided here.
 */

/** A setting as it was written. `place` begins the sentence that says what is wrong with it. */
export interface Given {
  readonly place: string
  readonly texts: readonly string[]
}

/** By name of the option. */
export type Settings = ReadonlyMap<string, Given>

export type Source<Value> =
  {readonly ok: true; readonly value: Value} | {readonly ok: false; readonly problem: string}

/** Longer than any file somebody wrote by hand. */
const FILE_LENGTH_MAX = 256 * 1024

/** The command as commander knows it, for its help and for reading its flags. */
export function settingsCommand({name, description, options}: SettingsCommand): Command {
  const command = new Command(name).description(description).allowExcessArguments(false)
  for (const option of [...options, CONFIG_OPTION]) command.addOption(flagOf(option))
  return command
}

export function serverCommand(): Command {
  return settingsCommand(SERVER_COMMAND)
}

function flagOf(option: Option): Flag {
  const value = option.placeholder === '' ? '' : ` <${option.placeholder}>`
  const preset = option.fallback === null ? '' : ` (default ${option.fallback})`
  const repeated = option.repeatable ? ' May be repeated.' : ''
  const flag = new Flag(`--${option.name}${value}`, `${option.summary}${repeated}${preset}`)
  return option.placeholder === ''
    ? flag
    : flag.argParser((text: string, before?: readonly string[]) => [...(before ?? []), text])
}

/** The flags of `argv` (after the command's name). A flag that may stand once counts as it stands last. */
export function readFlags(
  argv: readonly string[],
  shape: SettingsCommand = SERVER_COMMAND,
): Source<Settings> {
  const command = settingsCommand(shape)
    .helpOption(false)
    .exitOverride()
    .configureOutput({writeErr: () => {}})
  try {
    command.parse(argv, {from: 'user'})
  } catch (error) {
    if (error instanceof CommanderError) return {ok: false, problem: sentenceOf(error, shape)}
    throw error
  }
  const settings = new Map<string, Given>()
  for (const [index, flag] of command.options.entries()) {
    if (command.getOptionValueSource(flag.attributeName()) !== 'cli') continue
    const option: Option = [...shape.options, CONFIG_OPTION][index]!
    const value: unknown = command.getOptionValue(flag.attributeName())
    const all = Array.isArray(value) ? value.map(String) : ['true']
    const texts = option.repeatable ? all : all.slice(-1)
    settings.set(option.name, {place: `--${option.name}`, texts})
  }
  return {ok: true, value: settings}
}

/** Commander's own words, made one sentence. */
function sentenceOf(error: CommanderError, {name}: SettingsCommand): string {
  const words = error.message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ')
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}; see belfry ${name} --help.`
}

/**
 * The `BELFRY_…` variables of the environment; a repeatable one separates its values by commas. An empty
 * variable is not set, except a token: an empty one is somebody's mistake and never means "none".
 */
export function readEnvironment(
  env: Readonly<Record<string, string | undefined>>,
  {options}: SettingsCommand = SERVER_COMMAND,
): Settings {
  const settings = new Map<string, Given>()
  for (const option of [...options, CONFIG_OPTION]) {
    const place = environmentName(option.name)
    const text = env[place]
    if (text === undefined || (text === '' && !option.name.startsWith('token'))) continue
    const texts = option.repeatable ? text.split(',').map((part) => part.trim()) : [text]
    settings.set(option.name, {place, texts})
  }
  return settings
}

/**
 * Variables that begin like ours and are nobody's: most likely a slip. `others` are known for other purposes.
 */
export function unknownVariables(
  env: Readonly<Record<string, string | undefined>>,
  others: readonly string[],
  {options}: SettingsCommand = SERVER_COMMAND,
): readonly string[] {
  const known = new Set([
    ...[...options, CONFIG_OPTION].map((option) => environmentName(option.name)),
    ...others,
  ])
  return Object.keys(env)
    .filter((name) => name.startsWith('BELFRY_') && !known.has(name))
    .toSorted()
}

/** The settings in the YAML text of `file`. Scalars are taken as they are written. */
export function readFileSettings(
  file: string,
  text: string,
  {options}: SettingsCommand = SERVER_COMMAND,
): Source<Settings> {
  const refuse = (problem: string): Source<Settings> => ({ok: false, problem})
  if (text.length > FILE_LENGTH_MAX)
    return refuse(`${file} is too long to be a configuration file.`)
  let content: unknown
  try {
    // The failsafe schema makes no numbers or booleans, so that nothing is rounded or renamed.
    content = parse(text, {schema: 'failsafe'})
  } catch (error) {
    if (!(error instanceof YAMLError)) throw error
    return refuse(`${file} is not YAML: ${error.message.split('\n')[0]!.replace(/:$/, '')}.`)
  }
  if (content === null || content === '') return {ok: true, value: new Map()}
  if (typeof content !== 'object' || Array.isArray(content))
    return refuse(`${file} must hold settings as "key: value" lines.`)
  const settings = new Map<string, Given>()
  for (const [key, value] of Object.entries(content)) {
    const option = options.find((known) => known.name === key)
    if (option === undefined) return refuse(unknownKey(file, key, options))
    const texts = textsOf(value, option)
    if (texts === null) return refuse(`${key} in ${file} wants ${shapeOf(option)}.`)
    settings.set(key, {place: `${key} in ${file}`, texts})
  }
  return {ok: true, value: settings}
}

function unknownKey(file: string, key: string, options: readonly Option[]): string {
  if (key === CONFIG_OPTION.name) return `${file} may not name a configuration file itself.`
  const near = nearest(
    key,
    options.map((option) => option.name),
  )
  return `${file} has an unknown setting "${key}"; the nearest one is "${near}".`
}

function shapeOf(option: Option): string {
  if (option.kind === 'tag') return 'a list of key=value, or a map'
  return option.repeatable ? 'a list of texts' : 'one value'
}

/** `null` when the value has another shape than the setting. */
function textsOf(value: unknown, option: Option): readonly string[] | null {
  if (typeof value === 'string') return [value]
  if (!option.repeatable || typeof value !== 'object' || value === null) return null
  if (Array.isArray(value)) return value.every((item) => typeof item === 'string') ? value : null
  const pairs: readonly (readonly [string, unknown])[] = Object.entries(value)
  if (option.kind !== 'tag' || !pairs.every(([, text]) => typeof text === 'string')) return null
  return pairs.map(([key, text]) => `${key}=${String(text)}`)
}

/** The word with the fewest letters to change. */
export function nearest(text: string, words: readonly string[]): string {
  return words.toSorted((one, other) => distance(text, one) - distance(text, other))[0] ?? ''
}

/** How many letters must be put in, left out or exchanged to make one of the other. */
function distance(one: string, other: string): number {
  let row = Array.from({length: other.length + 1}, (_, index) => index)
  for (const [i, letter] of [...one].entries()) {
    const next = [i + 1]
    for (let j = 0; j < other.length; j++) {
      const change = row[j]! + (letter === other[j] ? 0 : 1)
      next.push(Math.min(change, row[j + 1]! + 1, next[j]! + 1))
    }
    row = next
  }
  return row[other.length]!
}
