/** Rules for one file: name, size, header comment, leftovers, casts, swallowed errors, skipped tests. */
import {basename} from 'node:path'
import {dotted, finding, isNode, walk, type Finding, type Node, type Source} from './source.ts'

export const LINE_LENGTH_MAX = 110
/** A file has one subject. The test lists files with more lines than this: they may have two. */
export const FILE_LINES_LISTED = 300
/** A file with more lines has more than one subject. */
export const FILE_LINES_MAX = 600
/** More than 60 lines need a second look; more than this need a split. */
export const FUNCTION_LINES_MAX = 80

const NAMELESS = /^(utils?|helpers|common|types|misc|manager|index|shared|stuff)$/
const NAMELESS_CLASS = /(Manager|Utils?)$/

/** Names without meaning. */
export function checkNames(sources: readonly Source[]): readonly Finding[] {
  return sources.flatMap((source) => {
    const found: Finding[] = []
    const name = basename(source.path).replace(/(\.test)?\.[jt]s$/, '')
    if (NAMELESS.test(name))
      found.push(finding(source.path, 1, `"${name}" says nothing; name what is in it`))
    if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(name))
      found.push(finding(source.path, 1, `"${name}" is not lower case with dashes`))
    walk(source.tree, (node) => {
      const id = node['id']
      if (node.type === 'ClassDeclaration' && isNode(id) && NAMELESS_CLASS.test(dotted(id)))
        found.push(finding(source.path, node.loc.start.line, `"${dotted(id)}" says nothing`))
    })
    return found
  })
}

/** Barrels: a file of re-exports hides which file needs which. */
export function checkBarrels(sources: readonly Source[]): readonly Finding[] {
  return sources.flatMap((source) => {
    const body = source.tree['body'] as readonly Node[]
    const handsOn = (node: Node) => node.type.startsWith('Export') && isNode(node['source'])
    const star = body.find((node) => node.type === 'ExportAllDeclaration')
    if (star !== undefined)
      return [finding(source.path, star.loc.start.line, 'exports *; import from where it stands')]
    return body.length > 0 && body.every(handsOn)
      ? [finding(source.path, 1, 'is a barrel; import from where things stand')]
      : []
  })
}

/** Files, functions and lines over the limits. */
export function checkSizes(
  sources: readonly Source[],
  limits: {readonly fileLines: number; readonly functionLines: number},
): readonly Finding[] {
  return sources.flatMap((source) => {
    const found: Finding[] = []
    const length = lengthOf(source)
    if (length > limits.fileLines)
      found.push(finding(source.path, 1, `has ${length} lines; split it by subject`))
    for (const [index, line] of source.lines.entries())
      if (line.length > LINE_LENGTH_MAX && !cannotBreak(line))
        found.push(finding(source.path, index + 1, `is ${line.length} characters long`))
    walk(source.tree, (node) => {
      if (!/Function|ClassMethod|ClassPrivateMethod|ObjectMethod/.test(node.type)) return
      const lines = node.loc.end.line - node.loc.start.line + 1
      if (lines > limits.functionLines)
        found.push(finding(source.path, node.loc.start.line, `a function of ${lines} lines`))
    })
    return found
  })
}

/** The longest files, each with its length: more than one subject would be a reason to split them. */
export function listLong(sources: readonly Source[], lines: number): readonly string[] {
  return sources
    .filter((source) => lengthOf(source) > lines)
    .toSorted((one, other) => lengthOf(other) - lengthOf(one))
    .map((source) => `${lengthOf(source)} ${source.path}`)
}

function lengthOf({lines}: Source): number {
  return lines.length - 1
}

/** A URL or a certificate has no blank to break at. */
function cannotBreak(line: string): boolean {
  return /\S{90}/.test(line)
}

/** Files without a header comment that says what they are. */
/** The first line, and lines for the shell that are no code of JavaScript, may come before. */
const OPENING = /^(#!.*\n)?(':' \/\/.*\n)*\n?(\/\*|\/\/ )/

export function checkOpenings(sources: readonly Source[]): readonly Finding[] {
  return sources
    .filter(({text}) => !OPENING.test(text))
    .map(({path}) => finding(path, 1, 'does not open with a comment that says what it is'))
}

const MARKERS: readonly (readonly [marker: RegExp, why: string])[] = [
  [/\b(TODO|FIXME|XXX|HACK)\b/, 'work left behind; do it, or open an issue'],
  [/@ts-(ignore|nocheck|expect-error)/, 'a type error silenced'],
  [/\b(eslint|oxlint)-disable(?!-next-line \S)/, 'a rule switched off for more than a line'],
]

/** Leftover markers of unfinished work. */
export function checkMarkers(sources: readonly Source[]): readonly Finding[] {
  return sources.flatMap((source) =>
    source.lines.flatMap((line, index) =>
      MARKERS.filter(([marker]) => marker.test(line)).map(([, why]) =>
        finding(source.path, index + 1, why),
      ),
    ),
  )
}

/** Double casts without a comment: they silence the compiler as `@ts-ignore` does. */
export function checkCasts(sources: readonly Source[]): readonly Finding[] {
  return sources.flatMap((source) =>
    source.lines.flatMap((line, index) => {
      if (!/\bas unknown as\b/.test(line)) return []
      const before = source.lines.slice(Math.max(0, index - 3), index + 1)
      const isExplained = before.some((other) => /(^|\s)(\/\/|\*)\s/.test(other))
      const what = 'a double cast; say the type once, or in a comment why it cannot be said'
      return isExplained ? [] : [finding(source.path, index + 1, what)]
    }),
  )
}

/** Swallowed errors, and errors recognised by their message text. */
export function checkErrors(sources: readonly Source[]): readonly Finding[] {
  return sources.flatMap((source) => {
    const found: Finding[] = []
    const add = (node: Node, what: string) =>
      found.push(finding(source.path, node.loc.start.line, what))
    walk(source.tree, (node) => {
      if (node.type === 'CatchClause' && isEmptyBlock(node['body']))
        add(node, 'an error caught and dropped')
      if (node.type !== 'CallExpression') return
      const callee = node['callee']
      if (!isNode(callee) || callee.type !== 'MemberExpression') return
      const method = dotted(callee['property'])
      const [argument] = node['arguments'] as readonly unknown[]
      if (method === 'catch' && isEmptyFunction(argument)) add(node, 'an error caught and dropped')
      const onMessage = dotted(callee['object']).endsWith('.message')
      if (onMessage && /^(includes|startsWith|endsWith|match)$/.test(method))
        add(node, 'an error told by its words; use its class or code')
      if (method === 'test' && dotted(argument).endsWith('.message'))
        add(node, 'an error told by its words; use its class or code')
    })
    return found
  })
}

/** True for an empty block without a comment that says why nothing needs doing. */
function isEmptyBlock(node: unknown): boolean {
  return (
    isNode(node) &&
    node.type === 'BlockStatement' &&
    (node['body'] as readonly unknown[]).length === 0 &&
    node['innerComments'] === undefined
  )
}

function isEmptyFunction(node: unknown): boolean {
  if (!isNode(node) || !/Function/.test(node.type)) return false
  const body = node['body']
  return isEmptyBlock(body) || dotted(body) === 'undefined'
}

const TEST_CALL = /^(test|it|describe|suite|t\.test|context\.test)$/

/** Skipped tests and tests marked `only` or `todo`. */
export function checkSwitchedOff(tests: readonly Source[]): readonly Finding[] {
  return tests.flatMap((source) => {
    const found: Finding[] = []
    walk(source.tree, (node) => {
      if (node.type !== 'CallExpression') return
      const line = node.loc.start.line
      const callee = dotted(node['callee'])
      const switched = /^(.*)\.(skip|only|todo)$/.exec(callee)
      if (switched !== null && /^(test|it|describe|suite|t|context)$/.test(switched[1]!))
        found.push(finding(source.path, line, `${callee}: every test runs`))
      if (!TEST_CALL.test(callee)) return
      for (const {key, value} of optionsOf(node))
        if (/^(skip|only|todo)$/.test(key) && value.endsWith('Literal') && value !== 'false')
          found.push(finding(source.path, line, `${key}: every test runs`))
    })
    return found
  })
}

/** Options of a test call. Computed values pass: a test may check what its platform lacks. */
function optionsOf(call: Node): readonly {readonly key: string; readonly value: string}[] {
  return (call['arguments'] as readonly Node[])
    .filter((argument) => argument.type === 'ObjectExpression')
    .flatMap((argument) => argument['properties'] as readonly Node[])
    .map((property) => {
      const value = property['value']
      const isFalse = isNode(value) && value['value'] === false
      return {
        key: dotted(property['key']),
        value: isFalse || !isNode(value) ? 'false' : value.type,
      }
    })
}
