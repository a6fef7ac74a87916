/**
 * Reading maps of string to string from JSON that may hold booleans, numbers and nulls, and the sentence when
 * it holds worse. Apart from the job's decoder because tags, metadata, parameters and processors share it.
 */
import {isObject} from './json.ts'
import {MAP_KEY_LENGTH_MAX, MAP_VALUE_BYTES_MAX} from './shapes.ts'

export type MapReading =
  | {readonly ok: true; readonly map: Record<string, string>}
  | {readonly ok: false; readonly problem: string}

/** Reads one map. `field` names it in the sentence, e.g. `tags` or `processors.files`. */
export function readTextMap(field: string, value: unknown, entriesMax: number): MapReading {
  if (!isObject(value)) return refuse(`${field}: must be an object of names and texts`)
  const entries = Object.entries(value)
  if (entries.length > entriesMax)
    return refuse(`${field}: has ${entries.length} entries; at most ${entriesMax} are allowed`)
  const map: Record<string, string> = {}
  for (const [key, inner] of entries) {
    if (key.length > MAP_KEY_LENGTH_MAX)
      return refuse(`${field}: a name is longer than ${MAP_KEY_LENGTH_MAX} characters`)
    if (inner === null || inner === undefined) continue
    if (typeof inner === 'object')
      return refuse(`${field}.${key}: must be a text, a number or true/false, not a nested value`)
    const text = String(inner)
    if (longerThan(text, MAP_VALUE_BYTES_MAX))
      return refuse(`${field}.${key}: is longer than ${MAP_VALUE_BYTES_MAX} bytes`)
    map[key] = text
  }
  return {ok: true, map}
}

/** True when the text takes more than `bytesMax` bytes of UTF-8. Cheap for texts far from the limit. */
export function longerThan(text: string, bytesMax: number): boolean {
  if (text.length > bytesMax) return true
  return text.length * 3 > bytesMax && new TextEncoder().encode(text).length > bytesMax
}

function refuse(problem: string): MapReading {
  return {ok: false, problem}
}
