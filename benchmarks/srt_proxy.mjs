// Starts the HTTP proxy of Anthropic's srt alone, for benchmarks/egress.py: node srt_proxy.mjs DIST [CA]
// It says its port; with a file name for CA it ends TLS, and writes its certificate there.
import { writeFileSync } from 'node:fs'

const [dist, ca] = process.argv.slice(2)
const { createHttpProxyServer } = await import(`${dist}/http-proxy.js`)
const options = { filter: () => true }
if (ca) {
  const { createMitmCA } = await import(`${dist}/mitm-ca.js`)
  options.mitmCA = createMitmCA({})
  writeFileSync(ca, options.mitmCA.certPem)
}
const server = createHttpProxyServer(options)
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.resume()
process.stdin.on('end', () => process.exit(0))
