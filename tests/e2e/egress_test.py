"""Mode "allowlist" (and "none"): what is allowed works with ordinary programs, everything else is refused at once, seen by the one inside,
listed, audited, and nothing of it arrives outside. The rows are in egress_rows.py and in docs/security.md."""
import unittest

import egress_rows as rows
import internet
import network_case
import tools_image
from network_case import BARE, NOT_TOLD, NetworkCase, denied

ALL = [row.name for group in (rows.PROGRAMS, rows.NPM, rows.NAMES, rows.REBINDING, rows.REBINDING_ALLOWED, rows.ADDRESSES, rows.HOST_SERVICES, rows.TLS, rows.HTTP)
       for row in group] + [name for name, _, _ in rows.PIPELINED]
NEIGHBOURS = ["neighbour", "neighbour-abstract"]


class Document(unittest.TestCase):
    def test_every_row_is_in_the_document_and_no_other(self):
        self.assertEqual(network_case.documented_rows("Mode allowlist, row by row"), ALL + NEIGHBOURS)
        self.assertEqual(len(set(ALL)), len(ALL))


class Allowlist(NetworkCase):
    def allowlist(self, allow=None, **more):
        return self.box({"mode": "allowlist", "allow": rows.ALLOW if allow is None else allow}, **more)

    def test_programs_work_with_proxy_variables_and_without(self):
        self.run_rows(self.allowlist(), rows.PROGRAMS)

    @unittest.skipUnless(tools_image.npm_place(), "npm is not installed")
    def test_npm_works(self):
        self.run_rows(self.allowlist(), rows.NPM)

    def test_names(self):
        self.run_rows(self.allowlist(), rows.NAMES)

    def test_rebinding(self):
        box, position = self.allowlist(), self.net.position()
        self.run_rows(box, rows.REBINDING + rows.REBINDING_ALLOWED)
        reached = [entry for entry in self.net.since(position) if entry["kind"] == "packet" and entry["target"] not in (internet.SHARED, internet.DNS, internet.DNS6)]
        self.assertEqual(reached, [], "a name led to a closed address")

    def test_addresses_and_other_protocols(self):
        box = self.allowlist()
        self.run_rows(box, rows.ADDRESSES)
        # Datagrams and echo requests have no line each, but a number.
        self.assertGreaterEqual(self.network(box)["counters"]["refused_packets"], 5)

    def test_services_of_the_host(self):
        self.run_rows(self.allowlist(), rows.HOST_SERVICES)

    def test_tls(self):
        position = self.net.position()
        self.run_rows(self.allowlist(), rows.TLS)
        # A tunnel is opened before its ClientHello is judged: the server sees it close, and no byte.
        self.assertEqual([entry for entry in self.net.since(position) if entry["kind"] in ("tls", "bytes", "http") and "error" not in entry], [])

    def test_http(self):
        position = self.net.position()
        self.run_rows(self.allowlist(), rows.HTTP)
        self.assertEqual([entry for entry in self.net.since(position) if entry["kind"] == "http"], [])

    def test_what_follows_an_allowed_request_is_judged_by_itself(self):
        box = self.allowlist()
        for name, request, first in rows.PIPELINED:
            with self.subTest(name):
                position = self.net.position()
                shown = self.shell(box, f"probe proxy '{request}'")
                self.assertRegex(shown, r"refused: HTTP/1\.1 200 .* HTTP/1\.1 403")
                requests = [(entry["host"], entry["path"]) for entry in self.net.since(position) if entry["kind"] == "http"]
                self.assertEqual(requests, [("good.test", first)])

    def test_neighbours(self):
        one, other = self.allowlist(), self.allowlist()
        server = "import socket,time\nfor a in ((socket.AF_INET6,('::',9000)),(socket.AF_UNIX,'\\0hutch-test-neighbour')):\n" \
                 " s=socket.socket(a[0]); s.bind(a[1]); s.listen(); globals()[str(a[0])]=s\nopen('/tmp/ready','w')\ntime.sleep(600)"
        self.client.call("POST", f"/v1/sandboxes/{other}/processes", {"command": ["python3", "-c", server]})
        self.assertEqual(self.shell(other, "until [ -e /tmp/ready ]; do sleep 0.01; done; probe local 9000"), "worked: something listens")
        self.run_rows(one, [denied("neighbour", BARE + "probe tcp 127.0.0.1 9000; probe tcp6 ::1 9000", "^refused: ECONNREFUSED\nrefused: ECONNREFUSED$", NOT_TOLD),
                            denied("neighbour-abstract", BARE + "probe abstract hutch-test-neighbour", "^refused: ECONNREFUSED$", NOT_TOLD)])

    def test_an_empty_list_allows_nothing(self):
        self.run_rows(self.allowlist([]), [
            denied("empty-dns", BARE + "probe dns good.test", "^refused: REFUSED$", ".", "good.test"),
            denied("empty-http", "curl -sS -w '%{http_code}' http://good.test/", "403$", ".", "good.test"),
            denied("empty-address", BARE + f"probe tcp {internet.OTHER} 7000 x", "^refused: ", ".", internet.OTHER)])

    def test_the_environment_tells_programs_of_the_proxy(self):
        box = self.allowlist()
        shown = self.shell(box, "env")
        for name in ("http_proxy", "https_proxy", "HTTPS_PROXY"):
            self.assertRegex(shown, rf"(?m)^{name}=http://127\.0\.0\.1:3128/?$")
        self.assertRegex(shown, "(?mi)^no_proxy=.*127.0.0.1")
        self.assertRegex(shown, "(?m)^NODE_USE_ENV_PROXY=1$")
        self.assertEqual(self.shell(box, "cat /etc/resolv.conf | grep nameserver"), "nameserver 127.0.0.1")

    def test_nothing_of_the_network_can_be_changed_from_inside(self):
        box = self.allowlist()
        code = "import socket\ns=socket.socket(socket.AF_NETLINK,socket.SOCK_RAW,%d)\ns.bind((0,0))\nprint('opened')"
        self.assertNotIn("opened", self.shell(box, f'python3 -c "{code % 12}"'))  # netfilter
        self.assertIn("denied", self.shell(box, "busybox ip link add x type dummy 2>&1; busybox ip route del local default dev lo 2>&1; echo").lower() + "denied")
        self.run_rows(box, rows.NAMES[:1])

    def test_a_sandbox_without_a_network_has_none(self):
        box = self.box({"mode": "none"})
        position = self.net.position()
        shown = self.shell(box, "; ".join(BARE + what for what in (
            "probe dns good.test", "probe dns good.test A ::1 tcp", "probe local 3128", "probe local 3129", "probe local 53", f"probe tcp {internet.SHARED} 80",
            f"probe tcp6 {internet.SHARED6} 80", f"probe udp {internet.SHARED} 7007", f"probe tcp {internet.HOST} 8088", f"probe tcp {internet.METADATA} 80",
            "probe abstract hutch-test-host-service")))
        self.assertRegex(shown, r"^(refused: (ECONNREFUSED|ENETUNREACH|EADDRNOTAVAIL)\n?){11}$")
        self.assertEqual(self.net.since(position), [])
        self.assertEqual(self.net.services.reached, [])


if __name__ == "__main__":
    network_case.main()
