"""config-linux.json: netDevices. Each case has a network of its own to take devices from, as the host's."""
import ctypes
import json
import os
import subprocess

from bundle import HOST_IDS, base_config, shell_config, with_namespace, with_user_namespace, without_namespace
from case import Case
from namespaces_test import holder

CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def checked(value, what):
    if value != 0:
        raise OSError(ctypes.get_errno(), what)


def ip(*arguments):
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


class NetDevices(Case):
    def setUp(self):
        super().setUp()
        self.own = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        checked(libc.unshare(CLONE_NEWNET), "unshare")
        self.addCleanup(self.leave)
        ip("link", "set", "lo", "up")
        # Every kernel has one of the two.
        made = subprocess.run(["ip", "link", "add", "one", "type", "dummy"], check=False, capture_output=True)
        if made.returncode:
            ip("link", "add", "one", "type", "veth", "peer", "name", "peer")
            ip("link", "set", "peer", "up")

    def leave(self):
        checked(libc.setns(self.own, CLONE_NEWNET), "setns")
        os.close(self.own)

    def config(self, script, devices=None):
        config = shell_config(script)
        config["linux"]["netDevices"] = {"one": {}} if devices is None else devices
        return config

    def link(self, name="one"):
        """As the host sees it; None when it has none of that name."""
        found = [row for row in json.loads(ip("-j", "address", "show")) if row["ifname"] == name]
        return found[0] if found else None

    def test_it_is_in_the_container_and_up(self):
        said = self.said(self.config("ip link show one; ip link show lo"))
        self.assertRegex(said, r"one(@\w+)?: <[^>]*\bUP\b")
        self.assertRegex(said, r"lo: <[^>]*\bUP\b")

    def test_it_has_left_the_host(self):
        name = self.sleeper(lambda config: config["linux"].update(netDevices={"one": {}}))
        self.assertIsNone(self.link())
        self.runtime.call("delete", "--force", name)

    def test_its_new_name(self):
        said = self.said(self.config("ip link show eth7; ip link show one; true", {"one": {"name": "eth7"}}))
        self.assertRegex(said, r"eth7(@\w+)?: <[^>]*\bUP\b")
        self.assertNotRegex(said, r"\bone\b")

    def test_a_template_of_a_name(self):
        said = self.said(self.config("ip -o link", {"one": {"name": "net%d"}}))
        self.assertRegex(said, r"\bnet0(@\w+)?: <[^>]*\bUP\b")

    def test_permanent_global_addresses_stay(self):
        ip("link", "set", "one", "up")
        for address in ("192.0.2.7/24", "192.0.2.8/24", "198.51.100.1/32", "2001:db8::7/64"):
            ip("address", "add", address, "dev", "one")
        ip("address", "add", "192.0.2.9/24", "dev", "one", "valid_lft", "1000", "preferred_lft", "1000")
        ip("address", "add", "169.254.1.1/16", "dev", "one", "scope", "link")
        said = self.said(self.config("ip address show dev eth7", {"one": {"name": "eth7"}}))
        for address in ("192.0.2.7/24", "192.0.2.8/24", "198.51.100.1/32", "2001:db8::7/64"):
            self.assertIn(f"{address} ", said)
        self.assertNotIn("192.0.2.9", said)
        self.assertNotIn("169.254.1.1", said)

    def test_the_peers_address_stays(self):
        ip("address", "add", "192.0.2.7", "peer", "198.51.100.9/32", "dev", "one")
        self.assertIn("192.0.2.7 peer 198.51.100.9/32", self.said(self.config("ip address show dev one")))

    def test_mtu_and_hardware_address_stay(self):
        ip("link", "set", "one", "mtu", "1234", "address", "02:00:00:00:12:34")
        said = self.said(self.config("ip link show one"))
        self.assertIn("mtu 1234", said)
        self.assertIn("02:00:00:00:12:34", said)

    def test_in_a_user_namespace(self):
        ip("address", "add", "192.0.2.7/24", "dev", "one")
        self.bundle.give(HOST_IDS, HOST_IDS)
        config = self.config("ip address show dev eth0", {"one": {"name": "eth0"}})
        with_user_namespace(config)
        said = self.said(config)
        self.assertIn("192.0.2.7/24", said)
        self.assertRegex(said, r"<[^>]*\bUP\b")

    def test_in_a_namespace_by_its_path(self):
        with holder("--net") as pid:
            config = self.config("ip link show one")
            with_namespace(config, "network", f"/proc/{pid}/ns/net")
            self.assertRegex(self.said(config), r"<[^>]*\bUP\b")
            # It stays there: the namespace is not the container's.
            self.runtime.call("delete", "--force", self.names[-1], check=False)
            inside = subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "link", "show", "one"], check=False, capture_output=True)
            self.assertEqual(inside.returncode, 0)

    def test_its_number_may_be_taken_inside(self):
        with holder("--net") as pid:
            index = ip("-o", "link", "show", "one").split(":")[0]
            subprocess.run(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "link", "add", "there", "index", index, "type", "ifb"], check=False,
                           capture_output=True)
            config = self.config("ip link show one")
            with_namespace(config, "network", f"/proc/{pid}/ns/net")
            self.assertRegex(self.said(config), r"<[^>]*\bUP\b")

    def test_a_device_that_is_not_there_is_an_error(self):
        self.refused(self.config("true", {"nosuch": {}}), "nosuch")

    def test_names_that_are_none_are_errors(self):
        for devices in ({"one": {"name": "a/b"}}, {"one": {"name": "a" * 16}}, {"one": {"name": "."}}, {"one": {"name": "a b"}},
                        {"one": {"name": "a%s"}}, {"one": {"name": 7}}, {"a/b": {}}, {"": {}}):
            with self.subTest(devices):
                self.refused(self.config("true", devices), "netDevices|device")
                self.assertIsNotNone(self.link())

    def test_a_name_that_is_taken_is_an_error(self):
        before = self.link()
        self.refused(self.config("true", {"one": {"name": "lo"}}), "one")
        self.assertEqual(self.link(), before)

    def test_one_name_for_two_is_an_error(self):
        ip("link", "add", "two", "type", "veth", "peer", "name", "three")
        self.refused(self.config("true", {"one": {"name": "eth0"}, "two": {"name": "eth0"}}))
        self.assertTrue(self.link() and self.link("two"))

    def test_loopback_is_an_error(self):
        self.refused(self.config("true", {"lo": {"name": "lo1"}}), "lo")

    def test_the_hosts_network_is_an_error(self):
        config = self.config("true", {"one": {"name": "eth0"}})
        without_namespace(config, "network")
        self.refused(config, "network")
        with_namespace(config, "network", f"/proc/{os.getpid()}/ns/net")
        self.refused(config, "network")
        self.assertIsNotNone(self.link())

    def test_a_failed_create_gives_it_back_as_it_was(self):
        ip("link", "add", "bridge", "type", "bridge")
        ip("link", "add", "two", "type", "veth", "peer", "name", "three")
        ip("link", "set", "two", "master", "bridge")
        ip("link", "set", "one", "up", "mtu", "1300")
        ip("address", "add", "192.0.2.7/24", "dev", "one")
        ip("address", "add", "192.0.2.8/24", "dev", "one", "valid_lft", "1000", "preferred_lft", "1000")
        ip("address", "add", "2001:db8::7/64", "dev", "one", "nodad")
        ip("route", "add", "198.51.100.0/24", "via", "192.0.2.1", "dev", "one", "metric", "7")
        ip("-6", "route", "add", "2001:db8:1::/64", "via", "2001:db8::1", "dev", "one")

        def host():
            # Not the state of the carrier, nor seconds that go on.
            link = {key: self.link()[key] for key in ("ifindex", "ifname", "mtu", "address")}
            up = "UP" in self.link()["flags"]
            addresses = sorted((row["local"], row["prefixlen"], row["scope"], row.get("dynamic", False)) for row in self.link()["addr_info"]
                               if row["scope"] != "link")
            routes = sorted(line.split(" proto kernel")[0].replace(" linkdown", "").strip()
                            for family in ("-4", "-6") for line in ip(family, "route", "show", "dev", "one").splitlines()
                            if not line.startswith("fe80"))
            return link, up, addresses, routes, self.link("two")["master"]

        before = host()
        fails_when_it_has_left = {"path": "/bin/sh", "args": ["sh", "-c", "ip link show one"], "env": [f"PATH={os.environ['PATH']}"]}
        for point, hook in (("createRuntime", fails_when_it_has_left), ("createContainer", {"path": "/bin/false"})):
            config = self.config("true", {"one": {"name": "eth0"}, "two": {}})
            config["hooks"] = {point: [hook]}
            self.refused(config)
            self.assertEqual(host(), before)
        config = base_config("no-such-program")
        config["linux"]["netDevices"] = {"one": {}, "two": {"name": "net%d"}}
        self.refused(config)
        self.assertEqual(host(), before)
        # Half of them moved.
        config["linux"]["netDevices"] = {"one": {"name": "eth0"}, "two": {"name": "lo"}}
        self.refused(config)
        self.assertEqual(host(), before)
