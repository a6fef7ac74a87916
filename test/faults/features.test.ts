/** Features on every node of a cluster, which these files share: it takes longer to start than most tests. */
// oxlint-disable-next-line import/no-unassigned-import -- an import declares its tests
import './features-nodes.ts'
// oxlint-disable-next-line import/no-unassigned-import -- an import declares its tests
import './features-running.ts'
