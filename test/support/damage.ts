/** Damages a store on disk, as a failing disk does: the start does not notice, a later read does. */
import {closeSync, openSync, writeSync} from 'node:fs'
import {DatabaseSync} from 'node:sqlite'

/** Overwrites the root page of a table or index. `file` must be closed. */
export function overwriteRoot(file: string, name: 'policies' | 'job_metadata_key'): void {
  const database = new DatabaseSync(file)
  const [{rootpage}] = database
    .prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?')
    .all(name) as [{rootpage: number}]
  const {page_size: size} = database.prepare('PRAGMA page_size').get() as {page_size: number}
  database.close()
  const descriptor = openSync(file, 'r+')
  writeSync(descriptor, Buffer.alloc(size, 0xff), 0, size, (rootpage - 1) * size)
  closeSync(descriptor)
}
