/**
 * Column "Never" of the table of folders in ARCHITECTURE.md, as far as the syntax tree shows it. Imports
 * between folders are checked in `floors.ts`; the compiler keeps `core` and `lib` from I/O and clocks.
 */
import {DEFINITION_TRAITS} from '../support/definition-traits.ts'
import {finding, isNode, walk, type Finding, type Node, type Source} from './source.ts'

/** Modules that files of a folder never import. */
const NEVER_IMPORTED: readonly (readonly [place: RegExp, module: RegExp, why: string])[] = [
  [/^src\/(lib|core|ports)\//, /^node:/, 'lib, core and ports import no module of Node'],
  [/^src\/wire\//, /^node:/, 'wire imports no module of Node: a browser can load it'],
  [/^src\/operations\//, /^(fastify|node:https?)$/, 'operations know no HTTP'],
  [
    /^src\/operations\//,
    /\/wire\/(?!(decode-job|definition|output)\.ts$)/,
    'operations take typed values and return records: routes decode and encode',
  ],
  [
    /^src\/(?!executors\/process\/|cli\/)/,
    /^node:child_process$/,
    'of a server and an agent, only executors/process starts processes',
  ],
]

/** Names of executors and processors: a decision about them is a trait. */
const ADAPTERS: ReadonlySet<unknown> = new Set(
  [...DEFINITION_TRAITS.executors, ...DEFINITION_TRAITS.processors].map(({name}) => name),
)

/** Statements that break a rule of their folder. */
export function checkNever(sources: readonly Source[]): readonly Finding[] {
  return sources.flatMap((source) => {
    const found: Finding[] = []
    const add = (line: number, why: string) => found.push(finding(source.path, line, why))
    for (const {specifier, line} of source.imports)
      for (const [place, module, why] of NEVER_IMPORTED)
        if (place.test(source.path) && module.test(specifier)) add(line, why)
    if (source.path.startsWith('src/core/'))
      walk(source.tree, (node) => {
        if (node['async'] === true || node.type === 'AwaitExpression')
          add(node.loc.start.line, 'core decides without promises')
        if (node.type === 'StringLiteral' && ADAPTERS.has(node['value']))
          add(node.loc.start.line, 'core names no executor or processor')
      })
    if (source.path.startsWith('src/ports/'))
      for (const statement of source.tree['body'] as readonly Node[])
        if (!isDeclared(statement))
          add(statement.loc.start.line, 'ports has types and error classes only')
    return found
  })
}

function isDeclared(statement: Node): boolean {
  const {declaration} = statement
  if (isNode(declaration)) return isDeclared(declaration)
  const {type, superClass} = statement
  if (type === 'ClassDeclaration') return isNode(superClass)
  return /^(ImportDeclaration|TSInterfaceDeclaration|TSTypeAliasDeclaration|ExportNamed)/.test(type)
}
