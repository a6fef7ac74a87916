/**
 * Headers by which a request shows that a proxy passed it on. Before there is a token, such a request is
 * refused: its client may be anywhere. A proxy that adds none of them is not recognised, so this protects
 * from mistakes only.
 */

/** Headers that reverse proxies, content delivery networks and clouds add to the requests they pass on. */
const PROXY_HEADERS: ReadonlySet<string> = new Set([
  'forwarded',
  'via',
  'ali-cdn-real-ip',
  'cdn-loop',
  'cdn-src-ip',
  'client-ip',
  'fastly-client-ip',
  'fly-client-ip',
  'incap-client-ip',
  'proxy-client-ip',
  'true-client-ip',
  'wl-proxy-client-ip',
  'x-amz-cf-id',
  'x-amzn-trace-id',
  'x-appengine-user-ip',
  'x-arr-log-id',
  'x-client-ip',
  'x-cloud-trace-context',
  'x-cluster-client-ip',
  'x-forwarded',
  'x-host',
  'x-nf-client-connection-ip',
  'x-original-forwarded-for',
  'x-original-host',
  'x-original-url',
  'x-originating-ip',
  'x-proxyuser-ip',
  'x-real-ip',
  'x-remote-addr',
  'x-remote-ip',
  'x-rewrite-url',
  'x-sucuri-clientip',
  'x-varnish',
])
const PROXY_PREFIXES = [
  'akamai-',
  'cf-',
  'cloudfront-',
  'tailscale-',
  'x-akamai-',
  'x-azure-',
  'x-envoy-',
  'x-forwarded-',
  'x-vercel-',
]

/** Decides by the name in lower case. */
export function isProxyHeader(name: string): boolean {
  return PROXY_HEADERS.has(name) || PROXY_PREFIXES.some((prefix) => name.startsWith(prefix))
}
