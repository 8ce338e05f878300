"""Events, metrics and statistics, through the socket, with curl and with hutch."""
import json
import os
import pathlib
import pty
import select
import signal
import socket
import subprocess
import termios
import threading
import time
import unittest

from cli import HUTCH, CliCase
from client import ApiError
from daemon import Daemon, wait_until
from prometheus import Metrics

LIFE = ["sandbox.creating", "sandbox.running", "sandbox.destroyed"]


class Follower:
    """GET /v1/events as lines, read on a thread."""

    def __init__(self, daemon, query=""):
        self.client = daemon.client(timeout=None)
        self.client.connection.request("GET", "/v1/events?follow=true" + query, headers={"Accept": "application/x-ndjson"})
        self.reply = self.client.connection.getresponse()
        self.events, self.ended = [], False
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()
        wait_until(lambda: self.events, "the stream begins")

    def read(self):
        try:
            for line in self.reply:
                self.events.append(json.loads(line))
        except OSError:
            pass
        except Exception as error:  # http.client: the connection was cut
            self.error = error
        self.ended = True

    def kinds(self):
        return [event["event"] for event in self.events]

    def await_kind(self, kind):
        wait_until(lambda: kind in self.kinds(), f"{kind} among {self.kinds()}")
        return next(event for event in self.events if event["event"] == kind)

    def close(self):
        if self.client.connection.sock:
            self.client.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.client.close()


class Events(CliCase):
    def follow(self, query=""):
        follower = Follower(self.daemon, query)
        self.addCleanup(follower.close)
        return follower

    def page(self, query=""):
        return self.client.call("GET", "/v1/events" + query)

    def test_a_life_is_told_as_it_happens(self):
        follower = self.follow()
        box = self.sandbox(name="box", labels={"team": "a"})
        self.client.exec(box, "exit 3")
        process = self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": ["/bin/true"]})["id"]
        follower.await_kind("process.exited")
        self.client.delete(box)
        follower.await_kind("sandbox.destroyed")
        told = [event for event in follower.events if event.get("sandbox") == box]
        self.assertEqual([event["event"] for event in told],
                         ["sandbox.creating", "sandbox.running", "exec.finished", "process.started", "process.exited", "sandbox.destroyed"])
        self.assertEqual({event["name"] for event in told}, {"box"})
        finished, started, exited, ended = told[2:]
        self.assertEqual((finished["detail"]["exit_code"], finished["detail"]["cause"]), (3, "exited"))
        self.assertEqual(started["detail"], {"process_id": process, "command": "/bin/true"})
        self.assertEqual((exited["detail"]["process_id"], exited["detail"]["exit_code"]), (process, 0))
        self.assertEqual(ended["detail"], {"cause": "deleted"})
        numbers = [int(event["cursor"].split("-")[1]) for event in told]
        self.assertEqual(numbers, sorted(set(numbers)))

    def test_filters_fit_exactly(self):
        one, two = self.sandbox(labels={"team": "a", "x": "y"}), self.sandbox(labels={"team": "b"})
        self.client.delete(one)
        self.client.delete(two)
        since = self.page()["events"][0]["at"]
        for query, wanted in ((f"?sandbox={one}", [one] * 3), (f"?sandbox={one}&sandbox={two}&kind=sandbox.destroyed", [one, two]),
                              (f"?label=team=a&label=x=y&sandbox={one}", [one] * 3), (f"?label=team=a&label=x=z&sandbox={one}", []),
                              (f"?kind=sandbox.running&kind=sandbox.creating&sandbox={two}", [two] * 2), (f"?since={since}&sandbox={two}", [two] * 3)):
            self.assertEqual([event["sandbox"] for event in self.page(query)["events"]], wanted, query)
        self.refused("invalid_argument", "GET", "/v1/events?kind=nothing")

    def test_what_memory_kills_is_told(self):
        box = self.sandbox(limits={"memory_bytes": 32 << 20})
        self.client.exec(box, "x=a; while true; do x=$x$x$x$x; done")
        oom, finished = self.page(f"?sandbox={box}&kind=sandbox.oom&kind=exec.finished")["events"]
        self.assertEqual((oom["kind"], finished["detail"]["cause"]), ("sandbox.oom", "out_of_memory"))
        self.assertEqual(oom["detail"]["process_id"], finished["detail"]["process_id"])

    def test_what_the_network_refuses_is_told(self):
        box = self.sandbox(name="walled", labels={"team": "n"}, network={"mode": "allowlist", "allow": ["allowed.example"]})
        before = self.metrics()
        follower = self.follow("&label=team=n")
        self.client.exec(box, "nslookup refused.example 127.0.0.1")
        denied = follower.await_kind("network.denied")
        self.assertEqual((denied["sandbox"], denied["name"], denied["detail"]["protocol"], denied["detail"]["host"]),
                         (box, "walled", "dns", "refused.example"))
        self.assertGreater(self.metrics().value("hutch_network_denials_total", protocol="dns"), before.value("hutch_network_denials_total", protocol="dns"))
        self.assertGreater(self.client.call("GET", f"/v1/sandboxes/{box}/stats")["network"]["names_denied"], 0)
        self.client.call("PATCH", f"/v1/sandboxes/{box}", {"network": {"mode": "none"}})
        self.assertEqual(follower.await_kind("network.changed")["detail"]["mode"], "none")

    def test_images_are_told(self):
        cursor = self.page()["next_cursor"]
        self.daemon.import_busybox()
        self.client.call("POST", "/v1/images/busybox:latest/tag", {"reference": "events:1"})
        self.client.call("DELETE", "/v1/images/events:1")
        told = self.page(f"?cursor={cursor}&kind=image.imported&kind=image.deleted")["events"]
        self.assertEqual([(event["kind"], event["detail"]["image"]) for event in told],
                         [("image.imported", "busybox:latest"), ("image.imported", "events:1"), ("image.deleted", "events:1")])

    def test_curl_sees_server_sent_events_with_ids(self):
        box = self.sandbox()
        done = subprocess.run(["curl", "-sS", "--unix-socket", self.daemon.socket, "-H", "Accept: text/event-stream",
                               f"http://hutch/v1/events?follow=false&sandbox={box}"], capture_output=True, check=True, timeout=60)
        blocks = [dict(line.split(": ", 1) for line in block.split("\n")) for block in done.stdout.decode().strip().split("\n\n")]
        self.assertEqual([block["event"] for block in blocks], ["following", "sandbox.creating", "sandbox.running"])
        for block in blocks[1:]:
            self.assertEqual(block["id"], json.loads(block["data"])["cursor"])

    def test_hutch_events(self):
        box = self.sandbox(name="shown")
        process = self.start("events", "--sandbox", "shown", "--since", "1h", "--json")
        for kind in ("following", "lost", "sandbox.creating", "sandbox.running"):
            self.assertEqual(json.loads(process.stdout.readline())["event"], kind)
        self.client.delete(box)
        self.assertEqual(json.loads(process.stdout.readline())["event"], "sandbox.destroyed")
        text = self.text("events", "--no-follow", "--sandbox", box, "--kind", "sandbox.destroyed")
        self.assertRegex(text, rf'^\S+Z  sandbox\.destroyed  {box} \(shown\)  {{"cause":"deleted"}}\n$')
        self.assertEqual(self.hutch("events", "--kind", "nothing").returncode, 1)

    def test_slow_readers_cost_no_memory_and_lose_nothing_that_is_kept(self):
        box = self.sandbox()
        cursor = self.page()["next_cursor"]
        slow = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2)]
        for sock in slow:
            self.addCleanup(sock.close)
            sock.connect(self.daemon.socket)
            sock.sendall(b"GET /v1/events?follow=true HTTP/1.1\r\nHost: h\r\nAccept: application/x-ndjson\r\n\r\n")
        wait_until(lambda: self.metrics().value("hutch_event_followers") >= 2, "both follow")
        for _ in range(50):
            self.client.exec(box, ["/bin/true"], track_files=False)
        before = self.daemon.rss_kib()
        for _ in range(1000):
            self.client.exec(box, ["/bin/true"], track_files=False)
        self.assertLess(self.daemon.rss_kib() - before, 8 * 1024)
        finished = []
        while True:
            page = self.page(f"?cursor={cursor}&kind=exec.finished")
            self.assertIsNone(page["lost"])
            finished += page["events"]
            if not page["events"]:
                break
            cursor = page["next_cursor"]
        self.assertEqual(len(finished), 1050)
        for sock in slow:
            sock.settimeout(60)
            text = b""
            while text.count(b"exec.finished\",\"id") < 1050:
                piece = sock.recv(1 << 16)
                self.assertTrue(piece, "the stream ended")
                text += piece
            self.assertNotIn(b'"lost"', text)

    def metrics(self):
        return Metrics(self.client.raw("GET", "/v1/metrics")[2].decode())


class Restarts(unittest.TestCase):
    def test_an_old_cursor_is_never_misread(self):
        daemon = Daemon().start()
        self.addCleanup(daemon.close)
        daemon.import_busybox()
        client = daemon.client()
        lives, ends = client.create(name="lives")["id"], client.create()["id"]
        follower = Follower(daemon)
        client.delete(ends)
        cursor = follower.await_kind("sandbox.destroyed")["cursor"]
        client.close()
        daemon.kill()
        wait_until(lambda: follower.ended, "the stream ends with the daemon")
        follower.close()
        daemon.start()
        client = daemon.client()
        self.addCleanup(client.close)
        page = client.call("GET", f"/v1/events?cursor={cursor}")
        self.assertEqual(page["lost"], {"events": None, "restarted": True})
        self.assertEqual([(event["kind"], event["sandbox"]) for event in page["events"]], [("daemon.started", None), ("sandbox.running", lives)])
        self.assertTrue(page["events"][1]["detail"]["taken_up"])
        follower = Follower(daemon, f"&cursor={cursor}")
        client.delete(lives)
        follower.await_kind("sandbox.destroyed")
        self.assertEqual(follower.kinds(), ["following", "lost", "daemon.started", "sandbox.running", "sandbox.destroyed"])
        follower.close()

    def test_a_daemon_that_stops_ends_the_streams_at_once(self):
        daemon = Daemon(config={"limits": {"shutdown_seconds": 300}}).start()
        self.addCleanup(daemon.close)
        follower = Follower(daemon)
        stuck = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.addCleanup(stuck.close)
        stuck.connect(daemon.socket)
        stuck.sendall(b"GET /v1/events?follow=true HTTP/1.1\r\nHost: h\r\nAccept: text/event-stream\r\n\r\n")
        wait_until(lambda: b"following" in stuck.recv(4096, socket.MSG_PEEK), "it follows")
        self.assertEqual(daemon.stop(), 0)
        wait_until(lambda: follower.ended, "the stream ends")
        self.assertEqual(follower.kinds(), ["following", "daemon.stopping"])
        follower.close()
        daemon.start()


class Numbers(CliCase):
    def metrics(self):
        status, headers, body = self.client.raw("GET", "/v1/metrics")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4; charset=utf-8"))
        return Metrics(body.decode())

    def test_counters_move_by_what_was_done(self):
        self.metrics()
        before = self.metrics()
        one, two = self.sandbox(), self.sandbox()
        for _ in range(3):
            self.client.exec(one, ["/bin/true"])
        self.client.exec(one, "kill -9 $$")
        self.refused("command_not_found", "POST", f"/v1/sandboxes/{one}/exec", {"command": ["no-such-program"]})
        self.client.call("POST", f"/v1/sandboxes/{two}/processes", {"command": ["/bin/true"]})
        wait_until(lambda: self.client.call("GET", f"/v1/sandboxes/{two}/processes/p1?wait_seconds=60")["state"] != "running", "it ended")
        middle = self.metrics()
        self.assertEqual(middle.value("hutch_sandboxes", state="running") - before.value("hutch_sandboxes", state="running"), 2)
        self.assertEqual(middle.value("hutch_memory_granted_bytes") - before.value("hutch_memory_granted_bytes"), 2 * 512 << 20)
        self.client.delete(one)
        self.client.delete(two)
        moved = {key: by for key, by in self.metrics().moved(before).items()
                 if key[0].endswith("_total") or key[0].endswith("_seconds_count")}

        def by(name, **labels):
            return moved.pop((name, tuple(sorted(labels.items()))), 0)

        self.assertEqual(by("hutch_sandbox_creations_total", outcome="running"), 2)
        self.assertEqual(by("hutch_sandbox_create_seconds_count"), 2)
        self.assertEqual(by("hutch_sandbox_ends_total", cause="deleted"), 2)
        self.assertEqual(by("hutch_execs_total", cause="exited"), 3)
        self.assertEqual(by("hutch_execs_total", cause="signaled"), 1)
        self.assertEqual(by("hutch_execs_total", cause="failed"), 1)
        self.assertEqual(by("hutch_exec_seconds_count"), 4)
        self.assertEqual(by("hutch_processes_started_total"), 1)
        self.assertEqual(by("hutch_processes_ended_total", cause="exited"), 1)
        for kind, count in (("sandbox.creating", 2), ("sandbox.running", 2), ("sandbox.destroyed", 2), ("exec.finished", 5),
                            ("process.started", 1), ("process.exited", 1)):
            self.assertEqual(by("hutch_events_total", kind=kind), count, kind)
        for method, route, status, count in (("POST", "", 201, 2), ("DELETE", "/{id}", 204, 2), ("POST", "/{id}/exec", 200, 4),
                                             ("POST", "/{id}/exec", 422, 1), ("POST", "/{id}/processes", 201, 1)):
            self.assertEqual(by("hutch_http_requests_total", method=method, route="/v1/sandboxes" + route, status=str(status)), count, route)
        self.assertEqual(by("hutch_http_requests_total", method="GET", route="/v1/metrics", status="200"), 2)
        by("hutch_http_requests_total", method="GET", route="/v1/sandboxes/{id}/processes/{process}", status="200")
        unexplained = {key for key in moved if not key[0].startswith(("hutch_sandbox_create_phase", "hutch_host_pressure", "hutch_cpu_seconds"))}
        self.assertEqual(unexplained, set())

    def test_how_things_stand(self):
        metrics = self.metrics()
        descriptors = self.daemon.fds()
        self.assertAlmostEqual(metrics.value("hutch_open_files"), descriptors, delta=3)
        self.assertEqual(metrics.value("hutch_info", version=self.client.call("GET", "/v1/info")["version"]), 1)
        self.assertEqual(metrics.value("hutch_host_memory_bytes"), os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self.assertGreaterEqual(metrics.value("hutch_http_connections"), 1)
        self.assertEqual(metrics.value("hutch_http_requests_under_way"), 1)
        if pathlib.Path("/proc/pressure/cpu").exists():
            self.assertIn(("hutch_host_pressure_seconds_total", (("resource", "cpu"), ("share", "some"))), metrics.samples)

    def test_statistics_are_of_what_is_done_inside(self):
        box = self.sandbox(name="busy")
        path = f"/v1/sandboxes/{box}/stats"
        idle = self.client.call("GET", path)
        self.client.exec(box, "head -c 8388608 /dev/zero > /tmp/a; i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
        busy = self.client.call("GET", path)
        self.assertGreater(busy["cpu"]["usage_us"], idle["cpu"]["usage_us"] + 50000)
        self.assertGreaterEqual(busy["disk"]["used_bytes"] - idle["disk"]["used_bytes"], 8 << 20)
        self.assertEqual(busy["disk"]["limit_bytes"], 1 << 30)
        self.assertGreater(busy["memory"]["current_bytes"], 8 << 20)
        self.assertEqual((busy["memory"]["limit_bytes"], busy["pids"]["limit"], busy["cpu"]["limit"]), (512 << 20, 256, 1))
        self.assertEqual((busy["id"], busy["name"]), (box, "busy"))
        if pathlib.Path("/proc/pressure/cpu").exists():
            self.assertGreater(busy["pressure"]["cpu"]["some"]["total_us"], -1)
        self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": "while true; do :; done"})
        stream = subprocess.Popen(["curl", "-sSN", "--unix-socket", self.daemon.socket, "-H", "Accept: application/x-ndjson", "http://hutch" + path],
                                  stdout=subprocess.PIPE)
        self.addCleanup(stream.stdout.close)
        self.addCleanup(stream.wait)
        lines = [json.loads(stream.stdout.readline()) for _ in range(3)]
        self.assertEqual({line["event"] for line in lines}, {"stats"})
        self.assertGreater(lines[2]["cpu"]["percent"], 10)
        self.assertGreaterEqual(lines[2]["processes"], 1)
        self.client.delete(box)
        rest = [json.loads(line) for line in stream.stdout]
        self.assertEqual(rest[-1]["event"], "end")
        self.refused("bad_state", "GET", path)

    def test_hutch_stats_and_top_print_once_without_a_terminal(self):
        idle, busy = self.sandbox(name="idle"), self.sandbox(name="busy")
        self.client.call("POST", f"/v1/sandboxes/{busy}/processes", {"command": "while true; do :; done"})
        self.assertEqual([row["name"] for row in json.loads(self.text("top", "--json"))["stats"]], ["busy", "idle"])
        lines = self.text("top").splitlines()
        self.assertEqual([line.split()[1] for line in lines], ["NAME", "busy", "idle"])
        self.assertGreater(float(lines[1].split()[2]), 10)
        self.assertEqual(self.text("stats", "idle", "--no-stream").splitlines()[1].split()[:2], [idle, "idle"])
        self.assertEqual(self.hutch("stats", "no-such").returncode, 1)
        self.assertEqual(self.hutch("top", "--sort", "name").returncode, 1)

    def terminal(self, *words):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        self.addCleanup(os.close, slave)
        former = termios.tcgetattr(slave)
        process = subprocess.Popen([HUTCH, *words], stdin=slave, stdout=slave, stderr=slave, env={**self.environment(), "TERM": "xterm"},
                                   start_new_session=True)
        return process, master, former

    def screen_until(self, master, text):
        seen, deadline = b"", time.monotonic() + 60
        while text not in seen:
            self.assertLess(time.monotonic(), deadline, seen)
            if select.select([master], [], [], 1)[0]:
                seen += os.read(master, 65536)
        return seen

    def test_top_on_a_terminal_leaves_it_as_it_was(self):
        self.sandbox(name="shown")
        for words, end in ((("top",), b"q"), (("top",), b"\x03"), (("stats",), b"q"), (("top",), signal.SIGTERM)):
            process, master, former = self.terminal(*words)
            self.screen_until(master, b"shown")
            self.assertFalse(termios.tcgetattr(master)[3] & termios.ICANON)
            if words == ("top",):
                os.write(master, b"m")
                self.screen_until(master, b"by memory;")
            if isinstance(end, bytes):
                os.write(master, end)
            else:
                process.send_signal(end)
            self.assertEqual(process.wait(timeout=60), 0 if isinstance(end, bytes) else 128 + end)
            self.assertEqual(termios.tcgetattr(master), former)


if __name__ == "__main__":
    unittest.main()
