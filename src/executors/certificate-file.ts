/**
 * Reads the certificates and keys that a job names. A job may name any path, and a device or a pipe has no
 * end: only an ordinary file of a sensible size is read, and opening one never waits.
 */
import {constants} from 'node:fs'
import {open} from 'node:fs/promises'
import {ExchangeFailed} from './http-failures.ts'

/** Several times the certificates of all public authorities together. */
export const CERTIFICATE_BYTES_MAX = 4 * 1024 * 1024

/** The bytes of the file. Throws `ExchangeFailed`, or what the system said. */
export async function readCertificateFile(path: string): Promise<Buffer> {
  // Without NONBLOCK opening a pipe waits for somebody to write to it.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK)
  try {
    const facts = await file.stat()
    if (!facts.isFile()) throw new ExchangeFailed(`${path} is not an ordinary file`)
    if (facts.size > CERTIFICATE_BYTES_MAX)
      throw new ExchangeFailed(`${path} is larger than ${CERTIFICATE_BYTES_MAX} bytes`)
    const bytes = Buffer.alloc(facts.size)
    // One that is being shortened meanwhile ends early.
    const {bytesRead} = await file.read(bytes, 0, bytes.length, 0)
    return bytes.subarray(0, bytesRead)
  } finally {
    await file.close()
  }
}
