/**
 * Channel `teams`: an Adaptive Card for a URL of Teams Workflows. Texts of jobs are text runs, which
 * Teams does not parse as Markdown. Mentions need entities, and the card has none.
 */
import {Type} from 'typebox'
import {isGoodNews, type NoticeIncident, type NoticeMessage} from '../../core/notice-message.ts'
import {declareKind, postJson, Text, urlProblems} from './kind.ts'
import {fitted, linesOf, moreOf, originOf, titleOf} from './message-text.ts'

/** Teams refuses messages of more than 28 KB, and stores a card with about a fifth more. */
const CARD_BYTES_MAX = 20_000

export const teams = declareKind({
  name: 'teams',
  config: Type.Object({url: Text('URL of the workflow.')}),
  secretField: 'url',
  perIncident: false,
  problems: ({url}) => urlProblems(url, {isSecret: true}),
  render: ({url}, message) => {
    const content = fitted(message, CARD_BYTES_MAX, cardOf, (card) =>
      Buffer.byteLength(JSON.stringify(card)),
    )
    const contentType = 'application/vnd.microsoft.card.adaptive'
    const body = {type: 'message', attachments: [{contentType, contentUrl: null, content}]}
    return {via: 'http', requests: [postJson(url, body)]}
  },
})

function cardOf(message: NoticeMessage): object {
  const more = moreOf(message)
  const color = isGoodNews(message) ? 'Good' : message.severity === 'info' ? 'Default' : 'Attention'
  const url = message.incidents.find((incident) => incident.url !== '')?.url
  return {
    $schema: 'http://adaptivecards.io/schemas/adaptive-card.json',
    type: 'AdaptiveCard',
    version: '1.4',
    msteams: {width: 'Full'},
    body: [
      line(titleOf(message), {weight: 'Bolder', size: 'Medium', color}),
      ...message.incidents.flatMap(linesIn),
      ...(more === '' ? [] : [line(more)]),
      line(originOf(message), {
        isSubtle: true,
        size: 'Small',
      }),
    ],
    ...(url === undefined
      ? {}
      : {actions: [{type: 'Action.OpenUrl', title: 'Open in Belfry', url}]}),
  }
}

function linesIn(incident: NoticeIncident): readonly object[] {
  const [first = '', ...others] = linesOf(incident)
  const output = incident.outputTail === '' ? [] : incident.outputTail.trimEnd().split('\n')
  return [
    {...line(first), separator: true},
    ...others.map((each) => line(each)),
    ...output.map((each) => ({...line(each, {fontType: 'Monospace'}), spacing: 'None'})),
  ]
}

/** A block of its own for each line: text runs have no line ends. An empty run is not allowed. */
function line(text: string, style: object = {}): object {
  return {type: 'RichTextBlock', inlines: [{type: 'TextRun', text: text || ' ', ...style}]}
}
