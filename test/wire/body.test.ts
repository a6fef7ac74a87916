/** Bodies with a few fields: the error names every fault by field, without its value. */
import assert from 'node:assert/strict'
import {describe, it} from 'node:test'
import {decodeBody} from '../../src/wire/body.ts'
import {NewPause} from '../../src/wire/firing.ts'
import {decodePolicy} from '../../src/wire/policy.ts'
import {decodeSecret} from '../../src/wire/secret.ts'
import {NewSettings} from '../../src/wire/settings.ts'

/** Bodies of a secret that are refused, each with the code and the text of its error. */
const SECRETS: readonly (readonly [body: string, code: string, message: RegExp])[] = [
  [
    '{"hidden',
    'payload_unparsable',
    /^Unable to parse payload: the body must be JSON\. Send \{"va/,
  ],
  ['hidden', 'payload_unparsable', /the body must be JSON\. Send \{"value":"\.\.\."\}$/],
  ['{"hidden": "\\u0000"}', 'secret_invalid', /^The secret cannot be set: the body contains a cha/],
  ['{"__proto__": "hidden"}', 'secret_invalid', /a character or a name that is not allowed\.$/],
  [
    '{"hidden": 1}',
    'secret_invalid',
    /: unknown field; the fields are value; value: is missing\. S/,
  ],
  ['"hidden"', 'secret_invalid', /: the body must be a JSON object with value\.$/],
  ['{"value": ["hidden"]}', 'secret_invalid', /: value: must be a string\.$/],
]

const bytes = (text: string) => new TextEncoder().encode(text)

describe('a body with a few fields', () => {
  it('names all faults, and repeats no value', () => {
    const body = bytes('{"jbos": "hidden-1", "until": 7, "reason": {"x": "hidden-2"}}')
    assert.throws(
      () => decodeBody(NewPause, body, 'The pause is invalid'),
      ({code, message}: {code: string; message: string}) => {
        assert.equal(code, 'body_invalid')
        assert.match(
          message,
          /^The pause is invalid: unknown field "jbos"; the fields are jobs, until, /,
        )
        assert.match(
          message,
          /; until: must be a time such as "[^"]+", or a duration such as "2h"; reason: must be a string of /,
        )
        assert.doesNotMatch(message, /hidden/)
        return true
      },
    )
  })

  it('names the field that an unknown one probably means', () => {
    const read = (body: string) => decodeBody(NewPause, bytes(body), 'The pause is invalid')
    assert.throws(() => read('{"reasn": ""}'), {
      message: 'The pause is invalid: unknown field "reasn"; did you mean "reason"?',
    })
  })

  it('names the rule of a field that JSON Schema cannot express', () => {
    const read = (body: string) => decodeBody(NewPause, bytes(body), 'The pause is invalid')
    assert.throws(() => read('{"jobs": "a b", "reason": "two\\nlines"}'), {
      message:
        'The pause is invalid: jobs: must be a name of a job, in which * is any text, such as "backup-*"; ' +
        'reason: must be a text on one line.',
    })
  })

  it('may be empty unless a field is required', () => {
    assert.deepEqual(decodeBody(NewPause, bytes(''), 'The pause is invalid'), {})
    for (const body of ['', '{}', '{"timezone": null}'])
      assert.throws(() => decodeBody(NewSettings, bytes(body), 'No'), {
        message: 'No: timezone: is missing. Send {"timezone":"Europe/Berlin"}.',
      })
  })
})

describe('the body of a secret', () => {
  it('is repeated by no error: no value, no name, no text of the parser', () => {
    for (const [body, code, pattern] of SECRETS)
      assert.throws(
        () => decodeSecret(bytes(body)),
        (error: {code: string; message: string}) => {
          assert.equal(error.code, code, body)
          assert.match(error.message, pattern)
          assert.doesNotMatch(error.message, /hidden/)
          return true
        },
      )
  })
})

describe('the body of a policy', () => {
  it('is the rules, or names them, and may have fields of other servers', () => {
    assert.equal(decodePolicy(bytes(''), 'ops'), '')
    assert.equal(decodePolicy(bytes(' {"path": {}}\n'), 'ops'), '{"path": {}}')
    assert.equal(decodePolicy(bytes('{"ID": "1", "Name": "", "Rules": "r"}'), 'ops'), 'r')
  })

  it('has all its faults in one error', () => {
    assert.throws(() => decodePolicy(bytes('{"Name": "dev", "Rules": 7}'), 'ops'), {
      code: 'policy_invalid',
      message:
        'The policy cannot be stored: Rules: must be a string; Name: must be "ops", as in the path, or be ' +
        'left out.',
    })
  })
})
