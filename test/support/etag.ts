/** The revision in the `ETag` of a job, as `"3"`: the part that conditional writes compare. */
export function revisionIn(etag: string | null | undefined): string {
  return String(etag).replace(/\..*/, '"')
}
