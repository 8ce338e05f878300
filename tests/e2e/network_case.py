"""Tests of a sandbox's network: rows of what is tried inside, and of what is to be seen of it on every side. See internet.py."""
import contextlib
import dataclasses
import json
import pathlib
import re
import tempfile
import unittest

import internet
import mirrors
import tools_image
from client import ApiError
from daemon import Daemon, wait_until

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs/security.md"
TOOLS = "tools:latest"
SECRET = "Bearer hutch-test-3f9c1d77e2"
# No variable of ours: as a program that never heard of proxies.
BARE = "env -i PATH=/usr/bin:/bin HOME=/tmp "
NOT_TOLD = None


@dataclasses.dataclass(frozen=True)
class Row:
    """One thing tried. `name` is its row in docs/security.md; `seen` a regular expression of what the program shows."""
    name: str
    command: str
    seen: str
    # Of the denial that is listed and audited, a regular expression; "": allowed; NOT_TOLD: refused without being one.
    reason: str = ""
    about: str = ""  # the denial's host or address
    # What may be seen outside although it is denied: these names are looked up, and, with `opened`, connected to, before it is known
    # what they are wanted for. Not a byte of inside goes there.
    asked: tuple = ()
    opened: bool = False


def allowed(name, command, seen):
    return Row(name, command, seen)


def denied(name, command, seen, reason, about="", asked=(), opened=False):  # pylint: disable=too-many-arguments
    return Row(name, command, seen, reason, about, asked, opened)


def documented_rows(section):
    """Names of the first column of the table in a section of docs/security.md."""
    text = DOCUMENT.read_text(encoding="utf-8")
    part = re.search(rf"^### {re.escape(section)}\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    return re.findall(r"^\| `([a-z0-9-]+)` \|", part.group(1), re.M) if part else []


class NetworkCase(unittest.TestCase):
    """One internet and one daemon for all tests of a class."""

    config = {}
    # Everything there is to know about a policy is in the test: these are its defaults.
    limits = {"pids": 128, "memory_bytes": 512 << 20}

    @classmethod
    def setUpClass(cls):
        cls.net = internet.Internet()
        cls.addClassCleanup(cls.net.close)
        cls.net.start()
        cls.make_mirrors()
        cls.secrets = cls.net.dir / "secrets"
        cls.secrets.mkdir(mode=0o700)
        cls.write_secret("token", hosts=["secret.test", "tls.test"], header="Authorization", value=SECRET)
        cls.daemon = Daemon(config={**cls.config, "network": {"secrets_dir": str(cls.secrets), **cls.config.get("network", {})}}).start()
        cls.addClassCleanup(cls.daemon.close)
        cls.import_tools()

    @classmethod
    def make_mirrors(cls):
        with tempfile.TemporaryDirectory() as work:
            mirrors.make(cls.net.www, pathlib.Path(work))

    @classmethod
    def import_tools(cls):
        with tempfile.TemporaryDirectory(dir=cls.daemon.dir) as work, contextlib.closing(cls.daemon.client()) as client:
            path = tools_image.make(work, cls.net.certificates.authority)
            client.call("POST", "/v1/images/import", {"path": path, "reference": TOOLS})

    @classmethod
    def write_secret(cls, name, **fields):
        path = cls.secrets / f"{name}.json"
        path.write_text(json.dumps(fields))
        path.chmod(0o600)

    def setUp(self):
        self.client = self.daemon.client()
        self.addCleanup(self.clean)

    def clean(self):
        if self.daemon.process.poll() is None:
            self.daemon.remove_all()
        self.client.close()

    def box(self, network, **more):
        return self.client.create(image=TOOLS, network=network, limits=self.limits, **more)["id"]

    def network(self, box):
        return self.client.call("GET", f"/v1/sandboxes/{box}/network")

    def change(self, box, network):
        return self.client.call("PATCH", f"/v1/sandboxes/{box}", {"network": network})

    def refused(self, code, method, path, body=None):
        """The error object of a call that must fail with `code`."""
        with self.assertRaises(ApiError) as caught:
            self.client.call(method, path, body)
        self.assertEqual(caught.exception.code, code, caught.exception)
        return caught.exception.error

    def shell(self, box, command):
        """All that a command shows, whether it worked or not."""
        result = self.client.exec(box, command)
        return (result["stdout"] + result["stderr"]).strip()

    def audit(self, box, kind):
        return self.client.call("GET", f"/v1/sandboxes/{box}/audit?limit=1000&kind={kind}")["entries"]

    def restart(self):
        self.client.close()
        self.daemon.start()
        self.client = self.daemon.client()

    def await_output(self, box, command, seen):
        """After a crash: closed for a moment, then as before."""
        return wait_until(lambda: re.search(seen, self.shell(box, command)), f"{command}: {seen}")

    # --- rows
    def run_rows(self, box, rows):
        """Every row is tried before anything fails, so that one run shows all there is to mend."""
        told = [self.try_row(box, row) for row in rows]
        self.check_told(box, [row for row in told if row])
        self.assertEqual(self.net.services.reached, [], "services of the host were reached")

    def try_row(self, box, row):
        """Runs it; returns it if a denial is to be told."""
        with self.subTest(row.name):
            before, position = self.network(box)["counters"], self.net.position()
            shown = self.shell(box, row.command)
            self.assertNotRegex(shown, "(?m)^timeout:", "nobody answered, neither yes nor no")
            self.assertRegex(shown, row.seen)
            if row.reason == "":
                return None
            self.assertNotIn("worked:", shown)
            if row.opened:  # the server tells of a connection once it is closed: not while the next row is looked at
                with contextlib.suppress(AssertionError):
                    wait_until(lambda: any("error" in entry for entry in self.net.since(position)), "it was opened", patience=3)
            self.check_nothing_arrived(position, row)
            if row.reason is NOT_TOLD:
                return None
            after = wait_until(lambda: self.more_denied(box, before), f"{row.name} is counted")
            self.assertEqual(after["received_bytes"], before["received_bytes"], "bytes of a denied connection were counted as received")
        return row if row.reason else None

    def more_denied(self, box, before):
        counters = self.network(box)["counters"]
        return counters if counters["denied"] > before["denied"] else None

    def check_nothing_arrived(self, position, row):
        names = {name for asked in row.asked for name in (asked, internet.ALIASES.get(asked, asked))}
        addresses = {address for name in names for family in internet.NAMES.get(name, ()) for address in family} if row.opened else set()

        def is_known(entry):
            if entry["kind"] == "dns":
                return entry["name"] in names and entry["type"] in ("A", "AAAA")
            if entry["kind"] == "packet":
                return (entry["target"] in (internet.DNS, internet.DNS6) and bool(names)) or entry["target"] in addresses
            return row.opened and entry["kind"] == "tls" and entry["sni"] is None and "error" in entry  # closed without a ClientHello

        self.assertEqual([entry for entry in self.net.since(position) if not is_known(entry)], [], "this arrived outside")

    def check_told(self, box, rows):
        """Each denial is listed with its reason, and audited."""
        def missing(entries):
            def fits(row, entry):
                return re.search(row.reason, entry["reason"]) and row.about in (entry["host"] or "", entry["address"] or "", "")
            return [row.name for row in rows if not any(fits(row, entry) for entry in entries)]

        def audited():
            return [entry["detail"] for entry in self.audit(box, "network_denied")]

        with self.subTest("listed"):
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not missing(self.network(box)["denied"]), "denials are listed", 10)
            listed = self.network(box)["denied"]
            self.assertEqual(missing(listed), [], f"of these nothing is listed, but {json.dumps(listed, indent=1)}")
        with self.subTest("audited"):
            with contextlib.suppress(AssertionError):
                wait_until(lambda: not missing(audited()), "denials are audited", 10)
            self.assertEqual(missing(audited()), [], f"of these nothing is audited, but {audited()}")


def main():
    internet.enter()
    unittest.main()
