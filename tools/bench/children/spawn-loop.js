/**
 * The plain spawn loop: starts `true` with child_process again and again, a fixed number at a time, without
 * a scheduler. Plain JavaScript, because type stripping takes memory and the cost of fork grows with
 * memory: about a fifth more for each start, which would make the measured server look better than it is.
 */
import {spawn} from 'node:child_process'

/**
 * Processes started and finished in about `ms`. `stdio` is `pipe`, the default of child_process, or
 * `ignore`.
 * @param {{parallel: number, ms: number, stdio: 'pipe' | 'ignore'}} input
 */
async function run({parallel, ms, stdio}) {
  const beganAt = performance.now()
  let count = 0
  const lane = async () => {
    while (performance.now() - beganAt < ms) {
      await runTrue(stdio)
      count += 1
    }
  }
  await Promise.all(Array.from({length: parallel}, lane))
  return {count, perSecond: (count * 1000) / (performance.now() - beganAt)}
}

/** @param {'pipe' | 'ignore'} stdio */
function runTrue(stdio) {
  return new Promise((resolve, reject) => {
    const child = spawn('true', {stdio})
    child.once('error', reject)
    child.once('close', resolve)
  })
}

// The peer is `Link` in ../link.ts.
process.on('message', ({id, input}) => {
  run(input).then(
    (result) => process.send({id, result}),
    (error) => process.send({id, problem: String(error)}),
  )
})
process.once('disconnect', () => process.exit(0))
