"""hutchd goes and comes back: crashes, orderly stops, a second one."""
import json
import os
import pathlib
import socket
import subprocess
import threading
import unittest

from client import ApiError
from daemon import HUTCHD, OwnDaemonCase, host_processes, wait_until


def number(offset):
    return str(200000 + os.getpid() * 20 + offset)


class Restart(OwnDaemonCase):
    def begin_exec(self, sandbox, command):
        """Sends an exec and does not wait for its answer."""
        body = json.dumps({"command": command}).encode()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(connection.close)  # to close it is to hang up
        connection.connect(self.daemon.socket)
        connection.sendall(b"POST /v1/sandboxes/%s/exec HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n%s" % (sandbox.encode(), len(body), body))
        return connection

    def check_taken_up(self, before):
        after = self.client.get("kept")
        for field in ("id", "state", "created_at", "expires_at", "env", "limits", "labels", "pid", "host_id_start", "image_id", "user"):
            self.assertEqual(after[field], before[field], field)
        self.assertEqual(self.client.output("kept", "cat /workspace/file; echo $A"), "content\n1\n")

    def test_a_crash_loses_no_sandbox(self):
        before = self.client.create(name="kept", labels={"a": "b"}, env={"A": "1"})
        self.client.exec("kept", "echo content > /workspace/file")
        orphan, child = number(1), number(2)
        self.client.exec("kept", f"sleep {child} >/dev/null 2>&1 &")
        self.begin_exec("kept", f"sleep {orphan}")
        wait_until(lambda: host_processes("sleep", orphan), "the command runs")
        self.daemon.kill()
        self.assertTrue(host_processes("sleep", child))
        self.restart()
        self.check_taken_up(before)
        wait_until(lambda: not host_processes("sleep", orphan), "the command nobody waits for is killed")
        self.assertTrue(host_processes("sleep", child), "what an ended command left running stays")
        wait_until(lambda: self.client.get("kept")["processes"] == 1, "only that is left")
        self.client.delete("kept")
        self.assertFalse(host_processes("sleep", child))

    def test_an_orderly_stop_leaves_sandboxes_running(self):
        before = self.client.create(name="kept", labels={}, env={"A": "1"})
        self.client.exec("kept", "echo content > /workspace/file")
        self.assertEqual(self.daemon.stop(), 0)
        self.assertFalse(os.path.exists(self.daemon.socket))
        self.assertTrue(pathlib.Path(f"/proc/{before['pid']}").exists())
        self.restart()
        self.check_taken_up(before)

    def test_an_orderly_stop_finishes_removals_that_have_begun(self):
        for _ in range(5):
            made = self.client.create(timeouts={"lifetime_seconds": 1})
            wait_until(lambda: self.client.get(made["id"])["state"] == "expired", "its lifetime ends")
            self.assertEqual(self.daemon.stop(), 0)
            self.assertFalse([g for g in self.daemon.groups() if made["id"] in g])
            self.assertFalse((self.daemon.dir / "run" / "sandboxes" / made["id"]).exists())
            self.restart()

    def test_an_orderly_stop_answers_requests_under_way(self):
        self.client.create(name="one")
        connection = self.begin_exec("one", "echo partial; sleep 100000")
        wait_until(lambda: host_processes("sleep", "100000"), "the command runs")
        self.assertEqual(self.daemon.stop(), 0)
        reply = b""
        while chunk := connection.recv(65536):
            reply += chunk
        result = json.loads(reply.split(b"\r\n\r\n", 1)[1])
        self.assertEqual((result["cause"], result["stdout"]), ("killed", "partial\n"))
        self.restart()

    def test_a_crash_in_the_middle_of_creations_leaves_nothing_half_made(self):
        stop = threading.Event()

        def create():
            while not stop.is_set():
                try:
                    client = self.daemon.client()
                    client.create()
                except (OSError, ApiError, ValueError):
                    return
                finally:
                    client.close()

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"]) > 5, "some are made")
        self.daemon.kill()
        stop.set()
        for thread in threads:
            thread.join()
        self.restart()
        running = {s["id"] for s in self.client.call("GET", "/v1/sandboxes?state=running")["sandboxes"]}
        self.assertTrue(running)
        for sandbox in running:
            self.assertEqual(self.client.output(sandbox, "echo ok"), "ok\n")
        self.daemon.remove_all()

    def test_killed_while_nothing_runs(self):
        for _ in range(3):
            self.daemon.kill()
            self.restart()
        self.assertEqual(self.client.call("GET", "/v1/sandboxes")["sandboxes"], [])
        self.assertEqual(self.client.output(self.client.create()["id"], "echo ok"), "ok\n")

    def test_sandboxes_that_died_meanwhile_are_told_of(self):
        before = self.client.create()
        self.daemon.kill()
        os.kill(before["pid"], 9)
        self.restart()
        told = [(one["id"], one["state"], one["cause"]) for one in self.client.call("GET", "/v1/sandboxes")["sandboxes"]]
        self.assertEqual(told, [(before["id"], "failed", "agent_died")])

    def test_a_second_daemon_is_told_why_it_cannot_run(self):
        done = subprocess.run(self.daemon.command(), capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("another hutchd uses", done.stderr)
        self.assertEqual(self.client.call("GET", "/v1/health"), {"status": "ok"})

    def test_expiry_goes_on_where_it_was(self):
        made = self.client.create(timeouts={"lifetime_seconds": 3})
        self.daemon.kill()
        self.restart()
        wait_until(lambda: self.client.get(made["id"])["state"] == "expired", "its lifetime ends")


class CommandLine(unittest.TestCase):
    def run_hutchd(self, *options):
        return subprocess.run([HUTCHD, *options], capture_output=True, text=True, timeout=60, check=False)

    def test_version_help_and_mistakes(self):
        self.assertRegex(self.run_hutchd("--version").stdout, r"^hutchd \d+\.\d+\.\d+\n$")
        self.assertIn("--cgroup-parent", self.run_hutchd("--help").stdout)
        for options in (["--colour"], ["--pools=maybe"], ["--config", "/no/such/file"], ["--socket", "relative"]):
            done = self.run_hutchd(*options)
            self.assertEqual(done.returncode, 1, options)
            self.assertTrue(done.stderr.startswith("hutchd: "), done.stderr)


if __name__ == "__main__":
    unittest.main()
