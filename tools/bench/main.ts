/**
 * `npm run bench`: measures, prints one table, writes every sample as JSON. Compare figures within one run
 * only; docs/explanation/benchmark.md explains them. Uses only the loopback, ends by itself, and leaves
 * only the JSON.
 */
import {arch, availableParallelism, loadavg, platform, totalmem} from 'node:os'
import {join} from 'node:path'
import {parseArgs} from 'node:util'
import {VERSION} from '../../src/platform/version.ts'
import {peerApi} from './contender.ts'
import {Figures, type Figure} from './figures.ts'
import {FULL, QUICK, type Plan} from './plan.ts'
import {markdownOf, tableOf, writeJson} from './report.ts'
import {Scratch} from './scratch.ts'
import type {Section} from './section.ts'
import {SECTIONS} from './sections.ts'
import {peerSection} from './sections/peer.ts'

const RESULTS = join(import.meta.dirname, '..', '..', 'bench-results')
const MIB = 2 ** 20
const SECOND_MS = 1000
const EXIT_FAILED = 1
const EXIT_USAGE = 2
const EXIT_INTERRUPTED = 130

const namesOf = (sections: readonly Section[]) => sections.map(({name}) => `"${name}"`).join(', ')
const ONLY = Object.entries(SECTIONS).map(([store, sections]) => `${store}: ${namesOf(sections)}`)
const USAGE = `npm run bench -- [--quick] [--store <store>] [--only <section>] [--rounds <n>] [--peer <url>]
  --quick     about three minutes instead of fifteen
  --store     sqlite (one server, the default) or postgres (one server and three)
  --only      one section, may be given again
              ${ONLY.join('\n              ')}
  --peer      URL on this machine of another server with this interface: only the comparison with it
  --rounds    how often each comparison is repeated
  --markdown  prints the table as Markdown`

interface Choice {
  readonly plan: Plan
  readonly sections: readonly Section[]
  readonly store: string
  readonly isMarkdown: boolean
}

function choose(argv: readonly string[]): Choice | null {
  const {values} = parseArgs({
    args: [...argv],
    options: {
      quick: {type: 'boolean', default: false},
      store: {type: 'string', default: 'sqlite'},
      markdown: {type: 'boolean', default: false},
      only: {type: 'string', multiple: true},
      rounds: {type: 'string'},
      peer: {type: 'string'},
    },
  })
  const plan = values.quick ? QUICK : FULL
  const rounds = values.rounds === undefined ? plan.rounds : Number(values.rounds)
  const {store, markdown: isMarkdown} = values
  const known =
    values.peer === undefined ? (SECTIONS[store] ?? []) : [peerSection(peerApi(values.peer))]
  const sections = known.filter(({name}) => values.only?.includes(name) ?? true)
  if (!Number.isInteger(rounds) || rounds < 1 || sections.length === 0) return null
  if (values.only?.some((only) => !known.some(({name}) => name === only))) return null
  if (values.rounds === undefined) return {plan, sections, store, isMarkdown}
  const cluster = {...plan.cluster, rounds, submitRounds: rounds}
  const peer = {...plan.peer, rounds, startRounds: rounds}
  const repeated = {...plan, rounds, submitRounds: rounds, overloadRounds: rounds, cluster, peer}
  return {plan: repeated, sections, store, isMarkdown}
}

async function run(choice: Choice, scratch: Scratch): Promise<number> {
  const {plan, sections, store, isMarkdown} = choice
  const startedAt = new Date().toISOString()
  const [loadBefore = 0] = loadavg()
  const beganAt = performance.now()
  const measured: Figure[] = []
  const failures: string[] = []
  const notes: string[] = []
  for (const section of sections) {
    const figures = new Figures(section.name)
    const say = (line: string) => process.stderr.write(`  ${section.name}: ${line}\n`)
    const sectionBeganAt = performance.now()
    const again = (round: number, rounds: number) => {
      const spentMs = performance.now() - sectionBeganAt
      return round === 0 || (round < rounds && spentMs < plan.sectionLimitMs)
    }
    const note = (line: string) => notes.push(`${section.name}: ${line}`)
    try {
      await section.measure({plan, scratch, figures, say, again, note})
    } catch (error) {
      failures.push(`${section.name}: ${error instanceof Error ? error.message : String(error)}`)
    }
    measured.push(...figures.all)
    await scratch.clear()
  }
  const seconds = Math.round((performance.now() - beganAt) / SECOND_MS)
  const machine = {
    node: process.version,
    platform: `${platform()} ${arch()}`,
    cores: availableParallelism(),
    memoryMiB: Math.round(totalmem() / MIB),
    loadBefore,
  }
  const facts = {
    startedAt,
    mode: plan.mode,
    store,
    seconds,
    version: VERSION,
    ...machine,
    failures,
    notes,
  }
  console.log(`\n${isMarkdown ? markdownOf(measured) : tableOf(measured)}\n`)
  for (const note of notes) console.log(`NOTE ${note}`)
  for (const failure of failures) console.log(`NOT MEASURED ${failure}`)
  console.log(
    `${plan.mode} run on ${store} of ${seconds} s, ${machine.cores} cores, load before ${loadBefore}`,
  )
  console.log(writeJson(RESULTS, facts, measured))
  return failures.length === 0 ? 0 : EXIT_FAILED
}

function readChoice(): Choice | null {
  try {
    return choose(process.argv.slice(2))
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
    return null
  }
}

const choice = readChoice()
if (choice === null) {
  process.stderr.write(`${USAGE}\n`)
  process.exitCode = EXIT_USAGE
} else {
  const scratch = new Scratch()
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const)
    process.once(signal, () => void scratch.clear().then(() => process.exit(EXIT_INTERRUPTED)))
  process.exitCode = await run(choice, scratch)
}
