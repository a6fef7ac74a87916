/**
 * What stands on the command line, or in a variable in its place, is wrong by itself. The message is one
 * sentence for people; the exit code tells it from a command that failed.
 */
export class UsageProblem extends Error {
  override readonly name = 'UsageProblem'
}
