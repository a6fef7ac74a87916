/**
 * A command's standard input. It may hold a secret, so it never touches a disk: on Linux it is a nameless
 * file in memory, which a command can also open again as /dev/stdin; elsewhere a pipe that is filled as it
 * is read.
 */
import {randomUUID} from 'node:crypto'
import {closeSync, constants, fchownSync, openSync, unlinkSync, writeSync} from 'node:fs'
import {Socket} from 'node:net'

import type {OutputPipes} from './pipes.ts'
import type {Account} from './user-lookup.ts'

/** The system's directory in memory on Linux. */
const MEMORY_DIRECTORY = '/dev/shm'

const CREATE = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW

export interface Payload {
  /** What the command gets as standard input. */
  readonly reader: number
  /** Call once the command has it, or never will. */
  release(): void
}

export async function openPayload(
  bytes: Buffer,
  account: Account | null,
  pipes: OutputPipes,
): Promise<Payload> {
  return openInMemory(bytes, account) ?? openAsPipe(bytes, pipes)
}

/** `null` where there is no such directory, or no room in it. */
function openInMemory(bytes: Buffer, account: Account | null): Payload | null {
  if (process.platform !== 'linux') return null
  const path = `${MEMORY_DIRECTORY}/belfry-${randomUUID()}`
  let writer: number | null = null
  let reader: number | null = null
  try {
    writer = openSync(path, CREATE, 0o600)
    reader = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW)
    if (account !== null) fchownSync(writer, account.uid, account.gid)
    for (let offset = 0; offset < bytes.length;) offset += writeSync(writer, bytes, offset)
    const given = reader
    return {reader: given, release: () => closeSync(given)}
  } catch {
    if (reader !== null) closeSync(reader)
    return null // then by pipe, which needs nothing of the sort
  } finally {
    if (writer !== null) {
      unlinkSync(path)
      closeSync(writer)
    }
  }
}

/** A command that does not care to read is no failure. */
async function openAsPipe(bytes: Buffer, pipes: OutputPipes): Promise<Payload> {
  const {reader, writer} = await pipes.takeInput()
  const release = (): void => {
    closeSync(reader)
    const socket = new Socket({fd: writer, readable: false, writable: true})
    socket.on('error', () => socket.destroy())
    socket.end(bytes)
    socket.unref()
  }
  return {reader, release}
}
