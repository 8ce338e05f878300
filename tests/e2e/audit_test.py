"""The audit log, through the socket."""
import json
import os
import pathlib
import unittest

from client import ApiError
from daemon import Daemon, DaemonCase, wait_until


class Audit(DaemonCase):
    def entries(self, query="", sandbox=None):
        path = f"/v1/sandboxes/{sandbox}/audit" if sandbox else "/v1/audit"
        return self.client.call("GET", path + query)["entries"]

    def await_kind(self, kind, sandbox):
        return wait_until(lambda: self.entries(f"?kind={kind}", sandbox), f"{kind} of {sandbox}")

    def test_a_life_is_recorded_and_outlives_the_sandbox(self):
        sandbox = self.sandbox(relax={"proc": "full"})
        self.client.exec(sandbox, "echo out; echo x > a; exit 3")
        self.client.delete(sandbox)
        self.await_kind("sandbox_ended", sandbox)
        entries = self.entries(sandbox=sandbox)
        self.assertEqual([entry["kind"] for entry in entries], ["sandbox_ended", "exec", "relaxation", "sandbox_created"])
        ended, ran, relaxed, made = entries
        self.assertEqual(ended["detail"], {"cause": "deleted"})
        self.assertEqual(relaxed["detail"], {"proc": "full"})
        self.assertEqual(made["detail"]["image"], "busybox:latest")
        detail = ran["detail"]
        self.assertEqual(detail["command"], ["/bin/sh", "-c", "echo out; echo x > a; exit 3"])
        self.assertEqual((detail["exit_code"], detail["cause"], detail["stdout_bytes"], detail["files_changed"]), (3, "exited", 4, 1))
        self.assertNotIn("stdout", detail)
        for entry in entries:
            self.assertEqual(entry["caller"], {"uid": os.getuid(), "gid": os.getgid(), "pid": os.getpid()})
            self.assertEqual(entry["outcome"], "ok")

    def test_what_was_refused_is_recorded(self):
        with self.assertRaises(ApiError):
            self.client.create(image="no-such-image")
        entry = wait_until(lambda: self.entries("?kind=denial&limit=1"), "the denial")[0]
        self.assertEqual((entry["outcome"], entry["detail"]["call"], entry["sandbox"]), ("not_found", "create", None))

    def test_pages_follow_each_other(self):
        sandbox = self.sandbox()
        for _ in range(7):
            self.client.exec(sandbox, ["/bin/true"])
        wait_until(lambda: len(self.entries("?kind=exec", sandbox)) == 7, "seven commands")
        numbers, cursor = [], ""
        while cursor is not None:
            page = self.client.call("GET", f"/v1/sandboxes/{sandbox}/audit?limit=3{cursor and '&cursor=' + cursor}")
            numbers += [entry["number"] for entry in page["entries"]]
            cursor = page["next_cursor"]
        self.assertEqual(len(numbers), 8)
        self.assertEqual(numbers, sorted(set(numbers), reverse=True))
        self.refused("invalid_argument", "GET", "/v1/audit?limit=1001")
        self.refused("invalid_argument", "GET", "/v1/audit?kind=nothing")
        self.refused("invalid_argument", "GET", "/v1/audit?since=yesterday")

    def test_lines_for_export(self):
        sandbox = self.sandbox()
        self.await_kind("sandbox_created", sandbox)
        status, headers, body = self.client.raw("GET", f"/v1/sandboxes/{sandbox}/audit", headers={"Accept": "application/x-ndjson"})
        self.assertEqual(status, 200)
        self.assertEqual([json.loads(line)["kind"] for line in body.splitlines()], ["sandbox_created"])

    def test_the_state_is_told(self):
        self.assertEqual(self.client.call("GET", "/v1/info")["audit"], {"enabled": True, "error": None, "moved_aside": None, "entries_lost": 0})


class OtherDaemons(unittest.TestCase):
    def begin(self, **config):
        daemon = Daemon(config=config).start()
        self.addCleanup(daemon.close)
        daemon.import_busybox()
        return daemon

    def test_entries_outlive_a_crash_and_a_damaged_log_does_not_stop_the_daemon(self):
        daemon = self.begin()
        client = daemon.client()
        sandbox = client.create()["id"]
        wait_until(lambda: client.call("GET", f"/v1/sandboxes/{sandbox}/audit")["entries"], "it is recorded")
        client.close()
        daemon.kill()
        daemon.start()
        client = daemon.client()
        self.assertEqual(client.call("GET", f"/v1/sandboxes/{sandbox}/audit")["entries"][-1]["kind"], "sandbox_created")
        client.close()
        daemon.kill()
        log, = pathlib.Path(daemon.socket).parent.rglob("audit.db")
        for suffix in ("-wal", "-shm"):
            pathlib.Path(f"{log}{suffix}").unlink(missing_ok=True)
        log.write_bytes(b"damaged" * 2000)
        daemon.start()
        client = daemon.client()
        self.addCleanup(client.close)
        state = client.call("GET", "/v1/info")["audit"]
        self.assertTrue(pathlib.Path(state["moved_aside"]).read_bytes().startswith(b"damaged"))
        self.assertIsNone(state["error"])
        client.delete(sandbox)

    def test_content_is_logged_only_when_asked_for(self):
        daemon = self.begin(audit_content="on")
        client = daemon.client()
        self.addCleanup(client.close)
        sandbox = client.create()["id"]
        client.exec(sandbox, "cat; yes | head -c 10000 >&2", stdin="secret")
        entry = wait_until(lambda: client.call("GET", f"/v1/sandboxes/{sandbox}/audit?kind=exec")["entries"], "the command")[0]
        self.assertEqual((entry["detail"]["stdin"], entry["detail"]["stdout"], len(entry["detail"]["stderr"])), ("secret", "secret", 2048))

    def test_off_is_off(self):
        daemon = self.begin(audit="off")
        client = daemon.client()
        self.addCleanup(client.close)
        with self.assertRaises(ApiError) as refused:
            client.call("GET", "/v1/audit")
        self.assertEqual(refused.exception.code, "unavailable")


if __name__ == "__main__":
    unittest.main()
