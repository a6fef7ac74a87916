/**
 * Reads the settings of a command from flags, environment variables and a YAML file. A flag overrides the
 * environment, which overrides the file. A repeatable setting is taken as a whole from the strongest source
 * that has it. Each text is then read by its kind. Relations between settings are checked by each command.
 */
import {createRequire} from 'node:module'
import {resolve} from 'node:path'
import {CommanderError} from 'commander'
import {codeOf} from '../lib/error.ts'
import {meantBy, nearest} from '../lib/nearest.ts'
import {SERVER_COMMAND, type SettingsCommand, settingsCommand} from './commands.ts'
import type {Option} from './option.ts'
import {CONFIG_OPTION, environmentName} from './options.ts'
import {READERS, type Reading, type ValueOf} from './values.ts'

/** Facts about the machine, and its files. */
export interface Host {
  readonly name: string
  readonly cores: number
  readonly timezone: string
  /** The working directory, absolute. */
  readonly directory: string
  /** Returns the text of a file. Throws when it cannot be read. */
  readonly readFile: (path: string) => string
}

type Environment = Readonly<Record<string, string | undefined>>

export interface Sources {
  /** The arguments after the command's name. */
  readonly argv: readonly string[]
  readonly env: Environment
  readonly host: Host
}

/** A setting as written. `place` is the subject of an error message about it. */
export interface RawSetting {
  readonly place: string
  readonly texts: readonly string[]
}

/** Keys: names of options. */
type RawSettings = ReadonlyMap<string, RawSetting>

/** The message for the operator. Only thrown and caught within the configuration. */
export class ParseError extends Error {}

/** Calls `build`; a `ParseError` becomes `problem`. */
export function resultOf<Config>(
  build: () => Config,
): {readonly ok: true; readonly config: Config} | {readonly ok: false; readonly problem: string} {
  try {
    return {ok: true, config: build()}
  } catch (error) {
    if (error instanceof ParseError) return {ok: false, problem: error.message}
    throw error
  }
}

type NameIn<Options extends readonly Option[]> = Options[number]['name']
type ValueIn<Options extends readonly Option[], Name extends string> = ValueOf<
  Extract<Options[number], {readonly name: Name}>['kind']
>

/** Values by name. A setting that is not set and has no default is absent. */
export interface Values<Options extends readonly Option[]> {
  one<Name extends NameIn<Options>>(name: Name): ValueIn<Options, Name> | undefined
  many<Name extends NameIn<Options>>(name: Name): readonly ValueIn<Options, Name>[]
  /** Setting as written; no defaults. */
  raw(name: string): RawSetting | undefined
}

/** Throws `ParseError`. */
export function readSettings<Options extends readonly Option[]>(
  command: SettingsCommand & {readonly options: Options},
  sources: Sources,
): Values<Options> {
  const settings = gather(command, sources)
  const values = new Map<string, readonly unknown[]>()
  for (const option of command.options) {
    const setting = settings.get(option.name) ?? defaultOf(option)
    if (setting !== null) values.set(option.name, setting.texts.map(readerOf(option, setting)))
  }
  const many = <Name extends NameIn<Options>>(name: Name) =>
    (values.get(name) ?? []) as readonly ValueIn<Options, Name>[]
  return {many, one: (name) => many(name)[0], raw: (name) => settings.get(name)}
}

/** The strongest source of each setting. */
function gather(command: SettingsCommand, {argv, env, host}: Sources): RawSettings {
  const flags = readFlags(argv, command)
  const environment = readEnvironment(env, command)
  const file = flags.get('config') ?? environment.get('config')
  const fromFile =
    file === undefined ? [] : readFileSettings(file.texts[0]!, readSettingFile(file, host), command)
  return new Map([...fromFile, ...environment, ...flags])
}

function defaultOf(option: Option): RawSetting | null {
  return option.fallback === null ? null : {place: `--${option.name}`, texts: [option.fallback]}
}

function readerOf(option: Option, setting: RawSetting): (text: string) => unknown {
  const read: (text: string) => Reading<unknown> = READERS[option.kind]
  return (text) => {
    const reading = read(text)
    if (!reading.ok) throw new ParseError(`${setting.place} ${reading.problem}.`)
    return reading.value
  }
}

const FILE_PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'does not exist',
  EACCES: 'is not readable by this user',
  EISDIR: 'is a directory',
}

/** The text of the file that a setting names. Throws `ParseError`. */
export function readSettingFile(setting: RawSetting, host: Host): string {
  const path = setting.texts[0]!
  if (path === '') throw new ParseError(`${setting.place} must not be empty.`)
  try {
    return host.readFile(resolve(host.directory, path))
  } catch (error) {
    const code = codeOf(error)
    const why = FILE_PROBLEMS[code] ?? `failed with ${code}`
    throw new ParseError(`${setting.place} cannot be read: ${path} ${why}.`, {cause: error})
  }
}

export function deepFreeze<Value extends object>(value: Value): Value {
  for (const inner of Object.values(value))
    if (typeof inner === 'object' && inner !== null) deepFreeze(inner as object)
  return Object.freeze(value)
}

/** If a flag that is not repeatable is repeated, its last value counts. */
function readFlags(argv: readonly string[], shape: SettingsCommand): RawSettings {
  const command = settingsCommand(shape)
    .helpOption(false)
    .exitOverride()
    .configureOutput({writeErr: () => {}})
  try {
    command.parse(argv, {from: 'user'})
  } catch (error) {
    if (error instanceof CommanderError) throw new ParseError(messageOf(error, shape))
    throw error
  }
  const settings = new Map<string, RawSetting>()
  for (const [index, flag] of command.options.entries()) {
    if (command.getOptionValueSource(flag.attributeName()) !== 'cli') continue
    const option: Option = [...shape.options, CONFIG_OPTION][index]!
    const value: unknown = command.getOptionValue(flag.attributeName())
    const all = Array.isArray(value) ? value.map(String) : ['true']
    const texts = option.repeatable ? all : all.slice(-1)
    settings.set(option.name, {place: `--${option.name}`, texts})
  }
  return settings
}

/** Flags of other servers, and the flag here that does the same. */
const FOREIGN_FLAGS: Readonly<Record<string, string>> = {
  port: 'http',
  listen: 'http',
  bind: 'http',
  addr: 'http',
  address: 'http',
  host: 'http',
  db: 'store',
  database: 'store',
  dsn: 'store',
  data_dir: 'data',
}

/** A hint for a flag that commander finds no similar one for; `''` = none. */
function foreignFlag(said: string, options: readonly Option[]): string {
  const word = /^Unknown option '--([^'=]+)/i.exec(said)?.[1] ?? ''
  const name = FOREIGN_FLAGS[meantBy(word, Object.keys(FOREIGN_FLAGS))]
  const option = options.find((each) => each.name === name)
  if (option === undefined) return ''
  return ` (Did you mean --${option.name} ${option.placeholder}?)`
}

/** Commander's message as one sentence. */
function messageOf(error: CommanderError, {name, options}: SettingsCommand): string {
  const said = error.message.replace(/^error: |\.$/g, '').replaceAll('\n', ' ')
  const words = said.includes('Did you mean') ? said : said + foreignFlag(said, options)
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}. See belfry ${name} --help.`
}

/**
 * The `BELFRY_…` variables. A repeatable setting separates its values by commas. An empty variable counts as
 * not set, except a token: an empty token is a mistake and never means "no token".
 */
function readEnvironment(env: Environment, {options}: SettingsCommand): RawSettings {
  const settings = new Map<string, RawSetting>()
  for (const option of [...options, CONFIG_OPTION]) {
    const place = environmentName(option.name)
    const text = env[place]
    if (text === undefined || (text === '' && !option.name.startsWith('token'))) continue
    const texts = option.repeatable ? text.split(',').map((part) => part.trim()) : [text]
    settings.set(option.name, {place, texts})
  }
  return settings
}

/** Sentences about variables with our prefix that are not settings. `others` have other purposes. */
export function unknownVariables(
  env: Environment,
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
    .map((name) => `${name} is set, but Belfry has no such setting.${suggestion(name, known)}`)
}

function suggestion(name: string, known: ReadonlySet<string>): string {
  const words = [...known].map((each) => each.slice('BELFRY_'.length).toLowerCase())
  const meant = meantBy(name.slice('BELFRY_'.length), words)
  return meant === '' ? '' : ` Did you mean BELFRY_${meant.toUpperCase()}?`
}

/** Exceeds any handwritten file. */
const FILE_LENGTH_MAX = 256 * 1024

/** The settings in the YAML text of `file`. Scalars are taken as written. */
function readFileSettings(file: string, text: string, {options}: SettingsCommand): RawSettings {
  const content = parseYaml(file, text)
  const settings = new Map<string, RawSetting>()
  if (content === null || content === '') return settings
  if (typeof content !== 'object' || Array.isArray(content))
    throw new ParseError(`${file} must contain settings as "key: value" lines.`)
  for (const [key, value] of Object.entries(content)) {
    const option = options.find((known) => known.name === key)
    if (option === undefined) throw new ParseError(unknownKey(file, key, options))
    const texts = textsOf(value, option)
    if (texts === null) throw new ParseError(`${key} in ${file} must be ${shapeOf(option)}.`)
    settings.set(key, {place: `${key} in ${file}`, texts})
  }
  return settings
}

function parseYaml(file: string, text: string): unknown {
  if (text.length > FILE_LENGTH_MAX)
    throw new ParseError(`${file} must have at most ${FILE_LENGTH_MAX} characters.`)
  // Loaded only for a file: most starts have none.
  const {parse, YAMLError} = createRequire(import.meta.url)('yaml') as typeof import('yaml')
  try {
    // The failsafe schema creates no numbers or booleans, so no value is rounded or changed.
    return parse(text, {schema: 'failsafe'})
  } catch (error) {
    if (!(error instanceof YAMLError)) throw error
    const why = error.message.split('\n')[0]!.replace(/:$/, '')
    throw new ParseError(`${file} must be YAML: ${why}.`, {cause: error})
  }
}

function unknownKey(file: string, key: string, options: readonly Option[]): string {
  if (key === CONFIG_OPTION.name)
    return `${file} cannot set "config": it is the configuration file.`
  const names = options.map((option) => option.name)
  return `${file} has an unknown setting "${key}". The nearest name is "${nearest(key, names)}".`
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
