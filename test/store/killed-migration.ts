/** Kills itself when all of a migration but its commit is done. Argument: the data directory. */
import {storeFiles} from '../../src/store/sqlite/files.ts'
import {Connection} from '../../src/store/sqlite/connection.ts'
import {prepareSchema} from '../../src/store/sqlite/schema.ts'
import {diesAmid} from './next-release.ts'

const connection = new Connection(storeFiles(process.argv[2]!).database, {readOnly: false})
connection.database.function('die', () => process.kill(process.pid, 'SIGKILL') as never)
const fresh = {clusterId: 'c', incarnation: 'i'}
prepareSchema(connection, {fresh, check: false, now: 0, migrations: diesAmid('SELECT die()')})
