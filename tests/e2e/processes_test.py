"""Background processes: logs, input, signals, terminals, attaching; and what a killed hutchd must not lose."""
import base64
import json
import os
import random
import threading
import time
import unittest

from daemon import DaemonCase, OwnDaemonCase, host_processes, wait_until
from websocket import BINARY, CLOSE, TEXT, WebSocket


def number(offset):
    return str(400000 + os.getpid() * 20 + offset)


class Calls:
    """Shorthands; `client` and `daemon` are the case's."""

    def start(self, sandbox, command, **fields):
        return self.client.call("POST", f"/v1/sandboxes/{sandbox}/processes", {"command": command, **fields})["id"]

    def process(self, sandbox, process, wait=None):
        query = "" if wait is None else f"?wait_seconds={wait}"
        return self.client.call("GET", f"/v1/sandboxes/{sandbox}/processes/{process}{query}")

    def post(self, sandbox, process, what, **body):
        return self.client.call("POST", f"/v1/sandboxes/{sandbox}/processes/{process}/{what}", body)

    def output(self, sandbox, process, query=""):
        return self.client.call("GET", f"/v1/sandboxes/{sandbox}/processes/{process}/output{query}")

    def text(self, sandbox, process, stream=None):
        """Everything it wrote, read by cursor in small pieces."""
        cursor, text = 0, b""
        while True:
            reply = self.output(sandbox, process, f"?cursor={cursor}&max_bytes=1000&encoding=base64" + (f"&stream={stream}" if stream else ""))
            for chunk in reply["chunks"]:
                text += base64.b64decode(chunk["data"])
            if reply["next_cursor"] == cursor:
                return text.decode()
            cursor = reply["next_cursor"]


class Processes(DaemonCase, Calls):
    def test_one_outlives_its_call_and_tells_its_end(self):
        box = self.sandbox()
        process = self.start(box, "echo out; echo err >&2; exit 7")
        end = self.process(box, process, wait=30)
        self.assertEqual((end["state"], end["exit_code"], end["cause"]), ("exited", 7, "exited"))
        self.assertEqual((end["stdout_bytes"], end["stderr_bytes"]), (4, 4))
        chunks = self.output(box, process)["chunks"]
        self.assertEqual({c["stream"]: c["data"] for c in chunks}, {"stdout": "out\n", "stderr": "err\n"})
        self.assertEqual(self.text(box, process, "stderr"), "err\n")
        self.assertEqual([p["id"] for p in self.client.call("GET", f"/v1/sandboxes/{box}/processes")["processes"]], [process])

    def test_what_cannot_start_says_why_and_is_not_listed(self):
        box = self.sandbox()
        self.refused("command_not_found", "POST", f"/v1/sandboxes/{box}/processes", {"command": ["no-such-program"]})
        self.refused("command_not_executable", "POST", f"/v1/sandboxes/{box}/processes", {"command": ["/etc/passwd"]})
        self.refused("invalid_argument", "POST", f"/v1/sandboxes/{box}/processes", {"command": ["true"], "workdir": "/nowhere"})
        self.assertEqual(self.client.call("GET", f"/v1/sandboxes/{box}/processes")["processes"], [])
        self.refused("not_found", "GET", f"/v1/sandboxes/{box}/processes/p99")
        self.refused("not_found", "GET", f"/v1/sandboxes/{box}/processes/nonsense")

    def test_input_flows_until_it_is_closed(self):
        box = self.sandbox()
        process = self.start(box, ["cat"], stdin_open=True, stdin="first\n")
        self.assertEqual(self.post(box, process, "stdin", data="second\n"), {"written_bytes": 7})
        self.post(box, process, "stdin", data_base64=base64.b64encode(b"\xff\n").decode(), close=True)
        self.assertEqual(self.process(box, process, wait=30)["exit_code"], 0)
        self.assertEqual(base64.b64decode(self.output(box, process, "?encoding=base64")["chunks"][0]["data"])[:6], b"first\n")
        self.refused("bad_state", "POST", f"/v1/sandboxes/{box}/processes/{process}/stdin", {"data": "late"})

    def test_input_given_at_the_start_ends(self):
        box = self.sandbox()
        process = self.start(box, ["cat"], stdin="all of it")
        self.assertEqual(self.process(box, process, wait=30)["exit_code"], 0)
        self.assertEqual(self.text(box, process), "all of it")
        idle = self.start(box, ["cat"])  # no input: end of file at once
        self.assertEqual(self.process(box, idle, wait=30)["exit_code"], 0)

    def test_signals_reach_the_leader_or_all(self):
        box = self.sandbox()
        child = number(1)
        process = self.start(box, f"trap 'echo got; exit 5' TERM; sleep {child} & wait")
        wait_until(lambda: host_processes("sleep", child), "the child runs")
        self.post(box, process, "signal", signal="SIGTERM")
        self.assertEqual(self.process(box, process, wait=30)["exit_code"], 5)
        self.assertEqual(self.text(box, process), "got\n")
        self.assertTrue(host_processes("sleep", child))
        self.assertTrue(self.process(box, process)["streams_open"])
        self.post(box, process, "signal", signal=15, target="tree")
        wait_until(lambda: not host_processes("sleep", child), "the whole group got it")
        wait_until(lambda: not self.process(box, process)["streams_open"], "nothing of it lives")
        for signal in ("NONSENSE", 0, 999):
            self.refused("invalid_argument", "POST", f"/v1/sandboxes/{box}/processes/{process}/signal", {"signal": signal})

    def test_removal_kills_everything_and_takes_the_log_away(self):
        box = self.sandbox()
        first, second = number(2), number(3)
        process = self.start(box, f"sleep {first} & sleep {second}")
        wait_until(lambda: host_processes("sleep", first) and host_processes("sleep", second), "both run")
        self.client.call("DELETE", f"/v1/sandboxes/{box}/processes/{process}")
        self.assertFalse(host_processes("sleep", first) or host_processes("sleep", second))
        self.refused("not_found", "GET", f"/v1/sandboxes/{box}/processes/{process}")
        self.assertEqual(os.listdir(self.daemon.dir / "state" / "processes" / box), ["removed"])  # its number, which is not given again

    def test_a_time_out_ends_it_and_all_it_started(self):
        box = self.sandbox()
        child = number(4)
        process = self.start(box, f"echo before; sleep {child} & sleep {child}", timeout_seconds=0.3)
        end = self.process(box, process, wait=30)
        self.assertEqual((end["cause"], end["timed_out"], end["signal"]), ("timed_out", True, "SIGKILL"))
        self.assertEqual(self.text(box, process), "before\n")
        wait_until(lambda: not host_processes("sleep", child), "nothing of it lives")

    def test_rotation_is_told_as_a_gap(self):
        box = self.sandbox()
        process = self.start(box, "i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done", log_bytes=65536)
        end = self.process(box, process, wait=60)
        self.assertEqual(end["state"], "exited")
        self.assertGreater(end["output_begin"], 0)
        reply = self.output(box, process, "?cursor=0&max_bytes=1000000")
        self.assertEqual(reply["dropped_bytes"], end["output_begin"])
        text = "".join(c["data"] for c in reply["chunks"])
        self.assertTrue(text.endswith("line 29999\n"))
        events = self.follow(box, process)
        self.assertEqual(events[0], ("gap", {"dropped_bytes": end["output_begin"]}))

    def follow(self, box, process, query=""):
        """All events of a follower, to the last."""
        target = f"/v1/sandboxes/{box}/processes/{process}/output?follow=true{query}"
        _, _, lines = self.client.raw("GET", target, headers={"Accept": "application/x-ndjson"})
        events = [json.loads(line) for line in lines.splitlines()]
        return [(e.pop("event"), {k: v for k, v in e.items() if k != "id"}) for e in events]

    def test_followers_see_all_from_their_cursor_and_then_the_end(self):
        box = self.sandbox()
        process = self.start(box, "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done; printf '\\303'; sleep 0.1; printf '\\244'; exit 3")
        seen = [None] * 3
        readers = [threading.Thread(target=lambda n=n: seen.__setitem__(n, Processes.follow_alone(self, box, process))) for n in range(3)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        for events in seen:
            self.assertEqual("".join(e["data"] for name, e in events if name == "output"), "1\n2\n3\n4\n5\nä")
            self.assertEqual((events[-1][0], events[-1][1]["exit_code"]), ("exit", 3))
        self.assertEqual("".join(e["data"] for name, e in self.follow(box, process, "&cursor=4") if name == "output"), "3\n4\n5\nä")

    def follow_alone(self, box, process):
        other = Processes("follow")
        other.client = self.daemon.client()
        try:
            return other.follow(box, process)
        finally:
            other.client.close()

    def test_a_terminal_is_one(self):
        box = self.sandbox()
        process = self.start(box, ["sh"], terminal={"rows": 30, "columns": 90})
        socket = WebSocket(self.daemon.socket, f"/v1/sandboxes/{box}/processes/{process}/attach")
        self.addCleanup(socket.close)
        self.assertEqual(socket.status, 101)
        self.assertEqual(json.loads(socket.next()[1])["event"], "attached")
        seen = b""

        def until(what):
            nonlocal seen
            while what not in seen:
                opcode, data = socket.next()
                self.assertEqual((opcode, data[0]), (BINARY, 1))
                seen += data[1:]

        socket.send(BINARY, "tty; stty size; echo T=$TERM\n")
        until(b"T=xterm-256color\r\n")
        self.assertIn(b"/dev/pts/0", seen)
        self.assertIn(b"30 90", seen)
        socket.control(resize={"rows": 44, "columns": 111})
        socket.send(BINARY, "stty size; echo re''sized\n")
        until(b"resized\r\n")
        self.assertIn(b"44 111", seen)
        socket.send(BINARY, "sleep 1000 || echo inter''rupted\n")
        time.sleep(0.3)
        socket.send(BINARY, b"\x03")  # the terminal's own SIGINT, for the job in the foreground
        socket.send(BINARY, "echo al''ive; exit 4\n")
        until(b"alive\r\n")
        while True:
            opcode, data = socket.next()
            if opcode == TEXT:
                break
        end = json.loads(data)
        self.assertEqual((end["event"], end["process"]["exit_code"]), ("exit", 4))
        self.assertEqual(socket.next()[0], CLOSE)
        self.refused("bad_state", "POST", f"/v1/sandboxes/{box}/processes/{process}/resize", {"rows": 1, "columns": 1})

    def test_several_attach_and_leave_without_ending_it(self):
        box = self.sandbox()
        process = self.start(box, ["cat"], stdin_open=True)
        sockets = [WebSocket(self.daemon.socket, f"/v1/sandboxes/{box}/processes/{process}/attach") for _ in range(2)]
        for socket in sockets:
            socket.next()
        sockets[0].send(BINARY, "hello\n")
        for socket in sockets:
            self.assertEqual(socket.next(), (BINARY, b"\x01hello\n"))
        sockets[0].close()
        sockets[1].send(BINARY, "again\n")
        self.assertEqual(sockets[1].next(), (BINARY, b"\x01again\n"))
        sockets[1].control(nonsense=1)
        self.assertEqual(json.loads(sockets[1].next()[1])["event"], "error")
        sockets[1].control(close_stdin=True)
        end = json.loads(sockets[1].next()[1])
        self.assertEqual((end["event"], end["process"]["exit_code"]), ("exit", 0))
        sockets[1].close()

    def test_a_slow_attacher_costs_no_memory(self):
        box = self.sandbox()
        socket = WebSocket(self.daemon.socket, f"/v1/sandboxes/{box}/processes/" + self.start(
            box, ["sh", "-c", "dd if=/dev/zero bs=1M count=150 2>/dev/null | tr '\\0' x"], log_bytes=1 << 20) + "/attach")
        self.addCleanup(socket.close)
        process = self.client.call("GET", f"/v1/sandboxes/{box}/processes")["processes"][0]["id"]
        before = self.daemon.rss_kib()
        self.assertEqual(self.process(box, process, wait=60)["exit_code"], 0)
        self.assertLess(self.daemon.rss_kib() - before, 32 * 1024)
        total, gaps, end = 0, 0, None
        while end is None:
            opcode, data = socket.next()
            if opcode == BINARY:
                total += len(data) - 1
                continue
            event = json.loads(data)
            gaps += event.get("dropped_bytes", 0)
            end = event if event["event"] == "exit" else None
        self.assertEqual(total + gaps, 150 << 20)

    def test_ended_ones_are_remembered_up_to_a_bound(self):
        box = self.sandbox()
        ids = [self.start(box, ["true"]) for _ in range(70)]
        self.process(box, ids[-1], wait=30)
        wait_until(lambda: len(self.client.call("GET", f"/v1/sandboxes/{box}/processes")["processes"]) == 64, "64 are remembered")
        self.refused("not_found", "GET", f"/v1/sandboxes/{box}/processes/{ids[0]}")
        self.process(box, ids[-1])

    def test_a_sandbox_takes_its_processes_with_it(self):
        box = self.sandbox()
        child = number(5)
        self.start(box, ["sleep", child])
        self.client.delete(box)
        self.assertFalse(host_processes("sleep", child))
        wait_until(lambda: not (self.daemon.dir / "state" / "processes" / box).exists(), "its logs are gone")


class Crashes(OwnDaemonCase, Calls):
    # Twenty write numbered lines on both streams while hutchd is killed at random: each line once, each exit code.
    def test_a_killed_daemon_loses_neither_a_line_nor_an_exit_code(self):
        box = self.client.create()["id"]
        rounds, lines = 8, 4000
        script = f"i=0; while [ $i -lt {lines} ]; do echo o$i; echo e$i >&2; i=$((i+1)); done; exit $0"
        ids = {self.start(box, ["sh", "-c", script, str(n)]): n for n in range(20)}
        for _ in range(rounds):
            time.sleep(random.uniform(0.01, 0.25))
            self.daemon.kill()
            time.sleep(random.uniform(0, 0.1))
            self.restart()
        for process, code in ids.items():
            end = self.process(box, process, wait=120)
            self.assertEqual((end["state"], end["exit_code"], end["cause"]), ("exited", code, "exited"), process)
            self.assertEqual(end["output_lost_bytes"], 0)
            for stream, letter in (("stdout", "o"), ("stderr", "e")):
                self.assertEqual(self.text(box, process, stream).split(), [f"{letter}{i}" for i in range(lines)], process)

    def test_input_terminal_and_time_out_go_on_after_a_crash(self):
        box = self.client.create()["id"]
        cat = self.start(box, ["cat"], stdin_open=True)
        shell = self.start(box, ["sh"], terminal=True)
        timed = self.start(box, ["sleep", "1000"], timeout_seconds=2)
        ended = self.start(box, "echo done; exit 9")
        self.process(box, ended, wait=30)
        self.post(box, cat, "stdin", data="before\n")
        self.daemon.kill()
        self.restart()
        self.post(box, cat, "stdin", data="after\n", close=True)
        self.assertEqual(self.process(box, cat, wait=30)["exit_code"], 0)
        self.assertEqual(self.text(box, cat), "before\nafter\n")
        self.post(box, shell, "resize", rows=20, columns=70)
        self.post(box, shell, "stdin", data="stty size; exit 6\n")
        self.assertEqual(self.process(box, shell, wait=30)["exit_code"], 6)
        self.assertIn("20 70", self.text(box, shell))
        end = self.process(box, timed, wait=30)
        self.assertEqual((end["cause"], end["timed_out"]), ("timed_out", True))
        self.assertEqual(self.process(box, ended)["exit_code"], 9)
        self.assertEqual(self.text(box, ended), "done\n")
        fresh = self.start(box, ["true"])
        self.assertEqual(len({cat, shell, timed, ended, fresh}), 5)

    def test_an_end_while_no_daemon_is_there_is_told_by_the_next(self):
        box = self.client.create()["id"]
        process = self.start(box, "sleep 0.5; echo while away; exit 11")
        self.daemon.kill()
        time.sleep(1)
        self.restart()
        end = self.process(box, process, wait=30)
        self.assertEqual(end["exit_code"], 11)
        self.assertEqual(self.text(box, process), "while away\n")

    def test_an_orderly_stop_leaves_processes_running(self):
        box = self.client.create()["id"]
        process = self.start(box, "echo a; sleep 2; echo b")
        self.assertEqual(self.daemon.stop(), 0)
        self.restart()
        self.assertEqual(self.process(box, process, wait=30)["exit_code"], 0)
        self.assertEqual(self.text(box, process), "a\nb\n")

    def test_logs_of_sandboxes_that_ended_meanwhile_are_swept(self):
        box = self.client.create()["id"]
        self.start(box, ["sleep", "1000"])
        pid = self.client.get(box)["pid"]
        self.daemon.kill()
        os.kill(pid, 9)
        self.restart()
        wait_until(lambda: not (self.daemon.dir / "state" / "processes" / box).exists(), "its logs are gone")


if __name__ == "__main__":
    unittest.main()
