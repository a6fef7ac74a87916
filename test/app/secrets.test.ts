/** The key of secrets at the start of a server: made, found, or refused with the fix. */
import assert from 'node:assert/strict'
import {existsSync, mkdtempSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {openVault} from '../../src/app/secrets.ts'
import {SettingRefused} from '../../src/app/start-refused.ts'
import type {Config} from '../../src/config/server.ts'
import {createSecretKey} from '../../src/platform/secret-vault.ts'
import {openMemoryStore} from '../../src/store/sqlite/store.ts'
import {SeededRandom} from '../support/seeded-random.ts'
import {VirtualClock} from '../support/virtual-clock.ts'

const POSTGRES = {engine: 'postgres', url: 'postgres://db/x'} as const

function aServer(t: TestContext) {
  const dataDirectory = mkdtempSync(join(tmpdir(), 'belfry-key-'))
  const store = openMemoryStore({clock: new VirtualClock(), random: new SeededRandom()})
  t.after(async () => {
    await store.close()
    rmSync(dataDirectory, {recursive: true, force: true})
  })
  const warnings: string[] = []
  const settings = {secretKeyFile: null, dataDirectory, store: {engine: 'sqlite'}} as const
  const open = (over: Partial<Config> = {}) =>
    openVault({...settings, ...over} as unknown as Config, store, (text) => warnings.push(text))
  const set = async (vault: Awaited<ReturnType<typeof open>>) => {
    const sealed = await vault.seal('db', 'hunter2-hunter2')
    const may = {create: true, update: true}
    return sealed === null ? null : store.putSecret({name: 'db', ...sealed, may})
  }
  const refused = (over: Partial<Config>, why: RegExp) =>
    assert.rejects(
      open(over),
      (error) => error instanceof SettingRefused && why.test(error.message),
    )
  return {
    dataDirectory,
    warnings,
    own: join(dataDirectory, 'secret-key'),
    store,
    open,
    set,
    refused,
  }
}

test('with the embedded database, the first secret makes the key, which the next start finds', async (t) => {
  const {own, store, open, set} = aServer(t)
  const vault = await open()
  assert.ok(!existsSync(own))
  await set(vault)
  const again = await open()
  assert.equal(again.keyId, vault.keyId)
  const [sealed] = await store.sealedSecrets(['db'])
  assert.equal(again.open('db', sealed!.ciphertext), 'hunter2-hunter2')
})

test('a server with a missing or another key does not start on a store with secrets', async (t) => {
  const {dataDirectory, own, open, set, refused} = aServer(t)
  assert.equal(await set(await open({store: POSTGRES})), null)
  await set(await open())
  await refused({store: POSTGRES}, /this server has no key for them\. Set --secret-key-file/)
  const other = join(dataDirectory, 'other-key')
  await createSecretKey(other)
  await refused(
    {secretKeyFile: other},
    /encrypted with another key than that in \S+other-key\. Set/,
  )
  await open({store: POSTGRES, secretKeyFile: own})
  rmSync(own)
  await refused({}, /no key for them in \S+secret-key\. Set/)
})

test('a key file that cannot be used ends the start, and says how to make one', async (t) => {
  const {dataDirectory, refused} = aServer(t)
  const file = join(dataDirectory, 'key')
  await refused({secretKeyFile: file}, /key does not exist\. Set --secret-key-file [^]*urandom/)
  writeFileSync(file, 'x'.repeat(32), {mode: 0o644})
  await refused({secretKeyFile: file}, /can be read by other users; run chmod 600/)
  writeFileSync(join(dataDirectory, 'secret-key'), 'damaged', {mode: 0o600})
  await refused({}, /secret-key does not hold 32 bytes/)
})

test('a start with the option to do so deletes secrets whose key was lost', async (t) => {
  const {own, store, warnings, open, set, refused} = aServer(t)
  await set(await open())
  await open({discardSecrets: true})
  assert.equal((await store.secrets()).length, 1, 'the key fits')
  rmSync(own)
  await refused({}, /If it is lost, start once with --discard-secrets/)
  const vault = await open({discardSecrets: true})
  assert.match(warnings.join(), /secrets were deleted, [^]*: db$/)
  assert.deepEqual(await store.secrets(), [])
  assert.equal((await set(vault))?.kind, 'stored')
  await open()
})
