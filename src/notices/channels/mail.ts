/** Channel `mail`: mails over SMTP. Owners of jobs get only what is about their jobs. */
import {createHash} from 'node:crypto'
import {Type} from 'typebox'
import {matchesText} from '../../core/access/glob.ts'
import {OWNER} from '../../core/notice-channel.ts'
import type {NoticeIncident, NoticeMessage} from '../../core/notice-message.ts'
import {declareKind, type Mail, type MailServer, Text} from './kind.ts'
import {linesOf, moreOf, originOf, titleOf, withoutLinks} from './message-text.ts'

const RECIPIENTS_MAX = 50
/** Ports of mail servers: no other service of an internal network can be reached. */
const PORTS = [25, 465, 587, 2525]

/**
 * A plain address: no name, comment, quote or list, so that it cannot become another recipient or
 * header.
 */
const ADDRESS =
  /^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?$/

const PROTOCOL_PORTS: Readonly<Record<string, number>> = {'smtps:': 465, 'smtp:': 587}

const MailConfig = Type.Object({
  smtp: Text(
    'Mail server: `smtps://user@host` with TLS, `smtp://user@host` with STARTTLS. ' +
      'Ports 25, 465, 587 and 2525. Without TLS only to this machine.',
  ),
  password: Type.Optional(Text('Password of the user.')),
  from: Type.Optional(Text('Address of the sender; by default that of the user.')),
  to: Type.Array(Text('Address.'), {
    description: 'Addresses; `owner` = the owner of each job, who gets what is about it.',
    minItems: 1,
    maxItems: RECIPIENTS_MAX,
  }),
  allow_recipients: Type.Optional(
    Type.Array(Text('Address with `*`.'), {
      description: 'Addresses that owners may have, as `*@example.org`.',
      maxItems: RECIPIENTS_MAX,
    }),
  ),
})

export const mail = declareKind({
  name: 'mail',
  config: MailConfig,
  secretField: 'password',
  perIncident: false,
  problems: ({smtp, password = '', from, to, allow_recipients: allowed = []}) => {
    const server = readServer(smtp, password)
    if (typeof server === 'string') return [server]
    const sender = from ?? senderOf(server)
    const wrong = to.filter((each) => each !== OWNER && !ADDRESS.test(each))
    return [
      ...(ADDRESS.test(sender) ? [] : ['from must be one plain address, as ops@example.org']),
      ...(wrong.length === 0 ? [] : ['to must be plain addresses, as ops@example.org, or owner']),
      ...(to.includes(OWNER) && allowed.length === 0
        ? ['allow_recipients must be set for owner: anyone who edits a job names its owner']
        : []),
    ]
  },
  render: (config, message) => {
    const server = readServer(config.smtp, config.password ?? '') as MailServer // checked
    const from = config.from ?? senderOf(server)
    const fixed = config.to.filter((each) => each !== OWNER)
    const owners = config.to.includes(OWNER)
      ? incidentsByOwner(message, config.allow_recipients ?? [], fixed)
      : new Map<string, readonly NoticeIncident[]>()
    const mails = [...owners].map(([owner, incidents]) =>
      compose(forOwner(message, incidents), from, [owner], `.${digest(owner, 8)}`),
    )
    return {
      via: 'mail',
      server,
      // Fixed recipients got the number of further incidents with the first part.
      mails:
        fixed.length === 0 || message.part > 0
          ? mails
          : [compose(message, from, fixed, ''), ...mails],
    }
  },
})

/** Returns the server, or the problem as a text. */
function readServer(text: string, password: string): MailServer | string {
  const url = URL.parse(text)
  const usual = url === null ? undefined : PROTOCOL_PORTS[url.protocol]
  if (url === null || usual === undefined || url.hostname === '')
    return 'smtp must begin with smtps:// or smtp:// and name a host'
  if (!/^\/?$/.test(url.pathname) || url.search !== '' || url.hash !== '')
    return 'smtp must end with the host and port'
  if (url.password !== '') return 'smtp must not contain a password: set password'
  const port = url.port === '' ? usual : Number(url.port)
  if (!PORTS.includes(port)) return `smtp must use one of the ports ${PORTS.join(', ')}`
  const user = decoded(url.username)
  if (user === null) return 'smtp must percent-encode its user'
  if ((user === '') !== (password === '')) return 'smtp must name a user if password is set'
  const isSecure = url.protocol === 'smtps:'
  return {host: url.hostname.replace(/^\[|\]$/g, ''), port, isSecure, user, password}
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text)
  } catch {
    return null // a "%" that does not start an escape
  }
}

function senderOf({user, host}: MailServer): string {
  return user.includes('@') ? user : `${user || 'belfry'}@${host}`
}

/** Leaves out the addresses in `fixed`: they get the whole message. */
function incidentsByOwner(
  {incidents}: NoticeMessage,
  allowed: readonly string[],
  fixed: readonly string[],
): ReadonlyMap<string, readonly NoticeIncident[]> {
  const known = fixed.map((address) => address.toLowerCase())
  const byOwner = new Map<string, NoticeIncident[]>()
  for (const incident of incidents)
    for (const written of incident.ownerEmail.split(',')) {
      const address = written.trim()
      const lower = address.toLowerCase()
      const isAllowed =
        ADDRESS.test(address) && allowed.some((glob) => matchesText(glob.toLowerCase(), lower))
      if (!isAllowed || known.includes(lower)) continue
      const own = byOwner.get(address) ?? []
      if (!own.includes(incident)) byOwner.set(address, [...own, incident])
    }
  return byOwner
}

/** The message with only these incidents, and a new summary: the old one may name jobs of others. */
function forOwner(message: NoticeMessage, incidents: readonly NoticeIncident[]): NoticeMessage {
  if (incidents.length === message.incidents.length && message.more === 0) return message
  const [first = ''] = incidents.flatMap(linesOf)
  const others = incidents.length - 1
  const summary = others === 0 ? first : `${first} (and ${others} more)`
  return {...message, summary, incidents, more: 0}
}

function compose(
  message: NoticeMessage,
  from: string,
  to: readonly string[],
  suffix: string,
): Mail {
  const domain = from.slice(from.lastIndexOf('@') + 1)
  return {
    from,
    to,
    subject: titleOf(message),
    messageId: `<${message.id.replaceAll(/[^A-Za-z0-9_-]/g, '-')}${suffix}@${domain}>`,
    // No mail has the id of a thread: all mails of an incident refer to it, whichever arrives first.
    references: message.incidents.map(
      ({key, openedAt}) => `<${digest(`${message.cluster}/${key}/${openedAt}`, 32)}@${domain}>`,
    ),
    text: textOf(message),
    html: htmlOf(message),
  }
}

function digest(text: string, length: number): string {
  return createHash('sha256').update(text).digest('hex').slice(0, length)
}

function textOf(message: NoticeMessage): string {
  const parts = [
    titleOf(message),
    ...message.incidents.map((incident) => {
      const lines = [...linesOf(incident), incident.outputTail].filter((line) => line !== '')
      const text = withoutLinks(lines.join('\n'))
      return incident.url === '' ? text : `${text}\n${incident.url}`
    }),
    moreOf(message),
    `-- \n${originOf(message)}`,
  ]
  return parts.filter((part) => part !== '').join('\n\n')
}

function htmlOf(message: NoticeMessage): string {
  const parts = [
    `<p><strong>${escapeHtml(titleOf(message))}</strong></p>`,
    ...message.incidents.map(({outputTail, url, ...incident}) => {
      const lines = linesOf({...incident, outputTail, url})
        .map(escapeHtml)
        .join('<br>\n')
      const output = outputTail === '' ? '' : `\n<pre>${escapeHtml(outputTail)}</pre>`
      const link = url === '' ? '' : `\n<p><a href="${escapeAttribute(url)}">Open in Belfry</a></p>`
      return `<p>${lines}</p>${output}${link}`
    }),
    ...(message.more === 0 ? [] : [`<p>${moreOf(message)}</p>`]),
    `<p><small>${escapeHtml(originOf(message))}</small></p>`,
  ]
  return parts.join('\n')
}

function escapeHtml(text: string): string {
  return escapeAttribute(withoutLinks(text))
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

function escapeAttribute(text: string): string {
  return text.replaceAll(/[&<>"']/g, (sign) => ENTITIES[sign]!)
}
