/** Names of the fields of all events. They are types only, so they are parsed from the table of events. */
import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {dotted, isNode, parseSource, walk} from '../tidy/source.ts'

const TABLE = 'src/core/events.ts'

/** Fields by event, as in `name: event<{field: string}>(…)`. */
export function eventFields(): Readonly<Record<string, readonly string[]>> {
  const events: Record<string, string[]> = {}
  const text = readFileSync(join(import.meta.dirname, '..', '..', TABLE), 'utf8')
  walk(parseSource(TABLE, text).tree, (node) => {
    const call = node['value']
    if (node.type !== 'ObjectProperty' || !isNode(call) || dotted(call['callee']) !== 'event')
      return
    const fields: string[] = []
    walk(call, (part) => {
      if (part.type === 'TSPropertySignature') fields.push(dotted(part['key']))
    })
    events[dotted(node['key'])] = fields
  })
  return events
}
