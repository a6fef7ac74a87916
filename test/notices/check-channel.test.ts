/** Which configurations of channels are refused, and why. */
import assert from 'node:assert/strict'
import {test} from 'node:test'
import {checkChannel} from '../../src/notices/channels/deliver.ts'

const HOOK = 'https://hooks.example.org/x'
const SMTP = 'smtps://belfry%40example.org@smtp.example.org'
const KEY = `whsec_${Buffer.alloc(24).toString('base64')}`
const MAIL = {smtp: SMTP, password: '${secret:notice-mail}', to: ['ops@example.org']}

const VALID: readonly (readonly [kind: string, config: Record<string, unknown>])[] = [
  ['webhook', {url: HOOK}],
  ['webhook', {url: 'http://10.0.0.1:8080/x', secret: KEY, headers: ['X-A: ${secret:a}']}],
  ['webhook', {url: 'https://hooks.example.org/${secret:path}', secret: '${secret:notice-x}'}],
  ['webhook', {url: HOOK, template: '{"text": "{title}", "n": {attempt}}'}],
  ['slack', {url: '${secret:notice-slack}'}],
  ['discord', {url: HOOK}],
  ['teams', {url: 'http://localhost:8080/x'}],
  ['ntfy', {url: 'https://ntfy.sh/topic', token: '${secret:notice-ntfy}'}],
  ['pagerduty', {routing_key: '${secret:notice-pd}'}],
  ['ping', {url: 'https://hc-ping.com/key/{job}?create=1'}],
  ['ping', {url: '${secret:notice-ping}'}],
  ['ping', {url: 'https://hc-ping.com/uuid', cluster: true}],
  ['mail', MAIL],
  ['mail', {smtp: 'smtp://127.0.0.1:25', to: ['a@b', 'c@d']}],
  ['mail', {smtp: 'smtp://[::1]:2525', from: 'belfry@example.org', to: ['a@b']}],
  ['mail', {...MAIL, to: ['owner'], allow_recipients: ['*@example.org']}],
]

test('valid configurations have no problem', () => {
  for (const [kind, config] of VALID)
    assert.deepEqual(checkChannel(kind, config), [], JSON.stringify(config))
})

const INVALID: readonly (readonly [kind: string, config: unknown, problem: RegExp])[] = [
  ['exec', {}, /^kind must be one of webhook, mail/],
  ['webhook', [], /^config must be a JSON object/],
  ['webhook', {}, /^url: is missing/],
  ['webhook', {url: 5}, /^url: must be a string/],
  ['webhook', {url: HOOK, secrte: KEY}, /^unknown field "secrte"/],
  ['webhook', {url: 'ftp://example.org'}, /^url must be an absolute URL/],
  ['webhook', {url: 'https://a:b@example.org'}, /^url must not contain a user/],
  ['webhook', {url: HOOK, secret: 'whsec_c2hvcnQ='}, /^secret must be whsec_/],
  ['webhook', {url: HOOK, secret: KEY.slice(6)}, /^secret must be whsec_/],
  ['webhook', {url: HOOK, headers: ['Host: x']}, /^headers cannot set Host/],
  ['webhook', {url: HOOK, headers: ['Webhook-Id: x']}, /^headers cannot set Webhook-Id/],
  ['webhook', {url: HOOK, headers: ['Content-Length: 1']}, /^headers cannot set Content-Length/],
  ['webhook', {url: HOOK, headers: ['X-A: b\r\nX-C: d']}, /contains a character that headers/],
  ['webhook', {url: HOOK, headers: ['nothing']}, /^headers must be "Name: value"/],
  ['webhook', {url: HOOK, headers: 'X-A: b'}, /^headers: must be a list/],
  [
    'webhook',
    {url: HOOK, template: '{"a": "{constructor}"}'},
    /^template must not name \{constructor\}/,
  ],
  ['webhook', {url: HOOK, template: '{"a": {summary}}'}, /^template must be JSON/],
  ['webhook', {url: HOOK, template: '{"a": "${secret:x}"}'}, /^template cannot name a secret/],
  ['slack', {url: 'http://hooks.example.org/x'}, /^url must begin with https/],
  ['ntfy', {url: 'http://ntfy.example.org/x', token: 't'}, /^url must begin with https/],
  ['ntfy', {url: HOOK, token: 'a b'}, /^token must be one word/],
  ['pagerduty', {routing_key: 'a\nb'}, /^routing_key must be one word/],
  ['pagerduty', {routing_key: 'a', url: 'http://example.org'}, /^url must begin with https/],
  ['ping', {url: 'hc-ping.com/x'}, /^url must be an absolute URL/],
  ['ping', {url: 'https://hc-ping.com/k/{job}', cluster: true}, /^url cannot have \{job\} if/],
  ['mail', {...MAIL, smtp: 'https://example.org'}, /^smtp must begin with smtps/],
  ['mail', {...MAIL, smtp: 'smtp://'}, /^smtp must begin with smtps/],
  ['mail', {...MAIL, smtp: 'smtps://a@example.org:6379'}, /^smtp must use one of the ports/],
  ['mail', {...MAIL, smtp: 'smtps://a:b@example.org'}, /^smtp must not contain a password/],
  ['mail', {...MAIL, smtp: 'smtps://a@example.org/x'}, /^smtp must end with the host/],
  ['mail', {...MAIL, smtp: 'smtps://%ff@example.org'}, /^smtp must percent-encode/],
  ['mail', {...MAIL, smtp: 'smtps://example.org'}, /^smtp must name a user/],
  ['mail', {smtp: SMTP, to: ['a@b']}, /^smtp must name a user if password is set/],
  ['mail', {...MAIL, from: 'Belfry <a@b>'}, /^from must be one plain address/],
  ['mail', {...MAIL, to: []}, /^to: must be a list/],
  ['mail', {...MAIL, to: ['a@b, c@d']}, /^to must be plain addresses/],
  ['mail', {...MAIL, to: ['a@b\r\nBcc: c@d']}, /^to must be plain addresses/],
  ['mail', {...MAIL, to: ['"a@b x"@c']}, /^to must be plain addresses/],
  ['mail', {...MAIL, to: ['owner']}, /^allow_recipients must be set/],
]

test('an invalid configuration is refused with the field and the cause', () => {
  for (const [kind, config, problem] of INVALID)
    assert.match(checkChannel(kind, config).join('; '), problem, JSON.stringify(config))
})
