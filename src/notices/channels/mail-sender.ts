/**
 * Sends mails of channels over SMTP. The connection is opened and checked here, and given to the
 * library: it resolves no names, reads no files and opens no URLs.
 */
import {type Delivery, judgeSmtp} from '../../core/notice-delivery.ts'
import {isLoopback} from '../../platform/network-guard.ts'
import {type Attempt, deliveryOfCode, permanent} from './attempt.ts'
import type {Mail, MailServer} from './kind.ts'

const NO_RECIPIENT =
  'no recipient: no owner of these jobs has an address that allow_recipients allows'
const NO_TLS = 'the mail server offers no TLS, which is needed for every host but this one'

/** Imported by the first mail. */
const nodemailer = () => import('nodemailer')

/**
 * Sends one after the other. Recipients that are refused are counted, and the message is sent if one is
 * accepted: another attempt would send it to the others again. Any other error ends the attempt, so a wrong
 * password is tried once. Rejects if there is no answer.
 */
export async function sendMails(
  server: MailServer,
  mails: readonly Mail[],
  attempt: Attempt,
): Promise<Delivery> {
  let refusal = permanent(NO_RECIPIENT)
  let refused = 0
  for (const mail of mails) {
    const result = await sendMail(server, mail, attempt)
    refused += result.refused
    if (result.delivery.outcome === 'sent') continue
    refusal = result.delivery
    if (result.refused === 0) return refusal
  }
  const recipients = mails.flatMap(({to}) => to).length
  if (refused === recipients) return refusal
  const {outcome, cause} = judgeSmtp(250)
  const missed = `${refused} of ${recipients} recipients`
  return {outcome, cause: refused === 0 ? cause : `${cause}, but not for ${missed}`}
}

interface MailResult {
  readonly delivery: Delivery
  /** Number of recipients that the server refused for good. */
  readonly refused: number
}

async function sendMail(server: MailServer, mail: Mail, attempt: Attempt): Promise<MailResult> {
  const transport = await openTransport(server, attempt)
  try {
    const {rejected} = await transport.sendMail({
      from: {name: 'Belfry', address: mail.from},
      to: mail.to.map((address) => ({name: '', address})),
      subject: mail.subject,
      messageId: mail.messageId,
      references: [...mail.references],
      ...(mail.references.length === 0 ? {} : {inReplyTo: mail.references[0]!}),
      headers: {'Auto-Submitted': 'auto-generated'},
      text: mail.text,
      html: mail.html,
      disableFileAccess: true,
      disableUrlAccess: true,
      signal: attempt.signal,
    })
    return {delivery: judgeSmtp(250), refused: rejected.length}
  } catch (error) {
    attempt.signal.throwIfAborted()
    const delivery = smtpDeliveryOf(error)
    const isRefusal = delivery.outcome === 'permanent' && (error as SmtpError).code === 'EENVELOPE'
    return {delivery, refused: isRefusal ? mail.to.length : 0}
  } finally {
    transport.close()
  }
}

async function openTransport(server: MailServer, attempt: Attempt) {
  const {createTransport} = await nodemailer()
  const timer = attempt.startConnecting()
  const {host, port, isSecure, user, password} = server
  const connection = await attempt.addresses
    .connect(host, port, attempt.signal)
    .finally(() => timer.cancel())
  const isHere = isLoopback(connection.remoteAddress ?? '')
  return createTransport({
    host,
    port,
    secure: isSecure,
    requireTLS: !isSecure && !isHere,
    tls: {
      // A mail server of this machine often has a certificate of its own making.
      rejectUnauthorized: isSecure || !isHere,
      ...(attempt.roots === undefined ? {} : {ca: attempt.roots}),
    },
    ...(user === '' ? {} : {auth: {user, pass: password}}),
    // The library would wait for a connection that ended meanwhile.
    getSocket: (_options, callback) =>
      connection.destroyed ? callback(new Error('closed')) : callback(null, {connection}),
    disableFileAccess: true,
    disableUrlAccess: true,
  })
}

interface SmtpError {
  /** Code of the library. */
  readonly code?: string
  /** Code of the system, or of TLS. */
  readonly originalCode?: string
  /** First number of the answer of the mail server. */
  readonly responseCode?: number
}

/** The message of the error may have parts of the answer. */
function smtpDeliveryOf(error: unknown): Delivery {
  const {code, originalCode, responseCode} = error as SmtpError
  if (code === 'ETLS' && responseCode !== undefined) return permanent(NO_TLS)
  return responseCode === undefined ? deliveryOfCode(originalCode) : judgeSmtp(responseCode)
}
