/** The vault: encryption bound to key and name, and which key files are accepted. */
import assert from 'node:assert/strict'
import {randomBytes} from 'node:crypto'
import {chmodSync, mkdtempSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {test, type TestContext} from 'node:test'
import {createSecretKey, readSecretKey, SecretVault} from '../../src/platform/secret-vault.ts'

const VALUE = 'correct horse\nbattery stäple'

function directory(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), 'belfry-vault-'))
  t.after(() => rmSync(path, {recursive: true, force: true}))
  return path
}

test('a value is decrypted only with its key, under its name, and unchanged', async () => {
  const vault = new SecretVault(randomBytes(32), null)
  const sealed = await vault.seal('db', VALUE)
  assert.ok(sealed !== null)
  const {ciphertext, keyId} = sealed
  assert.equal(keyId, vault.keyId)
  assert.equal(vault.open('db', ciphertext), VALUE)
  assert.equal(vault.open('other', ciphertext), null)
  assert.equal(new SecretVault(randomBytes(32), null).open('db', ciphertext), null)
  assert.equal(new SecretVault(null, null).open('db', ciphertext), null)
  for (const changed of ['', 'v1.', `v2${ciphertext.slice(2)}`, ciphertext.slice(0, -4)])
    assert.equal(vault.open('db', changed), null)
  const at = ciphertext.length - 30
  const flipped = ciphertext[at] === 'A' ? 'B' : 'A'
  assert.equal(vault.open('db', ciphertext.slice(0, at) + flipped + ciphertext.slice(at + 1)), null)
})

test('the same value has another ciphertext each time', async () => {
  const vault = new SecretVault(randomBytes(32), null)
  const [one, other] = [await vault.seal('db', VALUE), await vault.seal('db', VALUE)]
  assert.notEqual(one?.ciphertext, other?.ciphertext)
})

test('without a key nothing is encrypted; a key that may be made is made once', async () => {
  assert.equal(await new SecretVault(null, null).seal('db', VALUE), null)
  let made = 0
  const vault = new SecretVault(null, async () => {
    made += 1
    return randomBytes(32)
  })
  assert.equal(vault.keyId, null)
  const sealed = await vault.seal('db', VALUE)
  assert.equal(vault.open('db', sealed!.ciphertext), VALUE)
  await vault.seal('db', VALUE)
  assert.equal(made, 1)
})

test('a key file has 32 bytes or their base64, and only its user can read it', async (t) => {
  const file = join(directory(t), 'key')
  const problem = () => {
    const read = readSecretKey(file)
    return read.ok ? '' : read.problem
  }
  assert.equal(problem(), 'does not exist')
  const key = randomBytes(32)
  for (const content of [key, key.toString('base64'), `${key.toString('base64')}\n`]) {
    writeFileSync(file, content, {mode: 0o600})
    const read = readSecretKey(file)
    assert.ok(read.ok)
    assert.deepEqual(Buffer.from(read.key), key)
  }
  for (const mode of [0o640, 0o604, 0o602, 0o644]) {
    chmodSync(file, mode)
    assert.match(problem(), /other users; run chmod 600/, mode.toString(8))
  }
  chmodSync(file, 0o600)
  for (const content of ['', randomBytes(31), randomBytes(33), key.toString('base64').slice(1)]) {
    writeFileSync(file, content)
    assert.match(problem(), /does not hold 32 bytes/)
  }
})

test('a key file that is made is readable by its user, and never replaced', async (t) => {
  const file = join(directory(t), 'key')
  await createSecretKey(file)
  assert.equal(statSync(file).mode & 0o777, 0o600)
  const made = readSecretKey(file)
  assert.ok(made.ok)
  await createSecretKey(file)
  assert.deepEqual(readSecretKey(file), made)
})
