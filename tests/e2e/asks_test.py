"""What users of sandbox services asked for, one test each, named after what they wanted."""
import base64
import hashlib
import json
import os
import socket
import threading
import time
import unittest

from daemon import DaemonCase, host_processes, wait_until
from websocket import BINARY, WebSocket


def number(offset):
    return str(600000 + os.getpid() * 20 + offset)


class Asks(DaemonCase):
    def setUp(self):
        super().setUp()
        self.box = self.sandbox()
        self.path = f"/v1/sandboxes/{self.box}"

    def run_it(self, command, **fields):
        return self.client.exec(self.box, command, **fields)

    def start(self, command, **fields):
        return self.client.call("POST", f"{self.path}/processes", {"command": command, **fields})["id"]

    def process(self, process, wait=0):
        return self.client.call("GET", f"{self.path}/processes/{process}?wait_seconds={wait}")

    def events(self, command, **fields):
        _, _, lines = self.client.raw("POST", f"{self.path}/exec", {"command": command, **fields}, {"Accept": "application/x-ndjson"})
        return [json.loads(line) for line in lines.splitlines()]

    def put(self, path, data, **headers):
        status, _, body = self.client.raw("PUT", f"{self.path}/files{path}", data, headers)
        return status, json.loads(body)

    # --- running commands
    def test_a_time_out_leaves_no_descendant(self):
        length = number(1)
        result = self.run_it(f"sh -c 'sleep {length} & setsid sleep {length} & sleep {length}'; sleep {length}", timeout_seconds=0.3)
        self.assertTrue(result["timed_out"])
        wait_until(lambda: not host_processes("sleep", length), "all of them are gone")

    def test_a_time_out_keeps_what_was_printed(self):
        result = self.run_it("echo before; sleep 1000", timeout_seconds=0.3)
        self.assertEqual((result["stdout"], result["timed_out"]), ("before\n", True))

    def test_much_output_is_cut_and_not_killed(self):
        result = self.run_it("head -c 5000000 /dev/zero | tr '\\0' x; echo end", max_output_bytes=1000)
        self.assertEqual((result["exit_code"], result["stdout_truncated"], result["stdout_bytes"]), (0, True, 5000004))
        self.assertTrue(result["stdout"].endswith("xend\n"))

    def test_a_background_command_has_no_hidden_time_out(self):
        self.assertEqual(self.process(self.start(["sleep", "1000"]))["timeout_seconds"], 0)

    def test_an_operator_has_a_ceiling(self):
        self.refused("limit", "POST", f"{self.path}/exec", {"command": "true", "timeout_seconds": 3601})

    def test_a_time_out_is_per_call_and_zero_is_none(self):
        self.assertEqual(self.run_it("sleep 0.3; echo ok", timeout_seconds=0)["stdout"], "ok\n")
        self.assertTrue(self.run_it("sleep 1000", timeout_seconds=0.1)["timed_out"])

    def test_a_stuck_command_harms_no_other(self):
        self.start(["sleep", "1000"])
        self.start(["cat"], stdin_open=True)
        self.assertEqual(self.run_it("echo fine")["stdout"], "fine\n")

    def test_no_result_is_invented(self):
        result = self.run_it("echo begun; sleep 1000", wait_seconds=0.3)
        self.assertEqual((result["running"], result["exit_code"], result["stdout"]), (True, None, "begun\n"))

    def test_nothing_hangs_on_standard_input(self):
        self.assertEqual(self.run_it("cat; read x; echo done")["stdout"], "done\n")

    def test_two_at_once_do_not_mix(self):
        results = {}

        def one(name):
            client = self.daemon.client()
            results[name] = client.exec(self.box, f"cd /tmp; X={name}; for i in 1 2 3; do echo $X$PWD; sleep 0.05; done")["stdout"]
            client.close()

        threads = [threading.Thread(target=one, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(results, {name: f"{name}/tmp\n" * 3 for name in "ab"})

    def test_the_order_of_both_streams_can_be_kept(self):
        lines = "".join(f"o{i}\ne{i}\n" for i in range(200))
        self.assertEqual(self.run_it("i=0; while [ $i -lt 200 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done", merge_output=True)["stdout"], lines)

    def test_no_character_is_cut_at_a_chunk(self):
        text = "€" * 30000
        events = self.events(f"i=0; while [ $i -lt 30000 ]; do printf '\\342\\202'; printf '\\254'; i=$((i+1)); done")
        pieces = [e for e in events if e["event"] == "output"]
        self.assertTrue(all(p["encoding"] == "utf-8" for p in pieces))
        self.assertEqual("".join(p["data"] for p in pieces), text)

    def test_what_is_cut_is_told_for_each_stream(self):
        result = self.run_it("head -c 3000 /dev/zero | tr '\\0' o; head -c 10 /dev/zero | tr '\\0' e >&2", max_output_bytes=100)
        self.assertEqual((result["stdout_truncated"], result["stdout_bytes"], result["stderr_truncated"], result["stderr_bytes"]), (True, 3000, False, 10))

    def test_what_cannot_start_has_its_own_error(self):
        self.refused("command_not_found", "POST", f"{self.path}/exec", {"command": ["nonesuch"]})
        self.refused("command_not_executable", "POST", f"{self.path}/exec", {"command": ["/etc/passwd"]})
        self.assertEqual(self.run_it("nonesuch")["exit_code"], 127)

    def test_a_result_has_its_costs(self):
        usage = self.run_it("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")["usage"]
        self.assertGreater(usage["cpu_user_ms"] + usage["cpu_system_ms"], 1)
        self.assertGreater(usage["memory_peak_bytes"], 0)

    def test_ready_means_that_a_command_runs(self):
        for _ in range(5):
            self.assertEqual(self.client.exec(self.sandbox(), "echo ok")["stdout"], "ok\n")
        self.run_it("sleep 1000", timeout_seconds=0.1)
        self.assertEqual(self.run_it("echo still")["stdout"], "still\n")

    def test_a_terminal_when_one_is_wanted(self):
        process = self.start("tty; stty size", terminal={"rows": 12, "columns": 34})
        self.process(process, 30)
        chunks = self.client.call("GET", f"{self.path}/processes/{process}/output")["chunks"]
        self.assertIn("12 34", "".join(c["data"] for c in chunks))

    # --- background commands
    def test_a_client_comes_back_to_its_command(self):
        process = self.start("for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done")
        first = WebSocket(self.daemon.socket, f"{self.path}/processes/{process}/attach")
        first.next()
        self.assertEqual(first.next(), (BINARY, b"\x011\n"))
        first.close()
        second = WebSocket(self.daemon.socket, f"{self.path}/processes/{process}/attach?cursor=2")
        second.next()
        seen = b""
        while not seen.endswith(b"6\n"):
            seen += second.next()[1][1:]
        self.assertEqual(seen, b"2\n3\n4\n5\n6\n")
        second.close()

    def test_start_poll_read_stop(self):
        process = self.start("echo up; sleep 1000")
        wait_until(lambda: self.process(process)["stdout_bytes"] == 3, "it said so")
        self.assertEqual(self.process(process)["state"], "running")
        self.client.call("POST", f"{self.path}/processes/{process}/signal", {"signal": "SIGTERM"})
        self.assertEqual(self.process(process, 30)["signal"], "SIGTERM")

    def test_logs_are_streamed(self):
        process = self.start("echo a; sleep 0.2; echo b")
        _, _, lines = self.client.raw("GET", f"{self.path}/processes/{process}/output?follow=true", headers={"Accept": "application/x-ndjson"})
        events = [json.loads(line) for line in lines.splitlines()]
        self.assertEqual([e["event"] for e in events], ["output", "output", "exit"])

    def test_logs_stay_within_their_quota(self):
        process = self.start("head -c 3000000 /dev/zero | tr '\\0' x", log_bytes=65536)
        end = self.process(process, 60)
        self.assertEqual(end["output_end"], 3000000)
        directory = self.daemon.dir / "state" / "processes" / self.box / process
        self.assertLess(sum(f.stat().st_size for f in directory.iterdir()), 65536 + 16384)

    def test_a_command_nobody_listens_to_is_interrupted(self):
        length = number(2)
        body = json.dumps({"command": ["sleep", length]}).encode()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(self.daemon.socket)
        connection.sendall(b"POST %s/exec HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s" % (self.path.encode(), len(body), body))
        wait_until(lambda: host_processes("sleep", length), "it runs")
        connection.close()
        wait_until(lambda: not host_processes("sleep", length), "it is gone")

    def test_variables_cost_nothing(self):
        self.assertEqual(self.run_it("echo $A$B", env={"A": "1", "B": "2"})["stdout"], "12\n")
        self.assertEqual(self.run_it("echo $A$B")["stdout"], "\n")

    # --- files
    def test_created_parents_belong_to_the_user(self):
        status, _ = self.put("/workspace/a/b/c?parents=true", b"x")
        self.assertEqual(status, 201)
        self.assertEqual(self.run_it("stat -c %u:%g /workspace/a /workspace/a/b /workspace/a/b/c")["stdout"], "1000:1000\n" * 3)

    def test_uploads_arrive_whole_or_not_at_all(self):
        data = os.urandom(300000)
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        self.assertEqual(self.put("/workspace/u", data, **{"Content-Digest": f"sha-256=:{digest}:"})[0], 201)
        self.assertEqual(self.run_it("sha256sum /workspace/u")["stdout"].split()[0], hashlib.sha256(data).hexdigest())
        status, error = self.put("/workspace/v", data[1:], **{"Content-Digest": f"sha-256=:{digest}:"})
        self.assertEqual((status, error["error"]["code"]), (422, "corrupt"))
        self.assertEqual(self.run_it("ls /workspace")["stdout"], "u\n")

    def test_large_files_pass_in_constant_memory(self):
        box = self.sandbox(limits={"memory_bytes": 1 << 30, "disk_bytes": 1 << 30})
        before, size = self.daemon.rss_kib(), 256 << 20
        status, _, _ = self.client.raw("PUT", f"/v1/sandboxes/{box}/files/workspace/big", b"z" * size)
        self.assertEqual(status, 201)
        status, _, body = self.client.raw("GET", f"/v1/sandboxes/{box}/files/workspace/big")
        self.assertEqual((status, len(body)), (200, size))
        self.assertLess(self.daemon.rss_kib() - before, 16 * 1024)

    def test_symlinks_work_and_lead_nowhere_outside(self):
        self.run_it("mkdir /workspace/d; echo in > /workspace/d/f; ln -s d /workspace/l; ln -s /../../../../../etc/hostname /workspace/out; ln -s /proc/1/root/etc/hostname /workspace/magic")
        self.assertEqual(self.client.raw("GET", f"{self.path}/files/workspace/l/f")[2], b"in\n")
        for name in ("out", "magic"):
            status, _, body = self.client.raw("GET", f"{self.path}/files/workspace/{name}")
            if status == 200:  # the sandbox's own file at most
                self.assertEqual(body.decode(), self.run_it("cat /etc/hostname")["stdout"])

    def test_a_full_disk_says_so(self):
        box = self.sandbox(limits={"disk_bytes": 2 << 20})
        status, _, body = self.client.raw("PUT", f"/v1/sandboxes/{box}/files/workspace/big", b"z" * (4 << 20))
        self.assertEqual((status, json.loads(body)["error"]["code"]), (507, "no_space"))
        self.assertEqual(self.client.output(box, "ls /workspace"), "")

    def test_which_files_changed(self):
        self.run_it("echo 1 > /workspace/kept; echo 1 > /workspace/gone; echo 1 > /workspace/old")
        changed = self.run_it("echo 22 > /workspace/old; echo 3 > /workspace/new; rm /workspace/gone")["files_changed"]
        self.assertEqual({c["path"]: (c["action"], c["size_bytes"]) for c in changed},
                         {"/workspace/old": ("modified", 3), "/workspace/new": ("created", 2), "/workspace/gone": ("deleted", 2)})


if __name__ == "__main__":
    unittest.main()
