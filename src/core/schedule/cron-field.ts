/**
 * The grammar of one cron field: lists of `*`, `?`, numbers, names, ranges, steps, `~`, and `L`,
 * `W`, `#` in the day fields. Every error names the field and the fix. The days that `L`, `W` and
 * `#` mean are computed in month-days.ts.
 */

/** Range and names that a field may contain. */
export interface FieldShape {
  /** Name of the field in errors. */
  readonly title: string
  readonly min: number
  /** Largest value of `*` and of `N/step`. */
  readonly max: number
  /** Largest number that may be written; 7 for the second name of Sunday. */
  readonly writtenMax: number
  /** First three letters of each value from `min` on, in capitals; empty = the field has no names. */
  readonly names: readonly string[]
  /** How many values `~` chooses from, beginning at `min`. */
  readonly spread: number
  /** Which of the forms with `L`, `W` and `#` the field has. */
  readonly marks: 'none' | 'day-of-month' | 'day-of-week'
}

const MONTHS = ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC']
const WEEKDAYS = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT']

function plain(title: string, min: number, max: number): FieldShape {
  const spread = max - min + 1
  return {title, min, max, writtenMax: max, names: [], spread, marks: 'none'}
}

/** Shapes in the order of a six-field expression. `~` in day-of-month uses only days that every month has. */
export const FIELD_SHAPES = {
  second: plain('second', 0, 59),
  minute: plain('minute', 0, 59),
  hour: plain('hour', 0, 23),
  dayOfMonth: {...plain('day-of-month', 1, 31), spread: 28, marks: 'day-of-month'},
  month: {...plain('month', 1, 12), names: MONTHS},
  dayOfWeek: {...plain('day-of-week', 0, 6), writtenMax: 7, names: WEEKDAYS, marks: 'day-of-week'},
} as const satisfies Record<string, FieldShape>

/**
 * Entry of a field's list, with names, `~` and `*` already turned into numbers. Weekdays are 0
 * to 7, both Sunday. A workday is Monday to Friday.
 */
type FieldItem =
  | {readonly kind: 'span'; readonly from: number; readonly to: number; readonly step: number}
  /** `L` */
  | {readonly kind: 'last-day'}
  /** `LW` */
  | {readonly kind: 'last-workday'}
  /** `15W` */
  | {readonly kind: 'nearest-workday'; readonly day: number}
  /** `5L` */
  | {readonly kind: 'last-weekday'; readonly weekday: number}
  /** `5#2` */
  | {readonly kind: 'nth-weekday'; readonly weekday: number; readonly nth: number}

/** A parsed field. */
export interface Field {
  readonly items: readonly FieldItem[]
  /** The whole field is `*` or `?`. */
  readonly unrestricted: boolean
  /** Some entry has a `*`, a `?` or a step. In the hour field this selects the rule for daylight saving. */
  readonly wild: boolean
}

export type FieldResult =
  {readonly ok: true; readonly field: Field} | {readonly ok: false; readonly problem: string}

type ItemResult =
  | {readonly item: FieldItem; readonly wild: boolean}
  /** Clause that follows `the minute field "61" `. */
  | {readonly problem: string}

/** Parses one field. `nameSum` is the number behind `~`, before it is reduced to the field's range. */
export function parseField(shape: FieldShape, text: string, nameSum: number): FieldResult {
  const items: FieldItem[] = []
  let wild = false
  for (const entry of text.toUpperCase().split(',')) {
    const result = parseItem(shape, entry, nameSum)
    if ('problem' in result) {
      return {ok: false, problem: `the ${shape.title} field ${quoted(text)} ${result.problem}`}
    }
    items.push(result.item)
    wild ||= result.wild
  }
  return {ok: true, field: {items, unrestricted: text === '*' || text === '?', wild}}
}

/** The numbers a field without marks stands for. */
export function valuesOf(field: Field): number[] {
  const values: number[] = []
  for (const item of field.items) {
    if (item.kind !== 'span') continue
    for (let value = item.from; value <= item.to; value += item.step) values.push(value)
  }
  return values
}

function parseItem(shape: FieldShape, entry: string, nameSum: number): ItemResult {
  if (entry === '') return {problem: 'has an empty entry in its list: remove the extra comma'}
  const mark = parseMark(shape, entry)
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

/** `step` is `null` when none is written: `5` is one value, but `5/1` is every value from 5 on. */
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
    // `7/2` starts on Sunday, as `0/2` does: no weekday follows 7.
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

/** Returns the number written or named, or the clause of an error. */
function parseValue(shape: FieldShape, text: string, isRangeEnd: boolean): number | string {
  const {min, writtenMax, names, title} = shape
  if (/^\d+$/.test(text)) {
    const value = Number(text)
    if (value >= min && value <= writtenMax) return value
    return `has the value ${quoted(text)}, which is out of range: use ${min} to ${writtenMax}`
  }
  const index = names.indexOf(text)
  // A range may end on Sunday, the way people say "Friday to Sunday".
  if (index === 0 && isRangeEnd && shape.marks === 'day-of-week') return writtenMax
  if (index >= 0) return min + index
  if (names.length > 0 && names.some((name) => text.startsWith(name) && /^[A-Z]+$/.test(text))) {
    return `has the value ${quoted(text)}: use the three-letter name ${text.slice(0, 3)}`
  }
  const named = names.length === 0 ? '' : `, or names ${names[0]} to ${names.at(-1)}`
  return `has the value ${quoted(text)}, which no ${title} can be: use ${min} to ${writtenMax}${named}`
}

function stepProblem(shape: FieldShape, text: string): string | null {
  const size = shape.max - shape.min + 1
  if (!/^\d+$/.test(text)) return `has the step ${quoted(text)}: use a whole number after the slash`
  const step = Number(text)
  if (step === 0) return `has a step of 0: use 1 to ${size}`
  if (step <= size) return null
  return (
    `has a step of ${quoted(text)}, larger than the field: use 1 to ${size}, ` +
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

/** `L`, `LW`, `15W` in day-of-month, `5#2` and `5L` in day-of-week; `null` for any other entry. */
function parseMark(shape: FieldShape, entry: string): ItemResult | null {
  if (shape.marks === 'none') return null
  return shape.marks === 'day-of-month' ? parseMonthMark(shape, entry) : parseWeekMark(shape, entry)
}

function parseMonthMark(shape: FieldShape, entry: string): ItemResult | null {
  if (entry === 'L') return {item: {kind: 'last-day'}, wild: false}
  if (entry === 'LW') return {item: {kind: 'last-workday'}, wild: false}
  const near = /^(\d+)W$/.exec(entry)?.[1]
  if (near !== undefined) {
    return markOf(parseValue(shape, near, false), (day) => ({kind: 'nearest-workday', day}))
  }
  if (!/[LW]/.test(entry)) return null
  return {
    problem: `has the value ${quoted(entry)}: the forms are L, LW and a day with W such as 15W`,
  }
}

function parseWeekMark(shape: FieldShape, entry: string): ItemResult | null {
  const last = /^(\w+?)#?L$/.exec(entry)?.[1]
  if (last !== undefined) {
    return markOf(parseValue(shape, last, false), (weekday) => ({kind: 'last-weekday', weekday}))
  }
  if (entry.includes('#')) {
    const parts = /^(\w+)#([1-5])$/.exec(entry)
    if (parts === null) {
      return {problem: `has the value ${quoted(entry)}: write a day, # and 1 to 5, such as 5#2`}
    }
    const nth = Number(parts[2])
    return markOf(parseValue(shape, parts[1]!, false), (weekday) => {
      return {kind: 'nth-weekday', weekday, nth}
    })
  }
  if (entry !== 'L') return null
  return {problem: 'has the value "L" without a day: write 5L for the last Friday of the month'}
}

function markOf(value: number | string, item: (value: number) => FieldItem): ItemResult {
  return typeof value === 'string' ? {problem: value} : {item: item(value), wild: false}
}

/** The user's text, quoted, with control characters escaped. */
function quoted(text: string): string {
  return JSON.stringify(text)
}
