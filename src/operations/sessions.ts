/**
 * Sessions of browsers: opened with a token, ended by signing out, by a time without use, or with the token.
 * The secret of a session is in the reply that opens it and in the browser, and nowhere else.
 */
import type {Actor} from '../core/audit.ts'
import type {Principal} from '../core/access/authorization.ts'
import {DomainError} from '../core/errors.ts'
import {TokenBuckets} from '../lib/token-buckets.ts'
import type {Identity, SessionOwner, TokenRecord} from '../ports/token-store.ts'
import {digestOf} from '../identity/token-cache.ts'
import type {OperationsContext} from './context.ts'
import {SECRET_PREFIX} from '../core/access/agent-token.ts'

/** Sign-ins of an owner on one server. Each is a write, and a row of the audit log. */
export const SIGN_INS_PER_MINUTE = 30

export interface OpenedSession {
  readonly identity: Identity
  /** Secret that the browser keeps. */
  readonly secret: string
  /** Policies of a person that are not stored, and so grant nothing. */
  readonly missingPolicies: readonly string[]
}

export function createSessions({store, random, clock, access, settings}: OperationsContext) {
  const signIns = new TokenBuckets(() => clock.monotonicMs(), SIGN_INS_PER_MINUTE)

  /** Sessions that have not expired, the oldest first. */
  function sessions(): Promise<readonly TokenRecord[]> {
    return store.sessions()
  }

  function whoAmI(caller: Principal): Identity {
    return {principal: caller, ...access.expiryOf(caller)}
  }

  /** A session of the token that the caller sent. Throws `session_refused`, `too_many_sessions`. */
  async function signIn(caller: Principal, actor: Actor): Promise<OpenedSession> {
    const owner = access.sessionOwner(caller)
    if (owner === null)
      throw refused('send a token in the header X-Service-Token. Without any token, none is needed')
    return openSession(owner, actor)
  }

  /** Throws `session_refused`, `too_many_sessions`. */
  async function openSession(owner: SessionOwner, actor: Actor): Promise<OpenedSession> {
    const retryAfterSeconds = signIns.take(owner.kind === 'token' ? owner.accessor : owner.name)
    if (retryAfterSeconds > 0) throw tooManySignIns(retryAfterSeconds)
    const secret = `${SECRET_PREFIX}${random.id()}${random.id()}`
    const {sessionIdleMs: idleMs, sessionMaxMs: maxMs} = settings
    const created = {accessor: random.id(), digest: digestOf(secret), owner, idleMs, maxMs}
    const session = await store.createSession(created, actor)
    if (session === null) throw refused('the token was revoked')
    await access.changed()
    const principal = access.principal(session.accessor)
    if (principal === null) throw refused('the store did not answer in time. Try again')
    const policies = owner.kind === 'other' ? owner.token.policies : []
    return {
      identity: whoAmI(principal),
      secret,
      missingPolicies: access.missingPolicies(policies),
    }
  }

  /** Throws `session_unknown`: a token is revoked instead. */
  async function signOut(caller: Principal, actor: Actor): Promise<Identity> {
    if (!caller.isSession)
      throw new DomainError(
        'session_unknown',
        'There is no session to end: the request was not sent with the cookie of one.',
      )
    const identity = whoAmI(caller)
    await store.deleteToken(caller.accessor, actor)
    await access.changed()
    return identity
  }

  return {sessions, whoAmI, signIn, openSession, signOut}
}

function tooManySignIns(retryAfterSeconds: number): DomainError {
  return new DomainError(
    'too_many_sessions',
    `A session cannot be opened: there were more than ${SIGN_INS_PER_MINUTE} sign-ins in a minute. Use ` +
      'the session that was opened, or retry later.',
    {retryAfterSeconds},
  )
}

function refused(why: string): DomainError {
  return new DomainError('session_refused', `A session cannot be opened: ${why}.`)
}
