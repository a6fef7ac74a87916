/** Memory of the processes of a node, from /proc: those of the node itself, without its commands. */
import {readFileSync} from 'node:fs'
import {childrenOf} from './processor-time.ts'

const KIB_PER_MIB = 1024

export interface MemoryUse {
  /** Resident memory, MiB. Pages that processes share count in each of them. */
  readonly rss: number
  /** Proportional share, MiB: a page that n processes share counts 1/n in each of them. */
  readonly pss: number
}

export type Role = 'wrapper' | 'server' | 'agent' | 'helper'

/**
 * Memory of each process of a node. `pid` is the first process: the wrapper, or the node itself. Throws
 * without /proc.
 */
export function memoryUse(pid: number, role: 'server' | 'agent'): Map<Role, MemoryUse> {
  const roles = new Map<Role, MemoryUse>()
  const [node, helper] = nodeAndHelper(pid)
  if (node !== pid) roles.set('wrapper', read(pid))
  return roles.set(role, read(node)).set('helper', read(helper))
}

/** The helper's parent is the node. */
function nodeAndHelper(pid: number): readonly [node: number, helper: number] {
  const children = childrenOf(pid)
  const helper = children.find((child) => commandLine(child).includes('helper/main'))
  if (helper !== undefined) return [pid, helper]
  const [node] = children
  if (node === undefined) throw new Error(`process ${pid} has no helper`)
  return nodeAndHelper(node)
}

function commandLine(pid: number): string {
  return readFileSync(`/proc/${pid}/cmdline`, 'utf8')
}

function read(pid: number): MemoryUse {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8')
  const mib = (field: string) =>
    Number(new RegExp(`^${field}: +(\\d+) kB`, 'm').exec(text)?.[1]) / KIB_PER_MIB
  return {rss: mib('Rss'), pss: mib('Pss')}
}
