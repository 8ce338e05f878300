"""What is tried in a sandbox that may reach some names: each row is one of docs/security.md."""
from internet import DNS, HOST, HOST6, METADATA, METADATA6, OTHER, OTHER6, PRIVATE, PRIVATE6, PRIVATE_LISTED, SHARED, SHARED6, HostServices
from network_case import BARE, NOT_TOLD, allowed, denied

ALLOW = ["good.test", "four.test", "six.test", "alias.test", "*.wild.test", "pypi.test", "npm.test", "deb.test", "git.test", "ssh.test:22",
         "rebind-private.test", "rebind-loopback.test", "rebind-metadata.test", "rebind-mapped.test", "rebind-host.test", "alias-private.test",
         "mixed.test", "flip.test", f"{OTHER}/32:7000", f"[{OTHER6}]/128:7000", f"{PRIVATE_LISTED}/32:8080",
         {"host": "rest.test", "methods": ["GET"], "paths": ["/public/*", "/one"]}]
CURL = "curl -sS "
APT = "mkdir -p /tmp/apt/state/lists/partial /tmp/apt/cache/archives/partial && "

# --- what is allowed works, whatever program asks
PROGRAMS = [
    allowed("curl-http", CURL + "http://good.test/a", r"^served GET good\.test /a 0$"),
    allowed("curl-https", CURL + "https://good.test/b", r"^served GET good\.test /b 0$"),
    allowed("curl-socks", CURL + "--noproxy '' --proxy socks5h://127.0.0.1:3128 https://good.test/c", r"^served GET good\.test /c 0$"),
    allowed("curl-http-unaware", BARE + CURL + "http://good.test/d", r"^served GET good\.test /d 0$"),
    allowed("curl-https-unaware", BARE + CURL + "https://good.test/e", r"^served GET good\.test /e 0$"),
    allowed("curl-ipv6", BARE + CURL + "-6 https://six.test/f", r"^served GET six\.test /f 0$"),
    allowed("curl-ipv4", BARE + CURL + "-4 https://four.test/g", r"^served GET four\.test /g 0$"),
    allowed("raw-program", BARE + "probe https good.test 443 good.test /h", r"^worked: HTTP/1.1 200 .*served GET good\.test /h 0"),
    allowed("raw-program-pieces", BARE + "probe split_hello good.test 443 good.test", r"^worked: record of type 22$"),
    allowed("wget-busybox", "busybox wget -q -O- http://good.test/i; " + BARE + "busybox wget -q -O- http://good.test/j",
            r"^served GET good\.test /i 0\nserved GET good\.test /j 0$"),
    allowed("git", "git clone -q https://git.test/sample.git /tmp/g1 && " + BARE + "git clone -q https://git.test/sample.git /tmp/g2 && cat /tmp/g1/README /tmp/g2/README",
            r"^from the repository\nfrom the repository$"),
    allowed("pip", "python3 -m pip install -q --target /tmp/p1 hutch-sample && " + BARE + "python3 -m pip install -q --target /tmp/p2 hutch-sample && "
            "python3 /tmp/p1/hutch_sample.py && python3 /tmp/p2/hutch_sample.py", r"from the wheel\nfrom the wheel$"),
    allowed("apt", APT + "cd /tmp && apt-get -qq update && apt-get -qq download hutch-sample && dpkg-deb -f hutch-sample_1.0_all.deb Version", r"(?m)^1\.0$"),
    allowed("apt-unaware", APT + f"cd /tmp && rm -f *.deb && {BARE} apt-get -qq update && {BARE} apt-get -qq download hutch-sample && "
            "dpkg-deb -f hutch-sample_1.0_all.deb Version", r"(?m)^1\.0$"),
    allowed("wildcard", CURL + "http://a.b.wild.test/k", r"^served GET a\.b\.wild\.test /k 0$"),
    allowed("cname", CURL + "https://alias.test/l", r"^served GET alias\.test /l 0$"),
    allowed("dns-udp", BARE + "probe dns good.test A", f"^worked: NOERROR {SHARED}$"),
    allowed("dns-tcp", BARE + "probe dns good.test AAAA 127.0.0.1 tcp", f"^worked: NOERROR {SHARED6}$"),
    allowed("dns-other-server", BARE + "probe dns good.test A 8.8.8.8", f"^worked: NOERROR {SHARED}$"),
    allowed("server-first", BARE + "probe hear ssh.test 22", r"^worked: SSH-2\.0-test-internet \| heard hello"),
    allowed("server-first-connect", r"probe connect ssh.test:22 'hello\n' listen", r"^worked: SSH-2\.0-test-internet \| heard hello"),
    allowed("cidr", BARE + f"probe tcp {OTHER} 7000 hello", "^worked: hello$"),
    allowed("cidr-ipv6", BARE + f"probe tcp6 {OTHER6} 7000 hello", "^worked: hello$"),
    allowed("cidr-private", BARE + f"probe tcp {PRIVATE_LISTED} 8080 'GET /m HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n'", "^worked: HTTP/1.. 200"),
    allowed("method-and-path", CURL + "http://rest.test/public/n http://rest.test/one", r"^served GET rest\.test /public/n 0\nserved GET rest\.test /one 0$"),
    allowed("upgrade", r"probe proxy 'GET http://good.test/ws HTTP/1.1\r\nHost: good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            r"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n'", "^worked: HTTP/1.1 101 "),
    allowed("keep-alive", CURL + "http://good.test/1 http://good.test/2 http://four.test/3",
            r"^served GET good\.test /1 0\nserved GET good\.test /2 0\nserved GET four\.test /3 0$"),
    allowed("download", CURL + "http://good.test/bytes/33554432 | wc -c; " + BARE + CURL + "https://good.test/bytes/33554432 | wc -c", r"^33554432\n33554432$"),
    allowed("upload", "head -c 16777216 /dev/zero | curl -sS -T - http://good.test/o", r"^served PUT good\.test /o 16777216$"),
]
NPM = [allowed("npm", "mkdir -p /tmp/n && cd /tmp/n && npm install --silent hutch-sample && node node_modules/hutch-sample", r"^from the package$")]

# --- names
UNLISTED = "not in the allowlist|not allowed"
NAMES = [
    denied("other-name", BARE + "probe dns bad.test", "^refused: REFUSED$", UNLISTED, "bad.test"),
    denied("other-name-tcp", BARE + "probe dns bad.test AAAA ::1 tcp", "^refused: REFUSED$", UNLISTED, "bad.test"),
    denied("other-name-http", CURL + "-w '%{http_code}' http://bad.test/", r"(?s)bad\.test.*allow.*403$", UNLISTED, "bad.test"),
    denied("other-name-https", CURL + "https://bad.test/", "403", UNLISTED, "bad.test"),
    denied("other-name-unaware", BARE + CURL + "https://bad.test/", "Could not resolve host", UNLISTED, "bad.test"),
    denied("other-name-socks", "probe socks 5 bad.test 443", "^refused: SOCKS code 2$", UNLISTED, "bad.test"),
    denied("below-a-name", BARE + "probe dns x.good.test", "^refused: REFUSED$", UNLISTED, "x.good.test"),
    denied("wildcard-itself", BARE + "probe dns wild.test", "^refused: REFUSED$", UNLISTED, "wild.test"),
    denied("suffix-of-a-name", BARE + "probe dns notgood.test", "^refused: REFUSED$", UNLISTED, "notgood.test"),
    denied("dns-tunnel", BARE + "probe dns mzxw6ytboi.c2vjcmv0.bad.test TXT", "^refused: REFUSED$", UNLISTED, "mzxw6ytboi.c2vjcmv0.bad.test"),
    denied("dns-tunnel-below-a-name", BARE + "probe dns mzxw6ytboi.good.test", "^refused: REFUSED$", UNLISTED, "mzxw6ytboi.good.test"),
    denied("dns-txt", BARE + "probe dns good.test TXT", "^refused: NOERROR$", NOT_TOLD),
    denied("dns-https-record", BARE + "probe dns good.test HTTPS", "^refused: NOERROR$", NOT_TOLD),
    denied("dns-any", BARE + "probe dns good.test ANY", "^refused: (REFUSED|NOTIMP)$", NOT_TOLD),
    denied("dns-transfer", BARE + "probe dns good.test AXFR 127.0.0.1 tcp", "^refused: ", NOT_TOLD),
    denied("dns-reverse", BARE + "probe dns 1.0.1.11.in-addr.arpa PTR", "^refused: REFUSED$", UNLISTED, "1.0.1.11.in-addr.arpa"),
    denied("dns-own-server", BARE + f"probe dns bad.test A {DNS}", "^refused: REFUSED$", UNLISTED, "bad.test"),
    denied("dns-own-server-ipv6", BARE + "probe dns bad.test A 2a0e:b107:2::53", "^refused: REFUSED$", UNLISTED, "bad.test"),
    denied("dns-over-tls", BARE + f"probe tls {DNS} 853 good.test", "^refused: ", ".", DNS),
]
CLOSED = "."
REBINDING = [
    *[denied("rebinding-" + kind, f"{BARE} probe dns {name} {record}; probe proxy 'GET http://{name}/ HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n'",
             r"^refused: (NXDOMAIN|NOERROR|REFUSED)\nrefused: HTTP/1\.1 403", CLOSED, name, (name,))
      for kind, name, record in (("private", "rebind-private.test", "A"), ("private-ipv6", "rebind-private.test", "AAAA"), ("loopback", "rebind-loopback.test", "A"),
                                 ("loopback-ipv6", "rebind-loopback.test", "AAAA"), ("metadata", "rebind-metadata.test", "A"),
                                 ("metadata-ipv6", "rebind-metadata.test", "AAAA"), ("mapped", "rebind-mapped.test", "AAAA"), ("cname", "alias-private.test", "A"))],
    denied("rebinding-host", "probe proxy 'GET http://rebind-host.test/ HTTP/1.1\\r\\nHost: rebind-host.test\\r\\n\\r\\n'", r"^refused: HTTP/1\.1 403", CLOSED,
           "rebind-host.test", ("rebind-host.test",)),
]
# Of two addresses the closed one is left out; a name that changes its mind never leads to the second.
REBINDING_ALLOWED = [
    allowed("rebinding-mixed", BARE + "probe dns mixed.test", f"^worked: NOERROR {SHARED}$"),
    allowed("rebinding-later", BARE + "sh -c 'for i in 1 2 3; do probe dns flip.test; curl -sS -m 20 http://flip.test/; done; echo end'", "(?s)end$"),
]

# --- addresses and other protocols
ADDRESSES = [
    denied("raw-address", BARE + f"probe caught {SHARED} 'GET / HTTP/1.1\\r\\nHost: {SHARED}\\r\\n\\r\\n'", r"^refused: HTTP/1\.1 403", ".", SHARED),
    denied("raw-address-proxy", CURL + f"-w '%{{http_code}}' http://{SHARED}/", "403$", ".", SHARED),
    denied("raw-address-connect", CURL + f"-k https://{SHARED}/", "403", ".", SHARED),
    denied("raw-address-socks", f"probe socks 5 {SHARED} 443", "^refused: SOCKS code 2$", ".", SHARED),
    denied("raw-address-ipv6", BARE + f"probe caught {SHARED6} 'GET / HTTP/1.1\\r\\nHost: [{SHARED6}]\\r\\n\\r\\n'", r"^refused: HTTP/1\.1 403", ".", SHARED6),
    denied("other-port", BARE + "probe tcp four.test 8080 x", "^refused: ", ".", SHARED, ("four.test",)),
    denied("other-port-proxy", CURL + "-w '%{http_code}' http://good.test:8080/", "403$", ".", "good.test"),
    denied("other-port-connect", "probe connect good.test:22", r"^refused: HTTP/1\.1 403", ".", "good.test"),
    denied("other-port-cidr", BARE + f"probe tcp {OTHER} 7001 x", "^refused: ", ".", OTHER),
    denied("other-address", BARE + f"probe tcp {SHARED} 7000 x", "^refused: ", ".", SHARED),
    denied("port-of-another-name", "probe connect ssh.test:443", r"^refused: HTTP/1\.1 403", ".", "ssh.test"),
    denied("ipv6", BARE + f"probe tcp6 {SHARED6} 7000 x", "^refused: ", ".", SHARED6),
    denied("udp", BARE + f"probe udp {SHARED} 7007", "^refused: E", NOT_TOLD),
    denied("udp-ipv6", BARE + f"probe udp {SHARED6} 7007", "^refused: E", NOT_TOLD),
    denied("quic", BARE + f"probe udp {SHARED} 443", "^refused: E", NOT_TOLD),
    denied("icmp", BARE + f"probe icmp {SHARED}", "^refused: E", NOT_TOLD),
    denied("icmp-ipv6", BARE + f"probe icmp {SHARED6}", "^refused: E", NOT_TOLD),
    denied("raw-socket", BARE + f"probe raw {SHARED}", "^refused: E", NOT_TOLD),
    denied("packet-socket", BARE + "probe packet", "^refused: E", NOT_TOLD),
    denied("metadata", BARE + CURL + f"-w '%{{http_code}}' http://{METADATA}/latest", "403$", ".", METADATA),
    denied("metadata-proxy", CURL + f"-w '%{{http_code}}' http://{METADATA}/latest", "403$", ".", METADATA),
    denied("metadata-ipv6", BARE + CURL + f"-w '%{{http_code}}' http://[{METADATA6}]/latest", "403$", ".", METADATA6),
    denied("private", BARE + f"probe tcp {PRIVATE} 8080 x", "^refused: ", ".", PRIVATE),
    denied("private-ipv6", BARE + f"probe tcp6 {PRIVATE6} 8080 x", "^refused: ", ".", PRIVATE6),
]
PORT, LOOPBACK_PORT = HostServices.PORT, HostServices.LOOPBACK_PORT
HOST_SERVICES = [
    denied("host-service", BARE + f"probe tcp {HOST} {PORT} x", "^refused: ", ".", HOST),
    denied("host-service-ipv6", BARE + f"probe tcp6 {HOST6} {PORT} x", "^refused: ", ".", HOST6),
    denied("host-service-connect", f"probe connect {HOST}:{PORT} x", r"^refused: HTTP/1\.1 403", ".", HOST),
    denied("host-loopback-connect", f"probe connect 127.0.0.1:{LOOPBACK_PORT} x", r"^refused: HTTP/1\.1 403", ".", "127.0.0.1"),
    denied("host-loopback-name", f"probe connect localhost:{LOOPBACK_PORT} x", r"^refused: HTTP/1\.1 403", ".", "localhost"),
    denied("host-loopback-ipv6", f"probe connect [::1]:{LOOPBACK_PORT} x", r"^refused: HTTP/1\.1 403", ".", "::1"),
    denied("host-loopback-mapped", f"probe connect [::ffff:127.0.0.1]:{LOOPBACK_PORT} x", r"^refused: HTTP/1\.1 40", ".", ""),
    denied("host-loopback-number", f"probe connect 2130706433:{LOOPBACK_PORT} x; probe connect 0x7f.1:{LOOPBACK_PORT} x; probe connect 0:{LOOPBACK_PORT} x",
           r"^refused: HTTP/1\.1 40.*\nrefused: HTTP/1\.1 40.*\nrefused: HTTP/1\.1 40", NOT_TOLD),
    denied("host-loopback-socks", f"probe socks 5 127.0.0.1 {LOOPBACK_PORT}", "^refused: SOCKS code 2$", ".", "127.0.0.1"),
    denied("host-loopback", BARE + f"probe tcp 127.0.0.1 {LOOPBACK_PORT} x", "^refused: ECONNREFUSED$", NOT_TOLD),
    denied("host-udp", BARE + f"probe udp {HOST} {PORT}", "^refused: E", NOT_TOLD),
    denied("host-abstract", BARE + "probe abstract hutch-test-host-service", "^refused: ECONNREFUSED$", NOT_TOLD),
]

# --- TLS
TLS = [
    denied("fronting-sni", BARE + f"probe tls {SHARED} 443 bad.test", "^refused: ", ".", "bad.test"),
    denied("fronting-sni-pieces", BARE + f"probe split_hello {SHARED} 443 bad.test", "^refused: ", ".", "bad.test"),
    denied("fronting-connect", "probe tls 127.0.0.1 3128 bad.test good.test:443", "^refused: ", ".", "", ("good.test",), True),
    denied("fronting-connect-allowed", "probe tls 127.0.0.1 3128 four.test good.test:443", "^refused: ", ".", "", ("good.test",), True),
    denied("no-sni", BARE + f"probe tls {SHARED} 443 -", "^refused: ", ".", ""),
    denied("no-sni-connect", "probe tls 127.0.0.1 3128 - good.test:443", "^refused: ", ".", "", ("good.test",), True),
    denied("ech", BARE + f"probe tls {SHARED} 443 ech:good.test", "^refused: ", ".", "good.test", ("good.test",)),
    denied("ech-connect", "probe tls 127.0.0.1 3128 ech:good.test good.test:443", "^refused: ", ".", "good.test", ("good.test",), True),
    denied("not-tls", "probe connect good.test:443 'SSH-2.0-client\\r\\n'", "^refused: ", ".", "good.test", ("good.test",), True),
    denied("not-tls-caught", BARE + f"probe tcp {SHARED} 443 'GET / HTTP/1.1\\r\\nHost: good.test\\r\\n\\r\\n'", "^refused: ", ".", ""),
    denied("tls-on-80", BARE + f"probe tls {SHARED} 80 good.test", "^refused: ", ".", ""),
]

# --- HTTP
HEAD = r"Host: good.test\r\n"


def smuggle(name, request, seen=r"^refused: HTTP/1\.1 40", about=""):
    return denied("smuggling-" + name, f"probe proxy '{request}'", seen, ".", about, ("good.test",))


NEXT = r"GET http://bad.test/smuggled HTTP/1.1\r\nHost: bad.test\r\n\r\n"
HTTP = [
    denied("fronting-host", BARE + f"probe caught {SHARED} 'GET /smuggled HTTP/1.1\\r\\nHost: bad.test\\r\\n\\r\\n'", r"^refused: HTTP/1\.1 403", ".", "bad.test"),
    smuggle("absolute-form", r"GET http://good.test/smuggled HTTP/1.1\r\nHost: bad.test\r\n\r\n"),
    denied("smuggling-absolute-form-caught", BARE + f"probe caught {SHARED} 'GET http://bad.test/smuggled HTTP/1.1\\r\\n{HEAD}\\r\\n'", r"^refused: HTTP/1\.1 40", ".", ""),
    smuggle("two-hosts", r"GET http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"Host: bad.test\r\n\r\n"),
    denied("no-host", BARE + f"probe caught {SHARED} 'GET /smuggled HTTP/1.1\\r\\n\\r\\n'", r"^refused: HTTP/1\.1 40", ".", ""),
    smuggle("length-and-chunked", r"POST http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    smuggle("two-lengths", r"POST http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef"),
    smuggle("length-list", r"POST http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"Content-Length: 5, 6\r\n\r\nabcdef"),
    smuggle("length-sign", r"POST http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"Content-Length: +5\r\n\r\nabcde"),
    smuggle("odd-coding", r"POST http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    smuggle("space-before-colon", r"POST http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    smuggle("folded-header", r"GET http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"X-A: b\r\n c\r\n\r\n"),
    smuggle("bare-line-feed", r"GET http://good.test/smuggled HTTP/1.1\nHost: good.test\n\n"),
    smuggle("bare-line-feed-header", r"GET http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"X-A: b\nX-B: c\r\n\r\n"),
    smuggle("zero-byte", r"GET http://good.test/smuggled HTTP/1.1\r\n" + HEAD + r"X-A: b\x00c\r\n\r\n"),
    smuggle("old-version", r"GET http://good.test/smuggled\r\n\r\n"),
    smuggle("credentials-in-url", r"GET http://good.test@bad.test/smuggled HTTP/1.1\r\nHost: bad.test\r\n\r\n"),
    denied("other-method", CURL + "-w '%{http_code}' -X DELETE http://rest.test/public/x", "403$", ".", "rest.test"),
    denied("other-path", CURL + "-w '%{http_code}' http://rest.test/smuggled", "403$", ".", "rest.test"),
    denied("dots-in-path", CURL + "--path-as-is -w '%{http_code}' http://rest.test/public/../smuggled", "40.$", ".", "rest.test"),
    denied("encoded-dots-in-path", CURL + "--path-as-is -w '%{http_code}' http://rest.test/public/%2e%2e/smuggled", "40.$", ".", "rest.test"),
    denied("paths-need-plain-http", CURL + "https://rest.test/public/x", "403|reset", ".", "rest.test"),
]
# The first is served; the second, behind it on the same connection, is not.
PIPELINED = [
    ("pipelined-other-name", r"GET http://good.test/first HTTP/1.1\r\n" + HEAD + r"\r\n" + NEXT, "/first"),
    ("pipelined-in-body", r"POST http://good.test/first HTTP/1.1\r\n" + HEAD + r"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n" + NEXT, "/first"),
]
