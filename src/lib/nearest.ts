/** The known word that a misspelt one probably means. */

/** The word with the smallest edit distance; `''` when there are no words. */
export function nearest(text: string, words: readonly string[]): string {
  return words.toSorted((one, other) => distance(text, one) - distance(text, other))[0] ?? ''
}

/** Words this much longer than every known one are no slip of the hand; comparing them costs time. */
const TEXT_LENGTH_MAX = 64

/** The word that was meant; `''` when the nearest word is no misspelling of it. */
export function meantBy(text: string, words: readonly string[]): string {
  if (text.length > TEXT_LENGTH_MAX) return ''
  const plain = text.toLowerCase().replaceAll('-', '_')
  const found = nearest(plain, words)
  const length = Math.max(plain.length, found.length)
  // A third of the letters may differ: `schedul`, `retrys`, `maxlateness`.
  return distance(plain, found.toLowerCase()) * 3 <= length ? found : ''
}

/** The end of a sentence about an unknown word: `; did you mean "retries"?`, or `''`. */
export function didYouMean(text: string, words: readonly string[]): string {
  const meant = meantBy(text, words)
  return meant === '' ? '' : `; did you mean "${meant}"?`
}

/** Levenshtein distance. */
function distance(one: string, other: string): number {
  let row = Array.from({length: other.length + 1}, (_, index) => index)
  for (const [i, letter] of [...one].entries()) {
    const next = [i + 1]
    for (let j = 0; j < other.length; j++) {
      const change = row[j]! + (letter === other[j] ? 0 : 1)
      next.push(Math.min(change, row[j + 1]! + 1, next[j]! + 1))
    }
    row = next
  }
  return row[other.length]!
}
