/** Waits by a clock, so that tests need not. */
export function pause(
  clock: {after(delayMs: number, callback: () => void): unknown},
  delayMs: number,
): Promise<void> {
  return new Promise((resolve) => void clock.after(delayMs, resolve))
}
