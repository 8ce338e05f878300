"""TCP with tokens and roles, reading the configuration again, systemd's watchdog, and hutch over TCP."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import unittest

from cli import CliCase
from daemon import HUTCHD, Daemon, DaemonCase, wait_until

ROLES = ("read", "use", "admin")


def new_token(name, role):
    printed = subprocess.run([HUTCHD, "--new-token", name, role], check=True, capture_output=True, text=True).stdout.split("\n")
    return printed[0], json.loads(printed[1])


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class TcpDaemon(Daemon):
    """Listens on TCP, too, with a token for each role."""

    def __init__(self, config=None):
        self.port = free_port()
        super().__init__(config={"tcp": {"listen": f"127.0.0.1:{self.port}"}, **(config or {})})
        made = {role: new_token(f"one-who-may-{role}", role) for role in ROLES}
        self.tokens = {role: token for role, (token, _) in made.items()}
        self.rows = [row for _, row in made.values()]
        self.token_file = self.dir / "tokens.json"
        self.write_tokens(self.rows)
        self.change(tcp={"listen": f"127.0.0.1:{self.port}", "tokens_file": str(self.token_file)})

    def write_tokens(self, rows, mode=0o600):
        self.token_file.write_text(json.dumps(rows))
        self.token_file.chmod(mode)

    def change(self, **members):
        self.config.write_text(json.dumps({**json.loads(self.config.read_text()), **members}))

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def ask(self, method, path, token=None, headers=None, body=None):
        """(status, headers, body) over TCP."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            said = dict(headers or {})
            if token:
                said["Authorization"] = f"Bearer {token}"
            connection.putrequest(method, path, skip_host="Host" in said)
            for name, value in said.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            reply = connection.getresponse()
            return reply.status, reply.headers, reply.read()


class AccessCase(CliCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = TcpDaemon().start()
        cls.addClassCleanup(cls.daemon.close)
        cls.daemon.import_busybox()

    def info(self):
        return self.client.call("GET", "/v1/info")

    def reloaded(self, wanted):
        self.daemon.reload()
        return wait_until(lambda: wanted(self.info()["configuration"]), "the configuration is read again")


class Access(AccessCase):
    def test_every_call_asks_for_its_role(self):
        """Sandboxes and images named do not exist, so what is let in is an error of the call itself, and never 401 or 403."""
        page = pathlib.Path(__file__).resolve().parents[2].joinpath("docs/access.md").read_text()
        roles = dict(re.findall(r"^\| `(\w+ /v1/\S+)` \| (\w+) \|$", page, re.MULTILINE))
        calls = self.client.call("GET", "/v1/openapi.json")["paths"]
        seen = 0
        for template, item in calls.items():
            path = re.sub(r"\{[^}]*\}", "none", template)
            if path == "/v1/events" or path.endswith("/stats"):
                path += "?follow=false" if path == "/v1/events" else ""
            for method in (m.upper() for m in item if m != "parameters"):
                needed = roles.get(f"{method} {template}") or roles[f"ANY {template}"]
                seen += 1
                with self.subTest(call=f"{method} {template}"):
                    for role in ROLES:
                        enough = ROLES.index(role) >= ROLES.index(needed)
                        if not enough or method in ("GET", "HEAD"):
                            self.expect(enough, method, path, self.daemon.tokens[role])
                        else:  # a body that no call takes
                            self.expect(enough, method, path, self.daemon.tokens[role], body=b"[]")
        self.assertGreater(seen, 60)

    def expect(self, let_in, method, path, token, **more):
        # Refusals beyond ten a second come a second late each; what is let in does not wait.
        status, _, _ = self.daemon.ask(method, path, token, **more)
        if let_in:
            self.assertNotIn(status, (401, 403), path)
        else:
            self.assertEqual(status, 403, path)

    def test_without_a_token_that_is_known_nothing_is_told(self):
        for token in (None, "hutch_wrong", self.daemon.tokens["admin"] + "x", self.daemon.rows[2]["sha256"]):
            status, headers, body = self.daemon.ask("GET", "/v1/health", token)
            self.assertEqual(status, 401)
            self.assertIn("Bearer", headers["WWW-Authenticate"])
            self.assertEqual(json.loads(body)["error"]["code"], "unauthenticated")
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=60)) as connection:
            # Its body is not waited for, nor collected.
            connection.putrequest("POST", "/v1/sandboxes")
            connection.putheader("Content-Length", "8000000")
            connection.endheaders()
            self.assertEqual(connection.getresponse().status, 401)

    def test_browsers_are_kept_out(self):
        token = self.daemon.tokens["admin"]
        for headers in ({"Host": "evil.example"}, {"Host": f"evil.example:{self.daemon.port}"}, {"Origin": "http://127.0.0.1"},
                        {"Origin": "null"}, {"Host": "10.0.0.1"}):
            self.assertEqual(self.daemon.ask("GET", "/v1/info", token, headers)[0], 403, headers)
        for headers in ({"Host": "localhost:1"}, {"Host": "[::1]"}, {}):
            self.assertEqual(self.daemon.ask("GET", "/v1/info", token, headers)[0], 200, headers)

    def test_who_asks_is_in_the_audit_log_and_no_token_anywhere(self):
        token = self.daemon.tokens["use"]
        status, _, body = self.daemon.ask("POST", "/v1/sandboxes", token, {"Content-Type": "application/json"}, b'{"image":"busybox"}')
        self.assertEqual(status, 201, body)
        box = json.loads(body)["id"]
        self.daemon.ask("GET", "/v1/audit", self.daemon.tokens["read"])
        self.daemon.ask("GET", "/v1/info", "hutch_this-is-a-wrong-one")

        def entries():
            # Written in batches: one is read before the next is there.
            found = self.client.call("GET", "/v1/audit?limit=1000")["entries"]
            kinds = {e["kind"] for e in found if e["sandbox"] == box} | {e["outcome"] for e in found if e["kind"] == "denial"}
            return kinds >= {"sandbox_created", "unauthenticated"} and found

        found = wait_until(entries, "the last of them is recorded")
        created = next(e for e in found if e["kind"] == "sandbox_created" and e["sandbox"] == box)
        self.assertEqual(created["caller"], {"token": "one-who-may-use"})
        denials = [e for e in found if e["kind"] == "denial" and e["detail"].get("over") == "tcp"]
        self.assertIn({"token": "one-who-may-read"}, [e["caller"] for e in denials])
        self.assertIn("unauthenticated", [e["outcome"] for e in denials])
        told = self.daemon.log.read_text() + json.dumps(found)
        for secret in [*self.daemon.tokens.values(), "this-is-a-wrong-one"]:
            self.assertNotIn(secret, told)

    def test_a_client_that_goes_takes_its_command_with_it(self):
        box = self.sandbox()
        body = json.dumps({"command": ["sleep", "4711"]}).encode()
        with socket.create_connection(("127.0.0.1", self.daemon.port), timeout=60) as connection:
            connection.sendall(f"POST /v1/sandboxes/{box}/exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
                               f"Authorization: Bearer {self.daemon.tokens['use']}\r\n\r\n".encode() + body)
            wait_until(lambda: self.info()["counts"]["commands"] == 1, "the command runs")
        wait_until(lambda: self.info()["counts"]["commands"] == 0, "the command is gone with its client")


class OverTcp(AccessCase):
    """hutch with HUTCH_HOST."""

    def environment(self):
        secret = self.daemon.dir / "token"
        secret.write_text(self.daemon.tokens["use"] + "\n")
        secret.chmod(0o600)
        plain = {k: v for k, v in os.environ.items() if not k.startswith("HUTCH_")}
        return {**plain, "HUTCH_HOST": f"http://127.0.0.1:{self.daemon.port}", "HUTCH_TOKEN_FILE": str(secret), "NO_COLOR": "1"}

    def test_commands_work(self):
        box = self.text("create", "busybox").strip()
        self.assertIn(box, self.text("ls", "-q"))
        self.assertEqual(self.text("exec", box, "--", "echo", "there"), "there\n")
        self.assertEqual(self.hutch("exec", box, "--", "sh", "-c", "exit 7").returncode, 7)
        self.assertEqual(self.text("exec", "-i", box, "--", "cat", stdin=b"over a websocket\n"), "over a websocket\n")
        here = self.daemon.dir / "sent"
        here.write_bytes(os.urandom(3_000_000))
        self.text("cp", str(here), f"{box}:/workspace/sent")
        back = self.daemon.dir / "back"
        self.text("cp", f"{box}:/workspace/sent", str(back))
        self.assertEqual(here.read_bytes(), back.read_bytes())
        self.assertIn("sandbox.running", self.text("events", "--no-follow", "--since", "1h"))
        self.text("rm", box)
        refused = self.hutch("audit")
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"needs admin", refused.stderr)

    def test_a_token_goes_nowhere_else(self):
        for host in ("http://192.0.2.1:80", "https://127.0.0.1:80", "http://evil.example:80", "127.0.0.1:80"):
            done = self.hutch("--host", host, "ls")
            self.assertEqual(done.returncode, 1, done)
            self.assertIn(b"127.0.0.1:PORT", done.stderr)
        secret = self.daemon.dir / "shared"
        secret.write_text(self.daemon.tokens["use"])
        secret.chmod(0o644)
        done = self.hutch("--token-file", str(secret), "ls")
        self.assertIn(b"chmod 600", done.stderr)
        self.assertEqual(self.hutch("--socket", self.daemon.socket, "ls").returncode, 0)


class Reload(AccessCase):
    def test_what_is_right_counts_at_once(self):
        self.daemon.change(limits={"commands_per_sandbox": 5}, defaults={"pids": 77}, blanks=9)
        said = self.reloaded(lambda c: c["restart_needed"] == ["blanks"])
        self.assertTrue(said)
        self.assertEqual(self.info()["limits"]["commands_per_sandbox"], 5)
        self.assertEqual(self.client.create()["limits"]["pids"], 77)
        events = self.client.call("GET", "/v1/events?kind=daemon.reloaded")["events"]
        self.assertIn("defaults.pids", events[-1]["detail"]["changed"])
        audited = wait_until(lambda: self.client.call("GET", "/v1/audit?kind=config_reloaded")["entries"], "it is recorded")
        self.assertEqual(audited[0]["outcome"], "ok")

    def test_what_is_wrong_changes_nothing(self):
        before = self.info()
        self.daemon.change(limits={"commands_per_sandbox": 0, "sandboxes": 3})
        try:
            self.reloaded(lambda c: (c["reload_error"] or "").startswith("limits.commands_per_sandbox"))
            after = self.info()
            self.assertEqual(after["limits"], before["limits"])
            self.assertEqual(after["configuration"]["read_at"], before["configuration"]["read_at"])
        finally:
            self.daemon.change(limits={})
        self.assertTrue(self.reloaded(lambda c: c["reload_error"] is None))

    def test_tokens_come_and_go(self):
        extra, row = new_token("late", "read")
        self.assertEqual(self.daemon.ask("GET", "/v1/health", extra)[0], 401)
        self.daemon.write_tokens([*self.daemon.rows, row], mode=0o644)
        self.assertTrue(self.reloaded(lambda c: "tcp.tokens_file" in (c["reload_error"] or "")))
        self.assertEqual(self.daemon.ask("GET", "/v1/health", extra)[0], 401)
        self.daemon.write_tokens([*self.daemon.rows, row])
        self.assertTrue(self.reloaded(lambda c: c["reload_error"] is None))
        self.assertEqual(self.daemon.ask("GET", "/v1/health", extra)[0], 200)
        self.daemon.write_tokens(self.daemon.rows)
        read_at = self.info()["configuration"]["read_at"]
        self.assertTrue(self.reloaded(lambda c: c["read_at"] != read_at))
        self.assertEqual(self.daemon.ask("GET", "/v1/health", extra)[0], 401)


class Checking(unittest.TestCase):
    def setUp(self):
        self.daemon = TcpDaemon()
        self.addCleanup(lambda: subprocess.run(["rm", "-r", str(self.daemon.dir)], check=True))

    def hutchd(self, *words):
        return subprocess.run([HUTCHD, *words, "--config", str(self.daemon.config)], capture_output=True, text=True, check=False)

    def test_all_is_told_at_once(self):
        self.assertEqual(self.hutchd("--check").returncode, 0)
        self.daemon.change(blanks=-1, none=1, tcp={"listen": "0.0.0.0:80"})
        done = self.hutchd("--check")
        self.assertEqual(done.returncode, 1)
        for key in ("blanks: ", "none: ", "tcp.listen: must be a loopback address"):
            self.assertIn(key, done.stderr)
        self.daemon.change(blanks=1)
        self.assertEqual(self.hutchd().returncode, 1)

    def test_tokens_are_looked_at_too(self):
        self.daemon.write_tokens(self.daemon.rows, mode=0o640)
        done = self.hutchd("--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("chmod 600", done.stderr)

    def test_values_are_printed(self):
        told = json.loads(self.hutchd("--print-config", "--log-level", "error").stdout)
        self.assertEqual(told["log_level"], {"value": "error", "from": "option", "reload": True})
        self.assertEqual(told["tcp.listen"]["from"], "file")
        self.assertEqual(told["blanks"], {"value": 8, "from": "default", "reload": False})


class Systemd(unittest.TestCase):
    """Datagrams to a NOTIFY_SOCKET of the test's."""

    def begin(self, watchdog_pid):
        daemon = Daemon()
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(notify.close)
        notify.bind(str(daemon.dir / "notify"))
        notify.settimeout(60)
        plain = daemon.command
        variables = [f"NOTIFY_SOCKET={daemon.dir}/notify", "WATCHDOG_USEC=100000", f"WATCHDOG_PID={watchdog_pid}"]
        script = 'for each in "$@"; do case $each in NOTIFY_*|WATCHDOG_*) export "$(eval echo $each)"; shift;; *) break;; esac; done; exec "$@"'
        daemon.command = lambda: ["/bin/sh", "-c", script, "sh", *variables, *plain()]
        daemon.start()
        self.addCleanup(daemon.close)
        return daemon, notify

    def until(self, notify, wanted):
        seen = []
        while not seen or not seen[-1].startswith(wanted):
            seen.append(notify.recv(4096).decode())
        return seen

    def test_the_loop_says_that_it_turns(self):
        _, notify = self.begin("$$")
        self.until(notify, "READY=1")
        for _ in range(3):
            self.until(notify, "WATCHDOG=1")

    def test_another_process_s_watchdog_is_not_ours(self):
        daemon, notify = self.begin("1")
        self.until(notify, "READY=1")
        daemon.process.send_signal(signal.SIGHUP)
        self.assertNotIn("WATCHDOG=1", self.until(notify, "READY=1"))

    def test_a_reload_has_a_beginning_and_an_end(self):
        daemon, notify = self.begin("1")
        self.until(notify, "READY=1")
        daemon.config.write_text('{"blanks": "many"}')
        daemon.process.send_signal(signal.SIGHUP)
        began, ended = self.until(notify, "READY=1")
        self.assertRegex(began, r"^RELOADING=1\nMONOTONIC_USEC=\d+$")
        self.assertRegex(ended, r"^READY=1\nSTATUS=reload refused: blanks: ")


if __name__ == "__main__":
    unittest.main()
