/**
 * Channel `slack`: an incoming webhook of Slack. Texts of jobs are in elements that Slack does not
 * parse.
 */
import {Type} from 'typebox'
import type {NoticeIncident, NoticeMessage} from '../../core/notice-message.ts'
import {declareKind, postJson, Text, urlProblems} from './kind.ts'
import {fitted, keepStart, linesOf, moreOf, originOf, titleOf} from './message-text.ts'

/** Limit of a header. */
const HEADER_LENGTH_MAX = 150
/** Slack refuses blocks with about 13,000 characters in all, although it documents only limits of each. */
const BLOCKS_LENGTH_MAX = 10_000

export const slack = declareKind({
  name: 'slack',
  config: Type.Object({url: Text('URL of the incoming webhook.')}),
  secretField: 'url',
  perIncident: false,
  problems: ({url}) => urlProblems(url, {isSecret: true}),
  render: ({url}, message) => {
    const blocks = fitted(
      message,
      BLOCKS_LENGTH_MAX,
      blocksOf,
      (blocks) => JSON.stringify(blocks).length,
    )
    const body = {text: escapeControls(titleOf(message)), blocks, unfurl_links: false}
    return {via: 'http', requests: [postJson(url, body)]}
  },
})

/** The text of notifications is the only one that Slack parses. */
function escapeControls(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
}

function blocksOf(message: NoticeMessage): readonly object[] {
  const more = moreOf(message)
  return [
    {type: 'header', text: plain(keepStart(titleOf(message), HEADER_LENGTH_MAX))},
    ...message.incidents.map((incident) => ({type: 'rich_text', elements: elementsOf(incident)})),
    ...(more === '' ? [] : [{type: 'rich_text', elements: [section([text(more)])]}]),
    {type: 'context', elements: [plain(originOf(message))]},
  ]
}

function elementsOf(incident: NoticeIncident): readonly object[] {
  const {outputTail, url} = incident
  const lines = linesOf(incident).join('\n')
  const link = {type: 'link', url, text: 'Open in Belfry'}
  return [
    section(url === '' ? [text(lines)] : [text(`${lines}\n`), link]),
    ...(outputTail === '' ? [] : [{type: 'rich_text_preformatted', elements: [text(outputTail)]}]),
  ]
}

const plain = (content: string) => ({type: 'plain_text', text: content, emoji: false})
const text = (content: string) => ({type: 'text', text: content})
const section = (elements: readonly object[]) => ({type: 'rich_text_section', elements})
