/**
 * Source files as the tidy checks see them: path, text, syntax tree, imports and comments. Files are parsed,
 * not searched, so that comments and strings never match a rule about code.
 */
import {readdir, readFile} from 'node:fs/promises'
import {dirname, join, posix} from 'node:path'
import {parse} from '@babel/parser'

/** Node of the syntax tree, reduced to what the checks use. */
export interface Node {
  readonly type: string
  readonly start: number
  readonly end: number
  readonly loc: {readonly start: {readonly line: number}; readonly end: {readonly line: number}}
  readonly [key: string]: unknown
}

export interface Import {
  /** Text between the quotes. */
  readonly specifier: string
  /** Path from the root of the repository; `null` for a package or a module of Node. */
  readonly target: string | null
  readonly line: number
}

export interface Source {
  /** Path from the root of the repository, with `/`. */
  readonly path: string
  readonly text: string
  readonly lines: readonly string[]
  readonly tree: Node
  readonly imports: readonly Import[]
  readonly comments: readonly {readonly line: number; readonly text: string}[]
}

/** Violation of a rule: `path:line message`. */
export type Finding = string

export function finding(path: string, line: number, what: string): Finding {
  return `${path}:${line} ${what}`
}

/** TypeScript or JavaScript; parsed when a check first needs more than the text. Throws on a syntax error. */
export function parseSource(path: string, text: string): Source {
  let parsed: Parsed | null = null
  const once = () => (parsed ??= parseText(path, text))
  return {
    path,
    text,
    lines: text.split('\n'),
    get tree() {
      return once().tree
    },
    get imports() {
      return once().imports
    },
    get comments() {
      return once().comments
    },
  }
}

type Parsed = Pick<Source, 'tree' | 'imports' | 'comments'>

function parseText(path: string, text: string): Parsed {
  const parsed = parse(text, {
    sourceType: 'module',
    plugins: ['typescript'],
    createImportExpressions: true,
    allowReturnOutsideFunction: true,
  })
  const tree = parsed.program as unknown as Node
  const comments = (parsed.comments ?? []).map(({value, loc}) => ({
    line: loc?.start.line ?? 1,
    text: value,
  }))
  return {tree, imports: importsOf(path, tree), comments}
}

/** Every `.ts` and `.js` file below the folders, sorted by path. */
export async function readSources(
  root: string,
  folders: readonly string[],
): Promise<readonly Source[]> {
  const paths: string[] = []
  for (const folder of folders) {
    const entries = await readdir(join(root, folder), {recursive: true, withFileTypes: true}).catch(
      (error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return []
        throw error
      },
    )
    for (const entry of entries)
      if (entry.isFile() && /\.[jt]s$/.test(entry.name))
        paths.push(join(entry.parentPath, entry.name).slice(root.length + 1))
  }
  return Promise.all(
    paths
      .toSorted()
      .map(async (path) => parseSource(path, await readFile(join(root, path), 'utf8'))),
  )
}

/** Calls `visit` for `node` and every node below it, parents first. `false` skips the children. */
export function walk(node: Node, visit: (node: Node, parents: readonly Node[]) => unknown): void {
  const parents: Node[] = []
  const enter = (here: Node) => {
    if (visit(here, parents) === false) return
    parents.push(here)
    for (const key of Object.keys(here)) {
      if (key === 'loc') continue
      const value = here[key]
      if (Array.isArray(value)) for (const child of value) enterNode(child)
      else enterNode(value)
    }
    parents.pop()
  }
  const enterNode = (value: unknown) => {
    if (isNode(value)) enter(value)
  }
  enter(node)
}

export function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && 'loc' in value
}

/** `a.b.c` for a chain of names, `''` for anything else. */
export function dotted(node: unknown): string {
  if (!isNode(node)) return ''
  if (node.type === 'Identifier') return String(node['name'])
  if (node.type !== 'MemberExpression' || node['computed'] === true) return ''
  const object = dotted(node['object'])
  return object === '' ? '' : `${object}.${dotted(node['property'])}`
}

function importsOf(path: string, tree: Node): readonly Import[] {
  const found: Import[] = []
  walk(tree, (node) => {
    const source = node['source']
    if (!isNode(source) || source.type !== 'StringLiteral') return
    const specifier = String(source['value'])
    found.push({specifier, target: resolve(path, specifier), line: node.loc.start.line})
  })
  return found
}

function resolve(path: string, specifier: string): string | null {
  return specifier.startsWith('.') ? posix.join(dirname(path), specifier) : null
}
