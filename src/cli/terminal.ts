/**
 * What a command may do to the world in front of it: write, ask for input, know whether anyone looks. Given
 * by the entry, so that commands can be tried without a process.
 */
import type {Readable} from 'node:stream'
import {styleText} from 'node:util'

export interface Terminal {
  /** To standard output, as it is. */
  out(text: string): void
  /** Resolves when more may come. */
  outBytes(bytes: Uint8Array): Promise<void>
  /** To standard error. */
  err(text: string): void
  /** Standard input. */
  input(): Readable
  /** A person reads standard output, and wants colours. */
  readonly colours: boolean
  /** A person reads standard error: progress may be drawn there. */
  readonly progress: boolean
}

/** What a word means, rather than its colour. */
export type Tone = 'good' | 'bad' | 'busy' | 'faint' | 'strong'

const STYLES = {
  good: 'green',
  bad: 'red',
  busy: 'yellow',
  faint: 'dim',
  strong: 'bold',
} as const satisfies Record<Tone, Parameters<typeof styleText>[0]>

export function toned(terminal: Pick<Terminal, 'colours'>, tone: Tone, text: string): string {
  return terminal.colours ? styleText(STYLES[tone], text, {validateStream: false}) : text
}

const TONES: Readonly<Record<string, Tone>> = {
  success: 'good',
  succeeded: 'good',
  alive: 'good',
  launched: 'good',
  failed: 'bad',
  partially_failed: 'bad',
  timed_out: 'bad',
  lost: 'bad',
  missed: 'bad',
  running: 'busy',
  pending: 'busy',
  leaving: 'busy',
  cancelled: 'faint',
  skipped: 'faint',
  disabled: 'faint',
  left: 'faint',
}

/** A status in the colour of what it means. */
export function status(terminal: Pick<Terminal, 'colours'>, word: string): string {
  const tone = TONES[word]
  return tone === undefined ? word : toned(terminal, tone, word)
}
