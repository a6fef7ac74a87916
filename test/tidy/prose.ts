/**
 * Plain language: words that readers of this field cannot search for or have to read twice, each with the
 * plain word in its message. Looks at comments, at sentences in strings (errors, logs, help, test titles) and
 * at the text of Markdown pages. Code is not prose: identifiers are not looked at.
 */
import {readdir, readFile} from 'node:fs/promises'
import {join} from 'node:path'
import {finding, isNode, walk, type Finding, type Source} from './source.ts'

/** Line of prose of a file. */
interface Line {
  readonly number: number
  readonly text: string
}

/** Pattern of a word, matched without regard to case, and what to write. */
const PLAIN_WORDS: readonly (readonly [banned: string, plain: string])[] = [
  ['amid', 'during'],
  ['hinder(?:s|ed)?', 'prevent, block'],
  ['mend(?:s|ed)?', 'repair, fix'],
  ['betray(?:s|ed)?', 'show, reveal'],
  ['let(?:s|ting)? go', 'release'],
  ['of a size', 'bounded, limited'],
  ['st(?:ands?|ood) in', 'replace, or: is in'],
  ['(?:is|are|was|were|be|been) told', 'receive, is notified'],
  ['wants', 'needs, requires'],
  ['hears?|heard', 'receive, is notified'],
  ['rings?|rang|rung|doorbells?|bells?', 'notify, notification'],
  ['goes on|go on|went on|going on', 'continue'],
  ['whoever', 'name the actor: the caller, the node, the operator'],
  ['somebody|nobody', 'name the actor: a client, no node'],
  ['strays?', 'stuck execution, reassign'],
  ['verdicts?', 'decision, or: the failure that was detected'],
  ['patience|patient', 'timeout, deadline'],
  [
    '(?:earlier|other|another|previous|next|new|this|its|last|one|each) li(?:fe|ves)',
    'incarnation',
  ],
  ['begun', 'started'],
  ['g[ia]ve(?:s|n)? back|giving back', 'release, return'],
  ['disown(?:s|ed)?', 'revoke'],
  ['hurr(?:y|ies|ied)', 'force stop'],
  ['deaf', 'unsubscribed'],
  ['dice', 'random number, jitter'],
  ['lanes?', 'write queue'],
  ['graves?|bur(?:y|ies|ied)', 'soft delete'],
  ['forgets?|forgot|forgotten', 'delete, expire; for a person: omit'],
  ['doors?', 'listener, authentication'],
  ['redial(?:s|led|ling)?', 'reconnect'],
  ['beheld|thereof|wherein|hitherto|henceforth|ere', 'plain English'],
  ['no full stop', 'say what the text is'],
  ['ledgers?', 'launch history'],
  ['let be', 'allow, leave unchanged'],
  ['blips?', 'brief failure'],
]

const BANNED: readonly (readonly [pattern: RegExp, plain: string])[] = PLAIN_WORDS.map(
  ([banned, plain]) => [new RegExp(`(?<![\\w/.-])(?:${banned})(?![\\w-])`, 'i'), plain],
)

/** Comments and sentences of source files that use a banned word. */
export function checkProse(sources: readonly Source[]): readonly Finding[] {
  return sources.flatMap(({path, ...source}) => wordsIn(path, proseOf({path, ...source})))
}

/** Words that open a sentence before its noun. */
const HEADLESS = new RegExp(
  '^(?:Of|As|By|Those|What|One|For|Whether|In|With|Without|Also|Its|It|That|Who|Where|There|To|From|' +
    'Beside|Below|Between|Before|After|Until|Since|Enough|Not)\\b',
)

/** Comments, and blocks of `//` lines, whose first word is not their subject. */
export function checkHeads(sources: readonly Source[]): readonly Finding[] {
  return sources.flatMap(({path, lines, comments}) => {
    const isLine = (line: number) => /^\s*\/\//.test(lines[line - 1] ?? '')
    const starts = new Set(comments.map(({line}) => line))
    return comments.flatMap(({line, text}) => {
      const word = HEADLESS.exec(text.replace(/^[\s*]+/, ''))
      const isContinued = isLine(line) && isLine(line - 1) && starts.has(line - 1)
      if (word === null || isContinued) return []
      return [finding(path, line, `a comment opens with "${word[0]}": name the thing first`)]
    })
  })
}

/** A Markdown page. */
export interface Page {
  /** Path from the root of the repository, with `/`. */
  readonly path: string
  readonly text: string
}

/** The pages at the root and below `docs/`. */
export async function readPages(root: string): Promise<readonly Page[]> {
  const below = (await readdir(join(root, 'docs'), {recursive: true})).map((name) => `docs/${name}`)
  const paths = [...(await readdir(root)), ...below].filter((name) => name.endsWith('.md'))
  return Promise.all(
    paths.toSorted().map(async (path) => ({path, text: await readFile(join(root, path), 'utf8')})),
  )
}

/** Lines of Markdown pages that use a banned word; code blocks and `code` are not prose. */
export function checkPages(pages: readonly Page[]): readonly Finding[] {
  return pages.flatMap(({path, text}) => wordsIn(path, linesOfPage(text)))
}

function wordsIn(path: string, lines: readonly Line[]): readonly Finding[] {
  return lines.flatMap(({number, text}) =>
    BANNED.flatMap(([pattern, plain]) => {
      const found = pattern.exec(text)
      return found === null ? [] : [finding(path, number, `"${found[0]}": write ${plain}`)]
    }),
  )
}

function proseOf({comments, tree}: Source): readonly Line[] {
  const lines = comments.flatMap(({line, text}) => splitLines(text, line))
  walk(tree, (node) => {
    if (node.type === 'StringLiteral')
      lines.push(...sentence(String(node['value']), node.loc.start.line))
    if (node.type === 'TemplateElement' && isNode(node)) {
      const {cooked} = node['value'] as {readonly cooked: string | null}
      lines.push(...sentence(cooked ?? '', node.loc.start.line))
    }
  })
  return lines
}

/** A string is a sentence when it has a blank between words, and is not SQL. */
function sentence(text: string, line: number): readonly Line[] {
  const isSql =
    /^\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|WITH|SET|FROM|WHERE|AND|ORDER)\b/.test(text)
  return /[a-z] [a-z]/i.test(text) && !isSql ? splitLines(text, line) : []
}

function splitLines(text: string, first: number): Line[] {
  return text
    .split('\n')
    .map((line, index) => ({number: first + index, text: line.replace(/`[^`]*`/g, '``')}))
}

function linesOfPage(text: string): readonly Line[] {
  let inCode = false
  return splitLines(text, 1).filter(({text: line}) => {
    if (/^\s*(```|~~~)/.test(line)) inCode = !inCode
    return !inCode
  })
}
