/** A start that cannot be: thrown by the composition roots, shown by the entry. */

/** The message is one sentence for the person who started it. */
export class StartRefused extends Error {
  override readonly name = 'StartRefused'
}
