/** The reply to a dry run of a submit, in JSON. */
import {Type, type Static} from 'typebox'
import {schemaRef} from './shapes.ts'

export const Fault = Type.Object(
  {
    field: Type.String({description: 'Field such as `retries` or `tags.web`; empty = the body.'}),
    problem: Type.String({description: 'What is wrong with it, without the field.'}),
    code: Type.Optional(
      Type.Enum(['parent_unknown', 'field_unknown'], {
        description:
          'The error code of this fault alone. `field_unknown`: without `strict` the field or parameter is ' +
          'ignored.',
      }),
    ),
  },
  {$id: 'Fault', description: 'What is wrong with a field of a definition.'},
)

export const DryRun = Type.Object(
  {
    valid: Type.Boolean({description: 'The definition would be stored.'}),
    action: Type.Union([Type.Enum(['create', 'update', 'unchanged']), Type.Null()], {
      description: 'What the submit would do; `null` = nothing, it is not valid.',
    }),
    errors: Type.Array(schemaRef(Fault), {description: 'All faults, up to 50.'}),
    warnings: Type.Array(Type.String(), {description: 'What probably does not work as meant.'}),
    timezone: Type.Union([Type.String(), Type.Null()], {
      description: 'Zone of the schedule; `null` = the schedule or its zone is not valid.',
    }),
    next: Type.Array(Type.String(), {
      description: 'The next five planned times, with the offset of the zone.',
    }),
    nodes: Type.Array(Type.String(), {
      description: 'Alive nodes that match the tags, up to 20; for callers that may list members.',
    }),
    nodes_total: Type.Integer({description: 'Number of alive nodes that match the tags.'}),
    nodes_run: Type.Optional(
      Type.Integer({
        description:
          'How many of them a launch runs on, if the count in a tag is less. Absent otherwise.',
      }),
    ),
  },
  {$id: 'DryRun', description: 'What a submit would do.'},
)
export type DryRunJson = Static<typeof DryRun>
