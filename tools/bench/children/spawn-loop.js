/**
 * The plain spawn loop: `true`, started and awaited by child_process again and again, so many at a
 * time. No scheduler. Plain JavaScript, because the machinery that strips types takes memory, and a
 * process that forks pays for all it has: about a fifth more for each start, which would flatter
 * whoever is compared with it.
 */
import {spawn} from 'node:child_process'

/**
 * Answers how many were started and ended in about `ms`. `stdio` is `pipe`, as child_process comes, or
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

// The other end is `Link` in ../link.ts.
process.on('message', ({id, input}) => {
  run(input).then(
    (result) => process.send({id, result}),
    (error) => process.send({id, problem: String(error)}),
  )
})
process.once('disconnect', () => process.exit(0))
