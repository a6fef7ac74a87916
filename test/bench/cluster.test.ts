/**
 * The sections on PostgreSQL run at minimal sizes and count correctly. No test here asserts a duration. The
 * end-to-end section is left out: it needs the whole machine.
 */
import assert from 'node:assert/strict'
import {join} from 'node:path'
import {describe, it} from 'node:test'
import {Figures, type Figure} from '../../tools/bench/figures.ts'
import {QUICK, type Plan} from '../../tools/bench/plan.ts'
import {Scratch} from '../../tools/bench/scratch.ts'
import {SECTIONS} from '../../tools/bench/sections.ts'

// Compiling the servers would take most of the time without a shared cache.
process.env['NODE_COMPILE_CACHE'] ??= join(
  import.meta.dirname,
  '../../node_modules/.cache/compiled',
)

const TINY: Plan = {
  ...QUICK,
  parallel: 4,
  submitMs: 50,
  submitClients: 4,
  steadyPerSecond: 10,
  cluster: {
    servers: [1],
    rounds: 1,
    bookkeepingBurst: 50,
    submitRounds: 1,
    steadyMs: 1_000,
    burstDue: 20,
    floodDue: 20,
    probeMs: 200,
    sizes: [20],
    passes: 2,
    idleMs: 100,
    takeovers: 1,
    takeoverJobs: 5,
  },
}

/** Figures of a section by name. */
async function measured(name: string, servers: readonly number[]): Promise<Map<string, Figure>> {
  const section = SECTIONS['postgres']!.find((section) => section.name === name)!
  const scratch = new Scratch()
  const figures = new Figures(name)
  const plan = {...TINY, cluster: {...TINY.cluster, servers}}
  try {
    const again = (round: number, rounds: number) => round < rounds
    await section.measure({
      plan,
      scratch,
      figures,
      again,
      say: () => undefined,
      note: () => undefined,
    })
  } finally {
    await scratch.clear()
  }
  for (const {name, samples} of figures.all)
    assert.ok(
      samples.every((sample) => Number.isFinite(sample)),
      `${name}: ${samples.join(' ')}`,
    )
  return new Map(figures.all.map((figure) => [figure.name, figure]))
}

describe('sections on PostgreSQL', {concurrency: true}, () => {
  const expected: Readonly<Record<string, readonly string[]>> = {
    bookkeeping: ['executions of nothing, 256 slots / commits of one client'],
    submits: ['API of 1 server, 4 clients / bare store, one at a time'],
    'start lag': [
      '1 × server, 10 launches/s: claimed, p99',
      '1 × server, 10 launches/s: command started, p99',
      '1 × server, 20 due at once: launched, max',
      '1 × server, 20 due at once: command started, max',
      '1 × server, 20 due at once: the last is recorded after',
    ],
    sizes: ['20 jobs, pass with nothing due, p50', '20 jobs, pass with one due, p99'],
  }
  for (const [name, figures] of Object.entries(expected))
    it(`${name}: records its figures`, async () => {
      const found = await measured(name, [1])
      for (const figure of figures)
        assert.ok(found.has(figure), `${figure} is not among ${[...found.keys()].join(', ')}`)
    })

  it('takeover: another server leads, and no planned time is missing or doubled', async () => {
    const found = await measured('takeover', [2])
    const value = (what: string) => found.get(`1 × SIGKILL and 1 × SIGTERM: ${what}`)!.samples[0]!
    assert.ok(value('planned times') > 0)
    assert.equal(value('missing'), 0)
    assert.equal(value('doubled'), 0)
    for (const signal of ['SIGKILL', 'SIGTERM'])
      assert.ok(found.has(`${signal} of the leader, first launch of the next, max`))
  })
})
