/**
 * The grammar of one cron field: lists of `*`, `?`, numbers, names, ranges, steps, `~`, and `L`,
 * `W`, `#` in the day fields. It stands apart because every refusal must name the field and the
 * fix, which no library's errors do. It never looks at dates; which days `L`, `W` and `#` mean is
 * the business of cron-days.ts.
 */

/** What a field may hold. */
export interface FieldShape {
  /** As the refusals call it. */
  readonly title: string
  readonly min: number
  /** Largest value of `*` and of `N/step`. */
  readonly max: number
  /** Largest number that may be written; 7 for the second name of Sunday. */
  readonly writtenMax: number
  /** First three letters of each value from `min` on, in capitals; empty where there are none. */
  readonly names: readonly string[]
  /** How many values `~` chooses from, beginning at `min`. */
  readonly spread: number
  readonly marks: 'none' | 'day-of-month' | 'day-of-week'
}

const MONTHS = ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC']
const WEEKDAYS = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT']

function plain(title: string, min: number, max: number): FieldShape {
  const spread = max - min + 1
  return {title, min, max, writtenMax: max, names: [], spread, marks: 'none'}
}

/** In the order of a six-field expression. `~` keeps to days every month has. */
export const FIELD_SHAPES = {
  second: plain('second', 0, 59),
  minute: plain('minute', 0, 59),
  hour: plain('hour', 0, 23),
  dayOfMonth: {...plain('day-of-month', 1, 31), spread: 28, marks: 'day-of-month'},
  month: {...plain('month', 1, 12), names: MONTHS},
  dayOfWeek: {...plain('day-of-week', 0, 6), writtenMax: 7, names: WEEKDAYS, marks: 'day-of-week'},
} as const satisfies Record<string, FieldShape>

/** One entry of a field's list, with names, `~` and `*` already turned into numbers. */
export type FieldItem =
  | {readonly kind: 'span'; readonly from: number; readonly to: number; readonly step: number}
  /** Canonical spelling: `L`, `LW`, `15W`, `5L`, `5#2`. */
  | {readonly kind: 'mark'; readonly text: string}

/** One field, understood. */
export interface Field {
  readonly items: readonly FieldItem[]
  /** The whole field is `*` or `?`. */
  readonly unrestricted: boolean
  /**
   * Some entry has a `*`, a `?` or a step: what decides how an hour field meets daylight saving.
   */
  readonly wild: boolean
}

export type FieldResult =
  {readonly ok: true; readonly field: Field} | {readonly ok: false; readonly problem: string}

type ItemResult =
  | {readonly item: FieldItem; readonly wild: boolean}
  /** A clause that goes on after `the minute field "61" `. */
  | {readonly problem: string}

/**
 * Reads one field. `nameSum` is what `~` stands for, before it is brought into the field's range.
 */
export function parseField(shape: FieldShape, text: string, nameSum: number): FieldResult {
  const items: FieldItem[] = []
  let wild = false
  for (const entry of text.toUpperCase().split(',')) {
    const result = parseItem(shape, entry, nameSum)
    if ('problem' in result) return fieldProblem(shape, text, result.problem)
    items.push(result.item)
    wild ||= result.wild
  }
  return {ok: true, field: {items, unrestricted: text === '*' || text === '?', wild}}
}

/** A refusal about a whole field: `the minute field "61" …`. */
export function fieldProblem(
  shape: FieldShape,
  text: string,
  clause: string,
): {readonly ok: false; readonly problem: string} {
  return {ok: false, problem: `the ${shape.title} field ${JSON.stringify(text)} ${clause}`}
}

/** The numbers the spans of a field stand for; marks have none. */
export function valuesOf(field: Field): number[] {
  const values: number[] = []
  for (const item of field.items) {
    if (item.kind === 'mark') continue
    for (let value = item.from; value <= item.to; value += item.step) values.push(value)
  }
  return values
}

function parseItem(shape: FieldShape, entry: string, nameSum: number): ItemResult {
  if (entry === '') return {problem: 'has an empty entry in its list: remove the extra comma'}
  const mark = shape.marks === 'none' ? null : parseMark(shape, entry)
  if (mark !== null) return mark
  const parts = entry.split('/')
  if (parts.length > 2) return {problem: 'has two steps in one entry: write a single /step'}
  const [base, stepText] = parts as [string, string | undefined]
  let step = 1
  if (stepText !== undefined) {
    const problem = stepProblem(shape, stepText)
    if (problem !== null) return {problem}
    step = Number(stepText)
  }
  return parseSpan(shape, base, stepText === undefined ? null : step, nameSum)
}

/**
 * `step` is `null` when there is none, which is not the same as `/1`: `5` is one value, `5/1` is
 * all from 5 on.
 */
function parseSpan(
  shape: FieldShape,
  base: string,
  step: number | null,
  nameSum: number,
): ItemResult {
  const stepped = step !== null
  const {min, max} = shape
  if (base === '*' || base === '?') {
    return {item: {kind: 'span', from: min, to: max, step: step ?? 1}, wild: true}
  }
  if (base === '~') {
    const from = min + (nameSum % shape.spread)
    return {item: {kind: 'span', from, to: stepped ? max : from, step: step ?? 1}, wild: stepped}
  }
  if (base === '') return {problem: 'has a step without a start: write */step or number/step'}
  const ends = base.split('-')
  if (ends.length > 2 || ends.includes('')) {
    return {problem: `has ${quoted(base)}, which is not a range: write two values with one dash`}
  }
  const from = parseValue(shape, ends[0]!, false)
  if (typeof from === 'string') return {problem: from}
  if (ends.length === 1) {
    // Sunday written as 7 begins a stepped entry like 0 does: there is no day after it in the week.
    const start = stepped && from > max ? min : from
    return {
      item: {kind: 'span', from: start, to: stepped ? max : start, step: step ?? 1},
      wild: stepped,
    }
  }
  const to = parseValue(shape, ends[1]!, true)
  if (typeof to === 'string') return {problem: to}
  if (from > to) return {problem: wrapProblem(shape, ends[0]!, ends[1]!)}
  return {item: {kind: 'span', from, to, step: step ?? 1}, wild: stepped}
}

/** The number that was written or named; a clause saying what is wrong otherwise. */
function parseValue(shape: FieldShape, text: string, isRangeEnd: boolean): number | string {
  const {min, writtenMax, names, title} = shape
  if (/^\d+$/.test(text)) {
    const value = Number(text)
    if (value >= min && value <= writtenMax) return value
    return `holds ${quoted(text)}, which is out of range: use ${min} to ${writtenMax}`
  }
  const index = names.indexOf(text)
  // A range may end on Sunday, the way people say "Friday to Sunday".
  if (index === 0 && isRangeEnd && shape.marks === 'day-of-week') return writtenMax
  if (index >= 0) return min + index
  if (names.length > 0 && names.some((name) => text.startsWith(name) && /^[A-Z]+$/.test(text))) {
    return `holds ${quoted(text)}: use the three-letter name ${text.slice(0, 3)}`
  }
  const named = names.length === 0 ? '' : `, or names ${names[0]} to ${names.at(-1)}`
  return `holds ${quoted(text)}, which no ${title} can be: use ${min} to ${writtenMax}${named}`
}

function stepProblem(shape: FieldShape, text: string): string | null {
  const size = shape.max - shape.min + 1
  if (!/^\d+$/.test(text)) return `has the step ${quoted(text)}: use a whole number after the slash`
  const step = Number(text)
  if (step === 0) return `has a step of 0, which goes nowhere: use 1 to ${size}`
  if (step <= size) return null
  return (
    `has a step of ${quoted(text)}, more than the field is long: use 1 to ${size}, ` +
    'or @every for an interval of its own'
  )
}

function wrapProblem(shape: FieldShape, from: string, to: string): string {
  const {names, min, max} = shape
  const [first, last] = names.length > 0 ? [names[0], names.at(-1)] : [min, max]
  return (
    `has the range ${quoted(`${from}-${to}`)}, which ends before it begins: ` +
    `write it as two ranges, ${from}-${last},${first}-${to}`
  )
}

/**
 * `L`, `LW`, `15W` in day-of-month, `5#2` and `5L` in day-of-week; `null` when the entry is
 * something else.
 */
function parseMark(shape: FieldShape, entry: string): ItemResult | null {
  if (shape.marks === 'day-of-month') {
    if (entry === 'L' || entry === 'LW') return {item: {kind: 'mark', text: entry}, wild: false}
    const day = /^(\d+)W$/.exec(entry)?.[1]
    if (day !== undefined) return markOf(parseValue(shape, day, false), 'W')
    if (!/[LW]/.test(entry)) return null
    return {problem: `holds ${quoted(entry)}: the forms are L, LW and a day with W such as 15W`}
  }
  const last = /^(\w+?)#?L$/.exec(entry)?.[1]
  if (last !== undefined) return markOf(parseValue(shape, last, false), 'L')
  if (entry.includes('#')) {
    const parts = /^(\w+)#([1-5])$/.exec(entry)
    if (parts === null) {
      return {problem: `holds ${quoted(entry)}: write a day, # and 1 to 5, such as 5#2`}
    }
    return markOf(parseValue(shape, parts[1]!, false), `#${parts[2]}`)
  }
  if (entry !== 'L') return null
  return {problem: 'holds "L" without a day: write 5L for the last Friday of the month'}
}

function markOf(value: number | string, suffix: string): ItemResult {
  if (typeof value === 'string') return {problem: value}
  return {item: {kind: 'mark', text: `${value}${suffix}`}, wild: false}
}

/** What the user wrote, quoted; control characters come out escaped. */
function quoted(text: string): string {
  return JSON.stringify(text)
}
