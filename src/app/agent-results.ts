/**
 * The results of an agent between a run's end and a server: on disk before they are offered, and gone from
 * there when a server has them. Stands apart from `agent.ts`, which holds the order of starting and stopping.
 */
import type {Clock} from '../ports/runtime.ts'
import type {Events} from '../ports/events.ts'
import type {FinishItem} from '../ports/node-store.ts'
import type {NodeRun} from './node.ts'
import {StartRefused} from './start-refused.ts'
import {ResultJournal, type OpenedJournal} from '../agents/client/result-log.ts'
import type {Log} from '../telemetry/log.ts'

/** The step that fails when the disk does not take a result. */
export const KEEP_RESULT = 'keep_result'

export interface ResultParts {
  readonly dataDirectory: string
  readonly clock: Clock
  readonly log: Log
}

/** `left` are the results that earlier lives could not deliver. Throws `StartRefused`. */
export async function openResults({
  dataDirectory,
  clock,
  log,
}: ResultParts): Promise<Pick<OpenedJournal, 'journal' | 'left'>> {
  try {
    const {journal, left, unreadable} = await ResultJournal.open(dataDirectory, clock)
    if (unreadable > 0)
      log.logger.warn(
        {lines: unreadable},
        'results of an earlier life could not be read: torn by a crash or a full disk, or damaged; ' +
          'what was not delivered of them becomes lost',
      )
    return {journal, left}
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error)
    throw new StartRefused(
      `The results in ${dataDirectory} that no server has yet cannot be opened: ${why}; ` +
        'mend that, or choose another --data.',
      {cause: error},
    )
  }
}

/**
 * On disk before it is offered. A crash between the two, or before the answer, leaves the result for the
 * next life; one after the answer delivers it twice, which changes nothing.
 */
export function finishingKept(
  journal: Pick<ResultJournal, 'keep' | 'delivered'>,
  events: Events,
): NonNullable<NodeRun['finishing']> {
  return async (item: FinishItem, finish: () => Promise<unknown>) => {
    try {
      await journal.keep(item)
    } catch (error) {
      // A full disk must not keep a result from a server that would take it.
      events.emit('step_failed', {step: KEEP_RESULT, message: String(error)})
    }
    await finish()
    await journal.delivered([item.key])
  }
}
