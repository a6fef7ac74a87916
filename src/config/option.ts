/** Entry of a setting: its name, kind, default and reason. The table is in `options.ts`. */

/** How the text of a setting is read; `values.ts` has one reader for each kind. */
export type OptionKind =
  | 'address'
  | 'directory'
  | 'store'
  | 'nodeName'
  | 'tag'
  | 'token'
  | 'file'
  | 'hostName'
  | 'origin'
  | 'timezone'
  | 'slots'
  | 'switch'
  | 'grace'
  | 'duration'
  | 'target'
  | 'count'
  | 'days'
  | 'size'
  | 'syslog'
  | 'network'
  | 'account'
  | 'logLevel'
  | 'logFormat'
  | 'serverUrl'
  | 'issuer'
  | 'groupGrant'
  | 'jobPattern'
  | 'schedule'
  | 'text'

export interface Option<Name extends string = string, Kind extends OptionKind = OptionKind> {
  /** The flag without dashes, and the key in the file. The variable is `BELFRY_` and the name in capitals. */
  readonly name: Name
  readonly kind: Kind
  /** Shown after the flag in the help; `''` for a switch. */
  readonly placeholder: string
  /** Default, written as in a flag; `null` = not set, or derived from the machine when it is read. */
  readonly fallback: string | null
  readonly repeatable: boolean
  /** Description for `--help` and the documentation. */
  readonly summary: string
  /** Reason for the default. */
  readonly reason: string
}

type Rest = Partial<Omit<Option, 'name' | 'kind' | 'summary' | 'reason'>>

export function option<Name extends string, Kind extends OptionKind>(
  name: Name,
  kind: Kind,
  summary: string,
  reason: string,
  rest: Rest = {},
): Option<Name, Kind> {
  return {name, kind, placeholder: '', fallback: null, repeatable: false, summary, reason, ...rest}
}
