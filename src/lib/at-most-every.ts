/** Limits how often an action runs: calls within the interval after one that ran are dropped. */

export function atMostEvery<Input extends readonly unknown[]>(
  clock: {monotonicMs(): number},
  intervalMs: number,
  action: (...input: Input) => void,
): (...input: Input) => void {
  let lastAt = -Infinity
  return (...input) => {
    const now = clock.monotonicMs()
    if (now - lastAt < intervalMs) return
    lastAt = now
    action(...input)
  }
}
