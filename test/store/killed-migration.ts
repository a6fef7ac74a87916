/** Kills itself before the commit of a migration. Argument: the data directory. */
import {storeFiles} from '../../src/store/sqlite/files.ts'
import {Connection} from '../../src/store/sqlite/connection.ts'
import {prepareSchema} from '../../src/store/sqlite/schema.ts'
import {endsDuring} from './next-release.ts'

const connection = new Connection(storeFiles(process.argv[2]!).database, {readOnly: false})
connection.database.function('die', () => process.kill(process.pid, 'SIGKILL') as never)
const fresh = {clusterId: 'c', incarnation: 'i'}
prepareSchema(connection, {fresh, check: false, now: 0, migrations: endsDuring('SELECT die()')})
