/** Channel `discord`: a webhook of Discord. Mentions are off, and Markdown in texts of jobs is escaped. */
import {Type} from 'typebox'
import {isGoodNews, type NoticeIncident, type NoticeMessage} from '../../core/notice-message.ts'
import {declareKind, postJson, Text, urlProblems} from './kind.ts'
import {fitted, linesOf, moreOf, originOf, titleOf, withoutLinks} from './message-text.ts'

/** Limit of the text of an embed. All its texts together may have 6,000 characters. */
const DESCRIPTION_LENGTH_MAX = 4_096

const GREEN = 0x2e_a0_43
const COLORS = {critical: 0xcf_22_2e, error: 0xcf_22_2e, warning: 0xd2_99_22, info: 0x57_60_6a}

export const discord = declareKind({
  name: 'discord',
  config: Type.Object({url: Text('URL of the webhook.')}),
  secretField: 'url',
  perIncident: false,
  problems: ({url}) => urlProblems(url, {isSecret: true}),
  render: ({url}, message) => {
    const description = fitted(message, DESCRIPTION_LENGTH_MAX, describe, ({length}) => length)
    const embed = {
      description,
      color: isGoodNews(message) ? GREEN : COLORS[message.severity],
      timestamp: new Date(message.sentAt).toISOString(),
      footer: {text: originOf(message)},
    }
    const body = {embeds: [embed], allowed_mentions: {parse: []}}
    return {via: 'http', requests: [postJson(url, body)]}
  },
})

function describe(message: NoticeMessage): string {
  return [
    `**${escapeMarkdown(titleOf(message))}**`,
    ...message.incidents.map(linesIn),
    moreOf(message),
  ]
    .filter((part) => part !== '')
    .join('\n\n')
}

function linesIn(incident: NoticeIncident): string {
  const {outputTail, url} = incident
  return [
    ...linesOf(incident).map(escapeMarkdown),
    ...(outputTail === '' ? [] : [codeBlock(outputTail)]),
    ...(url === '' ? [] : [`[Open in Belfry](<${url}>)`]),
  ].join('\n')
}

function escapeMarkdown(text: string): string {
  return withoutLinks(text).replaceAll(/[\\*_~`|>#()[\]<:@+.!-]/g, (sign) => `\\${sign}`)
}

/** An invisible character between backticks keeps a text from ending its block. */
function codeBlock(text: string): string {
  return `\`\`\`\n${text.replaceAll('`', '`\u200b')}\n\`\`\``
}
