/** Settings of the cluster in JSON. */
import {type Static, Type} from 'typebox'
import {FiringStatus} from './firing.ts'
import {schemaRef} from './shapes.ts'

export const Settings = Type.Object(
  {
    timezone: Type.String({description: 'The default time zone: that of jobs that name none.'}),
    submissions_paused: Type.Boolean({
      description: 'True when no job can be created, replaced, restored or reverted.',
    }),
    firing: schemaRef(FiringStatus),
  },
  {$id: 'Settings', description: 'Settings that are stored in the cluster, for all servers.'},
)
export type SettingsJson = Static<typeof Settings>

export const NewSettings = Type.Object(
  {timezone: Type.String({description: 'IANA name of a time zone, such as `Europe/Berlin`.'})},
  {
    $id: 'NewSettings',
    description: 'Settings to change.',
    examples: [{timezone: 'Europe/Berlin'}],
  },
)

export const PauseStatus = Type.Object(
  {paused: Type.Boolean({description: 'True when submissions are paused.'})},
  {
    $id: 'PauseStatus',
    description: 'Whether jobs can be created, replaced, restored and reverted.',
  },
)
export type PauseStatusJson = Static<typeof PauseStatus>
