/**
 * From the text of a cron expression to a schedule: five or six fields, each read by
 * cron-fields.ts, put together for one zone. It never sees descriptors or a `TZ=` prefix;
 * schedule.ts has taken those off.
 */
import type {Zone} from './zone.ts'
import {bitSetOf} from '../../lib/bit-set.ts'
import {CronDays} from './month-days.ts'
import {FIELD_SHAPES, parseField, valuesOf, type Field, type FieldShape} from './cron-field.ts'
import {CronSchedule} from './cron.ts'
import type {Schedule} from './planned.ts'
import {WallTimes} from './wall-times.ts'

export type ExpressionResult =
  {readonly ok: true; readonly schedule: Schedule} | {readonly ok: false; readonly problem: string}

type SixFields = [Field, Field, Field, Field, Field, Field]

const SHAPES_IN_ORDER: readonly FieldShape[] = Object.values(FIELD_SHAPES)

/** Compiles a trimmed expression. `nameSum` is what `~` stands for. */
export function compileExpression(text: string, zone: Zone, nameSum: number): ExpressionResult {
  const texts = text.split(/\s+/)
  if (texts.length === SHAPES_IN_ORDER.length - 1) texts.unshift('0')
  if (texts.length !== SHAPES_IN_ORDER.length) return {ok: false, problem: countProblem(text)}
  const fields: Field[] = []
  for (const [index, shape] of SHAPES_IN_ORDER.entries()) {
    const result = parseField(shape, texts[index]!, nameSum)
    if (!result.ok) return result
    fields.push(result.field)
  }
  const [second, minute, hour, dayOfMonth, month, dayOfWeek] = fields as SixFields
  const days = new CronDays(dayOfMonth, dayOfWeek, bitSetOf(valuesOf(month)).low)
  if (days.isNever()) {
    const [dayText, monthText] = [JSON.stringify(texts[3]), JSON.stringify(texts[4])]
    const problem =
      `the day-of-month field ${dayText} never matches in the month field ${monthText}, ` +
      'so it would never run: change one of them'
    return {ok: false, problem}
  }
  const walls = new WallTimes(
    days,
    bitSetOf(valuesOf(hour)),
    bitSetOf(valuesOf(minute)),
    bitSetOf(valuesOf(second)),
  )
  return {ok: true, schedule: new CronSchedule(walls, zone, !hour.wild)}
}

function countProblem(text: string): string {
  const written = JSON.stringify(text)
  if (/^\d{4}-\d\d/.test(text)) {
    const what = `${written} is a date, not a cron expression`
    return `${what}: for a single run write @at ${EXAMPLE_INSTANT}`
  }
  const count = text.split(/\s+/).length
  return (
    'a cron expression has five fields (minute hour day-of-month month day-of-week), ' +
    `or six with the second in front, and ${written} has ${count}: ` +
    (count < 5 ? 'add the missing ones' : 'remove the rest')
  )
}

/** For refusals: an instant as `@at` wants it. */
export const EXAMPLE_INSTANT = '2030-01-31T08:00:00Z'
