/** Contract tests of the processor port, run against every processor with real receivers. */
import assert from 'node:assert/strict'
import {test} from 'node:test'

import type {Processor} from '../../src/ports/processor.ts'
import {aRun} from './support.ts'

export interface Subject {
  readonly processor: Processor
  /** Everything that arrived where the processor sends it, once `text` is in it. */
  received(text: string): Promise<string>
  close(): Promise<void>
}

export function exerciseProcessor(name: string, open: () => Promise<Subject>): void {
  const inSubject = (work: (subject: Subject) => Promise<void>) => async (): Promise<void> => {
    const subject = await open()
    try {
      await work(subject)
    } finally {
      await subject.close()
    }
  }

  test(
    `${name}: the whole stream arrives, and the result is one line`,
    inSubject(async ({processor, received}) => {
      const stream = await processor.open({run: aRun(), config: {}})
      await stream.write(Buffer.from('first li'))
      await stream.write(Buffer.from('ne\nsecond line\nlast words'))
      const line = await stream.end({outcome: 'succeeded', exitCode: 0})
      assert.match(line, /^[^\n]+$/)
      const text = await received('last words')
      for (const part of ['first line', 'second line', 'last words'])
        assert.ok(text.includes(part), part)
    }),
  )

  test(
    `${name}: 20 MB without a newline arrive`,
    inSubject(async ({processor, received}) => {
      const stream = await processor.open({run: aRun(), config: {}})
      const chunk = Buffer.alloc(64 * 1024, 'x')
      for (let count = 0; count < 320; count++) await stream.write(chunk)
      await stream.write(Buffer.from('\nthe end\n'))
      await stream.end({outcome: 'succeeded', exitCode: 0})
      await received('the end')
    }),
  )

  test(
    `${name}: empty output succeeds`,
    inSubject(async ({processor}) => {
      const stream = await processor.open({run: aRun(), config: {}})
      assert.match(await stream.end({outcome: 'failed', exitCode: 1}), /^[^\n]+$/)
    }),
  )

  test(
    `${name}: concurrent runs do not mix`,
    inSubject(async ({processor, received}) => {
      const runs = ['1-web-1', '2-web-1', '3-web-1'].map((executionId) => aRun({executionId}))
      const streams = await Promise.all(runs.map((run) => processor.open({run, config: {}})))
      await Promise.all(
        streams.map((stream, index) => stream.write(Buffer.from(`I am ${index}\n`))),
      )
      const lines = await Promise.all(
        streams.map((stream) => stream.end({outcome: 'succeeded', exitCode: 0})),
      )
      assert.equal(lines.length, 3)
      for (const index of [0, 1, 2]) await received(`I am ${index}`)
    }),
  )

  test(
    `${name}: validates its parameters`,
    inSubject(async ({processor}) => {
      for (const config of [
        {},
        {forward: 'true'},
        {forward: 'false'},
        {forward: ''},
        {type: name},
      ]) {
        assert.deepEqual(processor.check(config), [], JSON.stringify(config))
      }
      assert.match(
        processor.check({forward: 'perhaps'})[0]!,
        /forward must be "true" or "false", not "perhaps"/,
      )
      assert.match(
        processor.check({colour: 'red'})[0]!,
        /has no parameter "colour"; its parameters are .*forward/,
      )
    }),
  )
}
