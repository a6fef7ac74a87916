/** The one place that sends signals: to a process, or to a group by its negative number. */

/** True when there was someone to send it to. */
export function send(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    return process.kill(pid, signal)
  } catch (error) {
    const {code} = error as NodeJS.ErrnoException
    // EPERM: there, but no longer ours to end (it changed its user).
    if (code === 'ESRCH' || code === 'EPERM') return false
    throw error
  }
}
