/**
 * Running a step on a session. Keeps what is known about the steps' texts: their PostgreSQL form, the name
 * under which a server has them parsed, and the types of their values.
 */
import type {Answer, Command, Row, Step, Value, Values} from '../sql/query.ts'
import type {Session} from './connection.ts'
import {INDEX_COLUMN, numbered, setBased} from './statement.ts'

/** Texts differ only by the filters of lists; beyond this many they are parsed each time. */
const NAMED_MAX = 400
/** Rows of values in one round trip: a message, and what the server makes of it, stay of a size. */
const ROWS_MAX = 2_000

interface Text {
  readonly sql: string
  readonly name: string | null
}

export class Statements {
  readonly #single = new Map<string, Text>()
  readonly #forMany = new Map<string, Text>()
  #names = 0

  /** Runs a whole step. What a statement throws ends the step; whoever opened the transaction undoes it. */
  async run<Result>(session: Session, step: Step<Result>): Promise<Result> {
    let next = step.next()
    while (next.done !== true) next = step.next(await this.#answer(session, next.value))
    return next.value
  }

  async #answer(session: Session, command: Command): Promise<Answer> {
    switch (command.kind) {
      case 'all': {
        const {sql, name} = this.#numbered(command.sql)
        return await session.rows(sql, command.values, name)
      }
      case 'each':
        return await this.#each(session, command.sql, command.rows)
      case 'breathe':
        // Every statement waits for the server already, which lets other work go first.
        return undefined
    }
  }

  async #each(session: Session, sql: string, rows: readonly Values[]): Promise<Row[][]> {
    const text = this.#forMany.get(sql) ?? (await this.#prepareForMany(session, sql))
    const answers: Row[][] = rows.map(() => [])
    for (let from = 0; from < rows.length; from += ROWS_MAX) {
      const piece = rows.slice(from, from + ROWS_MAX)
      const columns = (piece[0] ?? []).map((_, column): Value[] => {
        return piece.map((values) => values[column] ?? null)
      })
      const found = await session.rows(text.sql, columns, text.name)
      for (const row of found) answers[from + Number(row[INDEX_COLUMN]) - 1]?.push(row)
    }
    return answers
  }

  #numbered(sql: string): Text {
    const known = this.#single.get(sql)
    if (known !== undefined) return known
    return this.#keep(this.#single, sql, numbered(sql))
  }

  /** The server says of what types the values are; once for each text. */
  async #prepareForMany(session: Session, sql: string): Promise<Text> {
    const results = await session.run(`PREPARE belfry_asks AS ${numbered(sql)};
      SELECT parameter_types::text[] AS types FROM pg_prepared_statements
        WHERE name = 'belfry_asks';
      DEALLOCATE belfry_asks`)
    // An array of texts, which is no value of ours.
    const types = results[1]?.rows[0]?.['types'] as unknown as readonly string[]
    return this.#keep(this.#forMany, sql, setBased(sql, types))
  }

  #keep(texts: Map<string, Text>, sql: string, text: string): Text {
    const known = texts.get(sql)
    if (known !== undefined) return known
    if (this.#names >= NAMED_MAX) return {sql: text, name: null}
    this.#names += 1
    const kept = {sql: text, name: `belfry_${this.#names}`}
    texts.set(sql, kept)
    return kept
  }
}
