/**
 * Baseline for durable writes: clients that update a row of their own and commit, one update after another.
 */
import {Client} from 'pg'
import {answerQuestions} from '../link.ts'

export interface CommitsInput {
  readonly url: string
  readonly clients: number
  readonly ms: number
}

const TABLE = 'CREATE TABLE IF NOT EXISTS plain (id bigint PRIMARY KEY, changes bigint NOT NULL)'
const ROW = 'INSERT INTO plain (id, changes) VALUES ($1, 0) ON CONFLICT DO NOTHING'
const CHANGE = 'UPDATE plain SET changes = changes + 1 WHERE id = $1'

export const handlers = {
  /** Acknowledged commits a second of all clients together. */
  commits: async ({url, clients: count, ms}: CommitsInput): Promise<{perSecond: number}> => {
    const clients = Array.from({length: count}, () => new Client({connectionString: url}))
    await Promise.all(clients.map((client) => client.connect()))
    await clients[0]!.query(TABLE)
    await Promise.all(clients.map((client, id) => client.query(ROW, [id])))
    const beganAt = performance.now()
    let commits = 0
    const lane = async (client: Client, id: number) => {
      while (performance.now() - beganAt < ms) {
        await client.query({name: 'change', text: CHANGE, values: [id]})
        commits += 1
      }
    }
    await Promise.all(clients.map(lane))
    const perSecond = (commits * 1000) / (performance.now() - beganAt)
    await Promise.all(clients.map((client) => client.end()))
    return {perSecond}
  },
}

answerQuestions(handlers)
