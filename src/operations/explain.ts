/** Why a job ran, did not run, or waits. */
import {decide, jobPath, type Principal} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {explain as explainFacts, type Explanation} from '../core/explain/explain.ts'
import type {ExplainSubject} from '../core/explain/facts.ts'
import type {OperationsContext} from './context.ts'
import {jobUnknown} from './jobs.ts'

interface ExplainParts {
  readonly store: Pick<OperationsContext['store'], 'explainFacts'>
  readonly settings: {
    readonly targets: OperationsContext['settings']['targets']
    readonly limits: Pick<OperationsContext['settings']['limits'], 'queuedPerJobMax'>
  }
}

export function createExplain({store, settings}: ExplainParts) {
  /**
   * Sentences about nodes need `list` on the members, about another job `read` on it. Throws `job_unknown`,
   * `launch_unknown`.
   */
  async function explain(
    name: string,
    subject: ExplainSubject,
    caller: Principal,
  ): Promise<Explanation> {
    const facts = await store.explainFacts(name, subject)
    if (facts === null) throw jobUnknown(name)
    if (subject.kind === 'launch' && facts.chosen === null)
      throw new DomainError('launch_unknown', `The job "${name}" has no such launch.`)
    return explainFacts(facts, subject, {
      ...settings.targets,
      seesNodes: decide(caller, 'list', '/v1/members').allowed,
      seesOutput: decide(caller, 'read', `${jobPath(name)}/executions/1-node-1`).allowed,
      queuedMax: settings.limits.queuedPerJobMax,
      mayRead: (job) => decide(caller, 'read', jobPath(job)).allowed,
    })
  }

  return {explain}
}
