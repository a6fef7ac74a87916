/**
 * Banned calls: clocks, timers, random numbers and the process belong to a few files. Each message names
 * the replacement.
 */
import {dotted, finding, isNode, walk, type Finding, type Node, type Source} from './source.ts'

const CLOCK = 'take a Clock (src/ports/runtime.ts) as an argument'
const RANDOM = 'take a Random (src/ports/runtime.ts) as an argument'
const ENTRY = 'read it in src/main.ts and take it as an argument'

/** Banned names, and their replacement. */
const BANNED: Readonly<Record<string, string>> = {
  'Date.now': `${CLOCK}: now()`,
  'performance.now': `${CLOCK}: monotonicMs()`,
  'process.hrtime': `${CLOCK}: monotonicMs()`,
  'Temporal.Now': `${CLOCK}: now()`,
  setTimeout: `${CLOCK}: after()`,
  setInterval: `${CLOCK}: after()`,
  setImmediate: `${CLOCK}: after(0, …)`,
  'AbortSignal.timeout': `${CLOCK}: after(), and abort`,
  'Math.random': `${RANDOM}: fraction()`,
  'crypto.randomUUID': `${RANDOM}: id()`,
  'crypto.getRandomValues': `${RANDOM}: id()`,
  'process.env': ENTRY,
  'process.argv': ENTRY,
  'process.exit': 'return, or throw, and let src/main.ts decide',
}

/** Banned imports by Node module. */
const BANNED_IMPORTS: Readonly<
  Record<string, readonly (readonly [name: RegExp, instead: string])[]>
> = {
  crypto: [[/^(random|getRandomValues)/, `${RANDOM}: id()`]],
  timers: [[/^set/, `${CLOCK}: after()`]],
  'timers/promises': [[/./, `${CLOCK}: after()`]],
  perf_hooks: [[/^performance$/, `${CLOCK}: monotonicMs()`]],
}

/** Exceptions: files whose path matches `place` may use names that match `what`. */
export type Allowed = readonly (readonly [place: RegExp, what: RegExp])[]

/** Uses of the clock, random numbers or the process that bypass the ports. */
export function checkBanned(sources: readonly Source[], allowed: Allowed): readonly Finding[] {
  return sources.flatMap((source) => {
    const found: Finding[] = []
    const here = allowed.filter(([place]) => place.test(source.path)).map(([, what]) => what)
    const add = (node: Node, what: string, instead: string) => {
      if (here.some((names) => names.test(what))) return
      found.push(finding(source.path, node.loc.start.line, `uses ${what}: ${instead}`))
    }
    walk(source.tree, (node, parents) => {
      if (node.type === 'ImportDeclaration') return checkImport(node, add)
      if (node.type === 'NewExpression' && dotted(node['callee']) === 'Date')
        if ((node['arguments'] as readonly unknown[]).length === 0)
          add(node, 'new Date()', `${CLOCK}: now()`)
      if (node.type === 'CallExpression' && dotted(node['callee']) === 'Date')
        add(node, 'Date()', `${CLOCK}: now()`)
      const name = nameUsed(node, parents)
      const instead = Object.hasOwn(BANNED, name) ? BANNED[name] : undefined
      if (instead !== undefined) add(node, name, instead)
      return true
    })
    return found
  })
}

/** Dotted name of an expression; `''` for a declaration, a key, a type, or a part of a longer name. */
function nameUsed(node: Node, parents: readonly Node[]): string {
  if (node.type !== 'Identifier' && node.type !== 'MemberExpression') return ''
  const name = dotted(node).replace(/^globalThis\./, '')
  const parent = parents.at(-1)
  if (parent === undefined) return name
  if (node.type === 'Identifier') {
    const isPart =
      (parent.type === 'MemberExpression' && parent['property'] === node) ||
      (/Property$|Method$/.test(parent.type) && parent['key'] === node) ||
      parent.type === 'ImportSpecifier' ||
      parent.type.startsWith('TS')
    if (isPart) return ''
  }
  return name
}

function checkImport(
  node: Node,
  add: (node: Node, what: string, instead: string) => unknown,
): false {
  const source = node['source']
  const module = isNode(source) ? String(source['value']).replace(/^node:/, '') : ''
  const rules = Object.hasOwn(BANNED_IMPORTS, module) ? BANNED_IMPORTS[module]! : []
  for (const specifier of node['specifiers'] as readonly Node[]) {
    const imported = isNode(specifier['imported']) ? dotted(specifier['imported']) : '*'
    for (const [name, instead] of rules)
      if (imported === '*' || name.test(imported))
        add(node, `${imported} of node:${module}`, instead)
  }
  return false
}

/** Sleeps in tests: slow when all is well, flaky when the machine is busy. */
export function checkSleeps(tests: readonly Source[]): readonly Finding[] {
  const instead = 'advance a virtual clock, or wait for an event'
  return tests.flatMap((source) => {
    const found: Finding[] = []
    walk(source.tree, (node) => {
      const isSleep =
        (node.type === 'CallExpression' && dotted(node['callee']) === 'setTimeout') ||
        (node.type === 'ImportSpecifier' && dotted(node['imported']) === 'setTimeout') ||
        (node.type === 'CallExpression' && dotted(node['callee']) === 'Atomics.wait')
      if (isSleep)
        found.push(finding(source.path, node.loc.start.line, `waits by the clock: ${instead}`))
    })
    return found
  })
}
