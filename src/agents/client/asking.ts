/** How the remote store asks a server, whatever carries the question: the link to it is one such way. */
import type {AnswerOf, BodyOf, QuestionKind} from '../protocol.ts'

export interface Asking {
  /**
   * Resolves with the server's answer. Throws `StoreUnavailable` when it was not asked, or could do nothing;
   * `OutcomeUnknown` when it was asked and the answer did not come.
   */
  ask<Kind extends QuestionKind>(kind: Kind, body: BodyOf<Kind>): Promise<AnswerOf<Kind>>
}
