"""Mode "open" and networks that sandboxes join: all that is public, and members; nothing of the host, of private ranges, of neighbours."""
import subprocess
import unittest

import host_network
import internet
import network_case
from daemon import Daemon, wait_until
from internet import DNS, HOST, HOST6, METADATA, METADATA6, OTHER, PRIVATE, PRIVATE6, PRIVATE_LISTED, SHARED, SHARED6
from network_case import NOT_TOLD, NetworkCase, allowed, denied

CURL = "curl -sS "
SERVER = "import socket,threading\n" \
         "def serve(s):\n while True:\n  c,_=s.accept(); c.sendall(b'member\\n'); c.close()\n" \
         "s=socket.socket(socket.AF_INET6); s.bind(('::',9000)); s.listen(); open('/tmp/ready','w'); serve(s)"
NO = r"^refused: (E(HOSTUNREACH|ACCES|CONNREFUSED|NETUNREACH|CONNRESET|PERM)$|ended)"

OPEN = [
    allowed("open-http", CURL + "http://bad.test/a", r"^served GET bad\.test /a 0$"),
    allowed("open-https", CURL + "https://other.test/b", r"^served GET other\.test /b 0$"),
    allowed("open-ipv6", CURL + "-6 https://good.test/c", r"^served GET good\.test /c 0$"),
    allowed("open-address", f"probe tcp {SHARED} 7000 hello", "^worked: hello$"),
    allowed("open-address-ipv6", f"probe tcp6 {SHARED6} 7001 hello", "^worked: hello$"),
    allowed("open-server-first", "probe hear ssh.test 22", r"^worked: SSH-2\.0-test-internet \| heard hello"),
    allowed("open-udp", f"probe udp {SHARED} 7007 hello", "^worked: hello$"),
    allowed("open-udp-ipv6", f"probe udp {SHARED6} 7007 hello", "^worked: hello$"),
    # Without a privilege there is no socket for it unless the namespace's ping_group_range has the group.
    allowed("open-icmp", f"probe icmp {SHARED}", "^(worked: echo|refused: EACCES|refused: EPERM)"),
    allowed("open-dns", "probe dns bad.test", f"^worked: NOERROR {SHARED}$"),
    allowed("open-dns-server", f"probe dns bad.test AAAA {DNS}", f"^worked: NOERROR {SHARED6}$"),
    allowed("open-download", CURL + "https://other.test/bytes/33554432 | wc -c", "^33554432$"),
    allowed("open-pip", "python3 -m pip install -q --target /tmp/p hutch-sample && python3 /tmp/p/hutch_sample.py", "from the wheel$"),
    allowed("open-git", "git clone -q https://git.test/sample.git /tmp/g && cat /tmp/g/README", "^from the repository$"),
]
CLOSED = [
    denied("open-private", f"probe tcp {PRIVATE} 8080 x", NO, NOT_TOLD),
    denied("open-private-ipv6", f"probe tcp6 {PRIVATE6} 8080 x", NO, NOT_TOLD),
    denied("open-private-udp", f"probe udp {PRIVATE} 7007", NO, NOT_TOLD),
    denied("open-metadata", f"probe tcp {METADATA} 80 x", NO, NOT_TOLD),
    denied("open-metadata-ipv6", f"probe tcp6 {METADATA6} 80 x", NO, NOT_TOLD),
    denied("open-rebinding", "probe tcp rebind-metadata.test 80 x", r"^refused: ", NOT_TOLD, asked=("rebind-metadata.test",)),
    denied("open-host", f"probe tcp {HOST} 8088 x", NO, NOT_TOLD),
    denied("open-host-ipv6", f"probe tcp6 {HOST6} 8088 x", NO, NOT_TOLD),
    denied("open-host-udp", f"probe udp {HOST} 8088", NO, NOT_TOLD),
    denied("open-host-gateway", "for a in $(ip -4 route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'); do probe tcp $a 8088 x; done", r"^(refused: E\w+\n?)+$", NOT_TOLD),
    denied("open-host-loopback", "probe tcp 127.0.0.1 8089 x", "^refused: ECONNREFUSED$", NOT_TOLD),
    denied("open-host-abstract", "probe abstract hutch-test-host-service", "^refused: ECONNREFUSED$", NOT_TOLD),
    denied("open-documentation", "probe tcp 192.0.2.1 80 x", NO, NOT_TOLD),
    denied("open-raw-socket", f"probe raw {SHARED}", "^refused: E", NOT_TOLD),
    denied("open-packet-socket", "probe packet", "^refused: E", NOT_TOLD),
]
NEIGHBOURS = ["open-neighbour", "open-neighbour-ipv6"]
JOINED = ["join-name", "join-address", "join-outsider", "join-other-network", "join-no-way-out", "join-left"]


class Document(unittest.TestCase):
    def test_every_row_is_in_the_document_and_no_other(self):
        self.assertEqual(network_case.documented_rows("Mode open and networks, row by row"), [row.name for row in OPEN + CLOSED] + NEIGHBOURS + JOINED)


class OpenCase(NetworkCase):
    def open(self, **network):
        return self.box({"mode": "open", **network})

    def addresses(self, box):
        return [entry["address"] for entry in self.network(box)["addresses"]]

    def serve(self, box):
        self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": ["python3", "-c", SERVER]})
        self.assertEqual(self.shell(box, "until [ -e /tmp/ready ]; do sleep 0.01; done; probe tcp 127.0.0.1 9000"), "worked: member |")

    def try_rows(self, box, rows):
        for row in rows:
            with self.subTest(row.name):
                position = self.net.position()
                shown = self.shell(box, row.command)
                self.assertNotRegex(shown, "(?m)^timeout:")
                self.assertRegex(shown, row.seen)
                if row.reason is NOT_TOLD:
                    self.check_nothing_arrived(position, row)
        self.assertEqual(self.net.services.reached, [])


class Open(OpenCase):
    def test_what_is_public_is_reached_from_the_hosts_address(self):
        box, position = self.open(), self.net.position()
        self.try_rows(box, OPEN)
        sources = {entry["source"] for entry in self.net.since(position) if entry["kind"] == "packet"}
        self.assertLessEqual(sources, {HOST, HOST6, internet.GATEWAY}, "an address of inside left the host")

    def test_what_is_private_or_the_hosts_is_not(self):
        box = self.open()
        before = self.network(box)["counters"]["refused_packets"]
        self.try_rows(box, CLOSED)
        self.assertGreater(self.network(box)["counters"]["refused_packets"], before + 5)

    def test_a_listed_private_range_is_reached_and_its_neighbour_is_not(self):
        box = self.open(allow=[f"{PRIVATE_LISTED}/32:8080"])
        self.try_rows(box, [allowed("listed", f"probe tcp {PRIVATE_LISTED} 8080 'GET /m HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n'", "^worked: HTTP/1.. 200"),
                            denied("port", f"probe tcp {PRIVATE_LISTED} 80 x", NO, NOT_TOLD), denied("neighbour", f"probe tcp {PRIVATE} 8080 x", NO, NOT_TOLD)])

    def test_neighbours_do_not_see_each_other(self):
        one, other = self.open(), self.open()
        self.serve(other)
        addresses = self.addresses(other)
        self.assertEqual(sorted(":" in address for address in addresses), [False, True], addresses)
        self.try_rows(one, [denied(name, f"probe tcp {address} 9000", NO, NOT_TOLD)
                            for name, address in zip(NEIGHBOURS, sorted(addresses, key=lambda address: ":" in address))])

    def test_traffic_is_counted(self):
        box = self.open()
        self.shell(box, CURL + "http://other.test/bytes/1048576 | wc -c")
        counters = self.network(box)["counters"]
        self.assertGreater(counters["received_bytes"], 1 << 20)
        self.assertGreater(counters["sent_bytes"], 0)

    def test_links_made_ahead_are_for_this_mode_alone(self):
        def ready():
            return self.client.call("GET", "/v1/info")["pools"]["links_ready"]

        self.client.delete(self.open())
        wait_until(lambda: ready() == 2, "links are made ahead")
        for network in ({"mode": "none"}, {"mode": "allowlist", "allow": ["good.test"]}):
            box = self.box(network)
            # Kernels may put ends of tunnels of their own into every namespace (sit0).
            self.assertNotIn("eth", self.shell(box, "python3 -c 'import socket; print(socket.if_nameindex())'"))
        self.assertEqual(ready(), 2)
        for _ in range(4):  # more than there are
            box = self.open()
            self.assertEqual(len(self.addresses(box)), 2)
            self.try_rows(box, OPEN[:2] + CLOSED[:1])

    def test_nothing_stays_when_they_go(self):
        for _ in range(2):  # what is kept ready is there from the first time on
            self.client.delete(self.open())
        wait_until(lambda: not self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"], "gone")
        before = host_network.everything()
        boxes = [self.open() for _ in range(5)]
        self.assertNotEqual(host_network.everything()["elements"], before["elements"])
        for box in boxes:
            self.client.delete(box)
        wait_until(lambda: not set(host_network.everything()["elements"]) - set(before["elements"]), "elements are gone")
        after = host_network.everything()
        # Those of earlier sandboxes' links may have gone meanwhile, and nothing else.
        gone = set(before["elements"]) - set(after["elements"])
        self.assertEqual([element for element in gone if not element.startswith(host_network.OF_A_LINK)], [])
        self.assertEqual(after["rules"], before["rules"])
        # What is kept ready is other pairs then, and no more of them; those of earlier sandboxes may go meanwhile.
        wait_until(lambda: len(host_network.everything()["routes"]) <= len(before["routes"]), "routes are gone")

    def test_a_killed_daemon_finds_what_it_had_made(self):
        box, gone = self.open(), self.open()
        self.shell(box, CURL + "http://other.test/bytes/1048576 | wc -c")
        before, host = self.network(box), host_network.everything()
        dies = self.client.get(gone)["pid"]
        self.daemon.kill()
        subprocess.run(["kill", "-9", str(dies)], check=True)
        self.restart()
        wait_until(lambda: self.addresses(box), "it is taken up again", 20)
        after = self.network(box)
        for field in ("mode", "allow", "limits", "join", "addresses"):
            self.assertEqual(after[field], before[field], field)
        self.assertEqual(after["counters"], before["counters"])
        address = min(self.addresses(box), key=len)
        wait_until(lambda: len(host_network.everything()["elements"]) < len(host["elements"]), "what belonged to the dead one is removed")
        self.assertTrue(any(address in element for element in host_network.everything()["elements"]))
        self.await_output(box, OPEN[0].command, OPEN[0].seen)
        self.try_rows(box, OPEN[:2] + CLOSED[:1])


class CannotBeSetUp(unittest.TestCase):
    """Then there is no sandbox, and the reason is told."""

    @classmethod
    def setUpClass(cls):
        cls.net = internet.Internet()
        cls.addClassCleanup(cls.net.close)
        cls.net.start()

    def attempt(self):
        daemon = Daemon().start()
        try:
            daemon.import_busybox()
            client = daemon.client()
            status, _, body = client.raw("POST", "/v1/sandboxes", {"image": "busybox", "network": {"mode": "open"}})
            self.assertEqual(client.call("GET", "/v1/sandboxes?state=running")["sandboxes"] if status != 201 else [], [])
            client.close()
            return status, body.decode()
        finally:
            daemon.close()

    def test_a_host_that_does_not_forward(self):
        internet.sysctl("net.ipv4.ip_forward", "0")
        self.addCleanup(internet.sysctl, "net.ipv4.ip_forward", "1")
        status, body = self.attempt()
        self.assertEqual(status, 501, body)
        self.assertIn("ip_forward", body)

    def test_another_firewall_that_drops(self):
        internet.run("nft", "table ip strange {\n chain onward {\n type filter hook forward priority 0\n policy drop\n }\n }")
        self.addCleanup(internet.run, "nft", "delete table ip strange")
        status, body = self.attempt()
        self.assertEqual(status, 501, body)
        self.assertIn("strange", body)


class Networks(OpenCase):
    def network_named(self, name):
        self.client.call("POST", "/v1/networks", {"name": name})
        self.addCleanup(lambda: self.client.call("DELETE", f"/v1/networks/{name}"))
        self.addCleanup(self.daemon.remove_all)  # first: the last that is added

    def clean(self):
        self.daemon.remove_all()

    def member(self, name, *networks, mode="none", **more):
        return self.box({"mode": mode, "join": list(networks), **more}, name=name)

    def test_members_see_each_other_and_nobody_else_does(self):
        self.addCleanup(self.daemon.remove_all)
        self.network_named("blue")
        self.network_named("red")
        alpha, beta = self.member("alpha", "blue"), self.member("beta", "blue", mode="allowlist", allow=["good.test"])
        gamma, delta = self.member("gamma", "red"), self.box({"mode": "none"}, name="delta")
        self.serve(alpha)
        members = {member["name"]: member for member in self.client.call("GET", "/v1/networks/blue")["members"]}
        self.assertEqual(set(members), {"alpha", "beta"})
        four, six = members["alpha"]["address_v4"], members["alpha"]["address_v6"]
        both = f"probe tcp {four} 9000; probe tcp6 {six} 9000"
        self.try_rows(beta, [allowed("join-name", "probe tcp alpha 9000; " + CURL + "http://good.test/still", r"^worked: member.*\nserved GET good\.test /still 0$"),
                             allowed("join-address", both, r"^worked: member \|\s+worked: member \|$")])
        self.try_rows(delta, [denied("join-outsider", both + "; probe dns alpha", r"^(refused: \w+\n?){3}$", NOT_TOLD)])
        self.try_rows(gamma, [denied("join-other-network", both + "; probe dns alpha", r"^(refused: \w+\n?){3}$", NOT_TOLD),
                              denied("join-no-way-out", f"probe tcp {SHARED} 80 x; probe tcp6 {SHARED6} 80 x; probe tcp {HOST} 8088 x; probe tcp {METADATA} 80 x; "
                                     f"probe udp {OTHER} 7007; probe dns good.test", r"^(refused: \w+\n?){6}$", NOT_TOLD)])
        self.refused("bad_state", "DELETE", "/v1/networks/blue")
        self.change(beta, {"mode": "none", "join": []})
        self.try_rows(beta, [denied("join-left", both + "; probe dns alpha", r"^(refused: \w+\n?){3}$", NOT_TOLD)])
        self.assertEqual([member["name"] for member in self.client.call("GET", "/v1/networks/blue")["members"]], ["alpha"])

    def test_members_find_each_other_after_a_crash(self):
        self.addCleanup(self.daemon.remove_all)
        self.network_named("blue")
        alpha, beta = self.member("alpha", "blue"), self.member("beta", "blue")
        self.serve(alpha)
        before = self.client.call("GET", "/v1/networks/blue")
        self.daemon.kill()
        self.restart()
        self.assertEqual(self.client.call("GET", "/v1/networks/blue"), before)
        self.await_output(beta, "probe tcp alpha 9000", "^worked: member")
        self.member("epsilon", "blue")
        self.assertEqual(self.shell("epsilon", "probe tcp alpha 9000"), "worked: member |")

    def test_a_network_that_is_not_there(self):
        self.refused("not_found", "POST", "/v1/sandboxes", {"image": network_case.TOOLS, "network": {"mode": "none", "join": ["nowhere"]}})


if __name__ == "__main__":
    network_case.main()
