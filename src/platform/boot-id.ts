/**
 * Id of the current boot, from the kernel. A pid or a file written before a reboot proves nothing about the
 * processes of now, so the journals on disk carry it.
 */
import {readFileSync} from 'node:fs'

/** `''` where the system has none (anything but Linux). */
export function bootId(): string {
  if (process.platform !== 'linux') return ''
  return readFileSync('/proc/sys/kernel/random/boot_id', 'latin1').trim()
}
