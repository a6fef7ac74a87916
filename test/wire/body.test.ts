/** Bodies with a few fields: the error names every fault by field, without its value. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {decodeBody} from '../../src/wire/body.ts'
import {NewPause} from '../../src/wire/firing.ts'
import {NewSettings} from '../../src/wire/settings.ts'

const bytes = (text: string) => new TextEncoder().encode(text)

describe('a body with a few fields', () => {
  it('names all faults, and repeats no value', () => {
    const body = bytes('{"jbos": "hidden-1", "until": 7, "reason": {"x": "hidden-2"}}')
    assert.throws(
      () => decodeBody(NewPause, body, 'The pause is invalid'),
      ({code, message}: {code: string; message: string}) => {
        assert.equal(code, 'body_invalid')
        assert.match(message, /^The pause is invalid: jbos: is no field here\. Use jobs, until, /)
        assert.match(message, /; until: must be a string; reason: must be a string of at most /)
        assert.doesNotMatch(message, /hidden/)
        return true
      },
    )
  })

  it('may be empty unless a field is required', () => {
    assert.deepEqual(decodeBody(NewPause, bytes(''), 'The pause is invalid'), {})
    for (const body of ['', '{}', '{"timezone": null}'])
      assert.throws(() => decodeBody(NewSettings, bytes(body), 'No'), {
        message: 'No: timezone: is missing. Send {"timezone":"Europe/Berlin"}.',
      })
  })
})
