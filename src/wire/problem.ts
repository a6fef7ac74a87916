/** Errors in JSON: problem documents (RFC 9457). */
import {Type, type Static} from 'typebox'

export const Problem = Type.Object(
  {
    type: Type.String({description: 'URN of the error code.'}),
    title: Type.String({description: 'The error code in words.'}),
    status: Type.Integer({description: 'The HTTP status.'}),
    detail: Type.String({description: 'What is wrong with this request, and the fix.'}),
    message: Type.String({description: 'The same as `detail`, for clients that read this member.'}),
    code: Type.String({description: 'Stable error code.'}),
  },
  {$id: 'Problem', description: 'An error (RFC 9457).', additionalProperties: true},
)
export type ProblemJson = Static<typeof Problem>
