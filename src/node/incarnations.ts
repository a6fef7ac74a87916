/**
 * Record of the incarnations that ran on this data directory. All but the current one have ended, because one
 * process at a time owns the directory. A node that was killed names them when it joins and is back at once.
 * A process on a copy of the directory cannot: the original may be alive.
 *
 *   {"boot":"…","file":"2049:1311","incarnations":["…","…"]}
 *
 * The record proves nothing, and reads as empty:
 * - in a copy: the file is another one;
 * - after a reboot: a clone of the machine holds the same files. A rebooted node has been silent for longer
 *   than a member stays fresh;
 * - when it cannot be read or written.
 *
 * Crash points: written before the join, so the store never has an incarnation that is missing here. A crash
 * during the rewrite leaves the complete old file or the complete new one.
 */
import {closeSync, openSync, readFileSync, renameSync, writeSync} from 'node:fs'
import {join} from 'node:path'
import {fileIdentity, parseRecord} from '../platform/append-log.ts'
import {bootId} from '../platform/boot-id.ts'

const FILE = 'incarnations'
/** More than can start before a member that is silent is no longer fresh. */
export const INCARNATIONS_KEPT_MAX = 64

/**
 * Adds an incarnation and returns those before it. Call before it joins. The caller holds the lock of the
 * directory.
 */
export function recordIncarnation(directory: string, incarnation: string): readonly string[] {
  const path = join(directory, FILE)
  const ended = readRecord(path)
  try {
    writeRecord(path, [...ended, incarnation].slice(-INCARNATIONS_KEPT_MAX))
  } catch {
    // A full disk: the next start after a kill waits until this incarnation is no longer fresh.
  }
  return ended
}

function readRecord(path: string): string[] {
  let record: Record<string, unknown> | null
  let identity: string
  try {
    const file = openSync(path, 'r')
    try {
      identity = fileIdentity(file)
      record = parseRecord(readFileSync(file, 'utf8'))
    } finally {
      closeSync(file)
    }
  } catch {
    return [] // missing or unreadable: proves nothing
  }
  const {boot, file, incarnations} = record ?? {}
  if (boot !== bootId() || file !== identity || !Array.isArray(incarnations)) return []
  return incarnations.filter((each) => typeof each === 'string')
}

/** The file is not synced: a power cut is a reboot, after which the record proves nothing. */
function writeRecord(path: string, incarnations: readonly string[]): void {
  const draft = `${path}.new`
  const file = openSync(draft, 'w', 0o600)
  try {
    writeSync(file, JSON.stringify({boot: bootId(), file: fileIdentity(file), incarnations}))
  } finally {
    closeSync(file)
  }
  renameSync(draft, path)
}
