/**
 * The lives of a node: what it can prove of earlier ones when it returns, and the record of this one for
 * the next. The same for a server and an agent. Stands apart from `server.ts` and `agent.ts`, which hold the
 * order of starting: the store is told of earlier lives after the node has joined and before it runs
 * anything.
 */
import {join} from 'node:path'
import {BegunFile, forgetEarlierLives, readEarlierLives} from '../node/start-log.ts'
import type {EarlierLife} from '../ports/node-store.ts'
import type {Log} from '../telemetry/log.ts'

export interface Lives {
  /** What can be proved of them. */
  readonly earlier: readonly EarlierLife[]
  /** The store has been told, and gave back so many executions. */
  told(givenBack: number): void
  /** Begins the record of this life, which is open as long as the process is there. */
  begin(incarnation: string): BegunFile
}

export function nodeLives({
  dataDirectory,
  log: {logger},
}: {
  readonly dataDirectory: string
  readonly log: Log
}): Lives {
  const directory = join(dataDirectory, 'executions')
  return {
    earlier: readEarlierLives(directory),
    told: (givenBack) => {
      forgetEarlierLives(directory)
      if (givenBack > 0)
        logger.info(
          {executions: givenBack},
          'gave back what an earlier life of this node had claimed and never started',
        )
    },
    begin: (incarnation) =>
      new BegunFile({directory, incarnation, report: (sentence) => logger.warn(sentence)}),
  }
}
