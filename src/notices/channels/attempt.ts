/**
 * An attempt to deliver a message: its deadlines, and what its errors mean. Errors are shown by fixed
 * sentences.
 */
import type {Delivery} from '../../core/notice-delivery.ts'
import {CONNECTION_ERRORS} from '../../platform/connection-errors.ts'
import {AddressDenied, type NetworkGuard} from '../../platform/network-guard.ts'
import type {Clock, Timer} from '../../ports/runtime.ts'

const CONNECT_MS = 5_000
const WHOLE_MS = 10_000

export interface SenderOptions {
  readonly clock: Clock
  /** Which addresses are allowed. */
  readonly addresses: NetworkGuard
  /** Certificates (PEM) to trust instead of those of Node; absent = those. */
  readonly roots?: string
}

/** Ends an attempt with an outcome. */
class AttemptEnded extends Error {
  override readonly name = 'AttemptEnded'
  readonly delivery: Delivery

  constructor(delivery: Delivery) {
    super(delivery.cause)
    this.delivery = delivery
  }
}

const ENDED = {
  connect: retry(`the receiver did not accept the connection within ${CONNECT_MS / 1000}s`),
  whole: retry(`the receiver did not answer within ${WHOLE_MS / 1000}s`),
  cancelled: retry('the attempt was cancelled'),
}

export interface Attempt extends SenderOptions {
  readonly signal: AbortSignal
  /** Cancel the timer once the connection is established. */
  startConnecting(): Timer
}

/** Runs one attempt within its deadlines. Never rejects. */
export async function runAttempt(
  options: SenderOptions,
  outer: AbortSignal,
  send: (attempt: Attempt) => Promise<Delivery>,
): Promise<Delivery> {
  const aborter = new AbortController()
  const end = (delivery: Delivery) => () => aborter.abort(new AttemptEnded(delivery))
  const cancel = end(ENDED.cancelled)
  outer.addEventListener('abort', cancel, {once: true})
  if (outer.aborted) cancel()
  const whole = options.clock.after(WHOLE_MS, end(ENDED.whole))
  const startConnecting = () => options.clock.after(CONNECT_MS, end(ENDED.connect))
  try {
    aborter.signal.throwIfAborted()
    return await send({...options, signal: aborter.signal, startConnecting})
  } catch (error) {
    const reason: unknown = aborter.signal.reason
    return reason instanceof AttemptEnded ? reason.delivery : deliveryOf(error)
  } finally {
    whole.cancel()
    outer.removeEventListener('abort', cancel)
  }
}

const DENIED =
  'the address of the receiver is not allowed: ' +
  'it is link-local, a cloud metadata service, or denied by --net-deny'
const UNTRUSTED = 'the certificate of the receiver is not valid for it, or not trusted'

/** Codes of OpenSSL and Node for certificates. */
const CERTIFICATE_ERROR =
  /^(CERT_|CRL_|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|ERR_TLS_CERT_|HOSTNAME_|INVALID_)/

/** Meaning of an error of a connection, by its class and code: its message may have parts of a URL. */
export function deliveryOf(error: unknown): Delivery {
  if (error instanceof AddressDenied) return {outcome: 'permanent', cause: DENIED}
  // All addresses of the host failed: report the first.
  if (error instanceof AggregateError && error.errors.length > 0) return deliveryOf(error.errors[0])
  if (!(error instanceof Error)) return retry('the request failed')
  if (error.cause instanceof AddressDenied) return deliveryOf(error.cause)
  return deliveryOfCode((error as NodeJS.ErrnoException).code)
}

/** The code of a system error, or of one of TLS. */
export function deliveryOfCode(code = ''): Delivery {
  if (CERTIFICATE_ERROR.test(code)) return retry(UNTRUSTED)
  return retry(CONNECTION_ERRORS[code] ?? 'the connection failed')
}

export function retry(cause: string): Delivery {
  return {outcome: 'retry', cause}
}

export function permanent(cause: string): Delivery {
  return {outcome: 'permanent', cause}
}
