"""How long sandboxes live, and how they pause: states, waiting, renewals, freezing, and what a killed hutchd remembers of it."""
import json
import os
import pathlib
import statistics
import threading
import time
import unittest

from cli import CliCase
from client import ApiError
from daemon import OwnDaemonCase, cgroup_roots, host_processes, wait_until


def moves(sandbox):
    return [(entry["state"], entry["cause"]) for entry in sandbox["history"]]


def number(offset):
    return str(300000 + os.getpid() * 20 + offset)


class LifeCase(CliCase):
    def post(self, sandbox, verb, body=None):
        return self.client.call("POST", f"/v1/sandboxes/{sandbox}/{verb}", body)

    def pause(self, sandbox, **body):
        return self.post(sandbox, "pause", body)

    def resume(self, sandbox):
        return self.post(sandbox, "resume")

    def patch(self, sandbox, **timeouts):
        return self.client.call("PATCH", f"/v1/sandboxes/{sandbox}", {"timeouts": timeouts})

    def wait(self, sandbox, states, seconds=60):
        return self.client.call("GET", f"/v1/sandboxes/{sandbox}?wait={states}&timeout_seconds={seconds}")

    def events(self, sandbox):
        return [(e["kind"], e["detail"]) for e in self.client.call("GET", f"/v1/events?sandbox={sandbox}")["events"]]

    def background(self, sandbox, command, **fields):
        return self.client.call("POST", f"/v1/sandboxes/{sandbox}/processes", {"command": command, **fields})["id"]

    def process(self, sandbox, process):
        return self.client.call("GET", f"/v1/sandboxes/{sandbox}/processes/{process}")


class States(LifeCase):
    def test_a_life_is_told_with_causes_and_times(self):
        box = self.sandbox()
        self.pause(box)
        self.resume(box)
        self.client.delete(box)
        ended = self.client.get(box)
        self.assertEqual(moves(ended), [("creating", "requested"), ("running", "ready"), ("paused", "requested"),
                                        ("running", "requested"), ("destroyed", "deleted")])
        times = [entry["at"] for entry in ended["history"]]
        self.assertEqual(times, sorted(times))
        self.assertEqual((ended["state"], ended["cause"], ended["ended_at"]), ("destroyed", "deleted", times[-1]))
        self.assertEqual([kind for kind, _ in self.events(box)],
                         ["sandbox.creating", "sandbox.running", "sandbox.paused", "sandbox.resumed", "sandbox.destroyed"])

    def test_what_could_not_be_made_is_kept_with_its_error(self):
        before = {s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]}
        with self.assertRaises(ApiError):
            self.client.create(relax={"seccomp": {"defaultAction": "SCMP_ACT_KILL_PROCESS"}})
        after = [s for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"] if s["id"] not in before]
        self.assertEqual([(s["state"], s["cause"]) for s in after], [("failed", "not_made")])
        self.assertTrue(after[0]["error"]["message"])

    def test_waiting(self):
        box = self.sandbox()
        self.assertEqual(self.wait(box, "running")["state"], "running")
        self.assertEqual(self.refused("precondition_failed", "GET", f"/v1/sandboxes/{box}?wait=paused&timeout_seconds=0")["message"],
                         f"sandbox {box} is running still")
        waiter = self.start("wait", box, "--for", "paused,expired")
        time.sleep(0.2)
        self.assertIsNone(waiter.poll())
        self.pause(box)
        self.assertEqual(waiter.wait(60), 0)
        self.assertEqual(self.hutch("wait", box, "--for", "running", "--timeout", "1").returncode, 124)
        waiter = self.start("wait", box, "--for", "running")
        self.client.delete(box)
        self.assertEqual(waiter.wait(60), 1)
        self.assertEqual(self.hutch("wait", box, "--for", "destroyed").returncode, 0)
        self.assertEqual(self.hutch("wait", box, "--for", "started").returncode, 125)


class Timeouts(LifeCase):
    config = {"expiry_warning_seconds": 1}

    def test_a_lifetime_is_accurate_to_a_second_and_announced(self):
        made = self.client.create(timeouts={"lifetime_seconds": 3})
        begun = time.monotonic()
        ended = self.wait(made["id"], "expired")
        took = time.monotonic() - begun
        print(f"\na lifetime of 3 s took {took:.3f} s")
        self.assertEqual((ended["state"], ended["cause"]), ("expired", "lifetime"))
        self.assertGreater(took, 2.5)
        self.assertEqual([e for e in self.events(made["id"]) if e[0] == "sandbox.expiring"],
                         [("sandbox.expiring", {"reason": "lifetime", "seconds_left": 1})])

    def test_they_change_while_it_lives(self):
        box = self.sandbox(timeouts={"idle_seconds": 1, "lifetime_seconds": 2})
        changed = self.patch(box, idle_seconds=0, lifetime_seconds=0)
        self.assertEqual((changed["expires_at"], changed["idle_expires_at"]), (None, None))
        time.sleep(2.5)
        self.assertEqual(self.client.get(box)["state"], "running")
        self.patch(box, idle_seconds=1)
        self.assertEqual(self.wait(box, "expired")["cause"], "idle_timeout")
        self.assertEqual(self.refused("invalid_argument", "PATCH", f"/v1/sandboxes/{self.sandbox()}",
                                      {"timeouts": {"on_expiry": "freeze"}})["field"], "timeouts.on_expiry")

    def test_one_that_is_to_pause_is_not_destroyed(self):
        box = self.sandbox(timeouts={"idle_seconds": 1, "on_expiry": "pause"})
        self.client.exec(box, "echo mine > /workspace/file")
        self.assertEqual(self.wait(box, "paused")["cause"], "idle_timeout")
        self.assertEqual(self.client.output(box, "cat /workspace/file", resume=True), "mine\n")
        self.assertEqual(moves(self.client.get(box))[-1], ("running", "exec"))
        self.assertEqual(self.wait(box, "paused")["cause"], "idle_timeout")
        self.patch(box, lifetime_seconds=3600, idle_seconds=0)
        self.assertEqual(self.resume(box)["state"], "running")

    def test_a_lifetime_that_is_over_is_not_gone_around(self):
        box = self.sandbox(timeouts={"lifetime_seconds": 1, "on_expiry": "pause"})
        self.assertEqual(self.wait(box, "paused")["cause"], "lifetime")
        self.refused("bad_state", "POST", f"/v1/sandboxes/{box}/resume")
        self.refused("bad_state", "POST", f"/v1/sandboxes/{box}/exec", {"command": "true", "resume": True})
        self.refused("invalid_argument", "PATCH", f"/v1/sandboxes/{box}", {"timeouts": {"lifetime_seconds": 1}})
        self.patch(box, lifetime_seconds=0)
        self.assertEqual(self.resume(box)["state"], "running")

    def test_no_expiry_after_an_acknowledged_renewal(self):
        """64 clients renew a sandbox of 2 s for as long as it lives, at random times around its deadline."""
        renewed, refused = [], []
        late = []

        def renew(box, rounds):
            client = self.daemon.client()
            try:
                for delay in rounds:
                    time.sleep(delay)
                    asked = time.time()
                    try:
                        client.call("POST", f"/v1/sandboxes/{box}/heartbeat")
                        renewed.append((box, asked))
                    except ApiError as error:
                        self.assertIn(error.code, ("bad_state", "not_found"))
                        refused.append((box, asked))
                        return
            finally:
                client.close()

        for turn in range(3):
            box = self.sandbox(timeouts={"idle_seconds": 2})
            threads = [threading.Thread(target=renew, args=(box, [(i * 37 % 64) / 640, 1.9 + (i * 29 % 64) / 320])) for i in range(64)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            ended = self.wait(box, "expired")
            self.assertEqual(ended["cause"], "idle_timeout")
            last = max((asked for name, asked in renewed if name == box), default=None)
            end = ended["ended_at"]
            ended_at = time.mktime(time.strptime(end[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone + float(end[19:-1])
            if ended_at < last + 2 - 0.005:
                late.append((turn, ended_at - last))
        print(f"\n{len(renewed)} renewals acknowledged, {len(refused)} refused")
        self.assertGreater(len(renewed), 64)
        self.assertEqual(late, [], "expired before an acknowledged renewal allowed it")


class Pause(LifeCase):
    def beats(self, box):
        """Whether something in it goes on, seen from outside."""
        first = self.output_bytes(box)
        time.sleep(0.2)
        return self.output_bytes(box) != first

    def output_bytes(self, box):
        return self.process(box, "p1")["stdout_bytes"]

    def test_nothing_goes_on_while_it_is_paused(self):
        box = self.sandbox(name="frozen", ports=[8080])
        self.background(box, "while true; do echo beat; sleep 0.01; done")
        wait_until(lambda: self.output_bytes(box) > 0, "it beats")
        paused = self.pause(box)
        self.assertEqual((paused["state"], paused["idle_expires_at"]), ("paused", None))
        self.assertIn("frozen 1", self.group_file(box, "cgroup.events"))
        time.sleep(0.1)  # what was in the pipe
        self.assertFalse(self.beats(box))
        for method, path, body in (("POST", "exec", {"command": "true"}), ("POST", "processes", {"command": "true"}),
                                   ("GET", "files?path=/workspace", None), ("PUT", "files/workspace/a", b"x"), ("GET", "ports", None),
                                   ("GET", "proxy/8080/", None), ("POST", "heartbeat", None)):
            error = self.refused("bad_state", method, f"/v1/sandboxes/{box}/{path}", body)
            self.assertEqual(error["message"], f"sandbox {box} is paused", path)
        self.assertRegex(self.text("ls"), rf"{box} +frozen +paused ")
        self.assertEqual(self.client.call("GET", "/v1/info")["counts"]["paused"], 1)
        self.assertEqual(self.pause(box)["state"], "paused")  # again is no error
        self.assertEqual(self.resume(box)["state"], "running")
        wait_until(lambda: self.beats(box), "it goes on")
        self.assertEqual(self.client.output(box, "echo ok"), "ok\n")

    def group_file(self, box, name):
        for root in cgroup_roots():
            path = pathlib.Path(root + self.daemon.parent, "sandboxes", box, "work", name)
            if path.exists():
                return path.read_text()
        self.fail(f"no {name}")

    def test_memory_is_given_back(self):
        box = self.sandbox()
        try:
            paused = self.pause(box, reclaim=True)
        except ApiError as error:
            self.assertEqual(error.code, "unsupported")
            self.assertEqual(self.client.get(box)["state"], "running")
            return
        self.assertGreaterEqual(paused["reclaimed_bytes"], 0)
        self.resume(box)
        self.assertEqual(self.client.output(box, "echo ok"), "ok\n")

    def test_how_long_it_takes(self):
        box = self.sandbox()
        self.background(box, "while true; do :; done")
        took = {"pause": [], "resume": []}
        for _ in range(40):
            for verb, body in (("pause", {}), ("resume", None)):
                begun = time.monotonic()
                self.post(box, verb, body)
                took[verb].append((time.monotonic() - begun) * 1000)
        for verb, times in took.items():
            times.sort()
            print(f"\n{verb}: p50 {statistics.median(times):.2f} ms, p95 {times[37]:.2f} ms, most {times[-1]:.2f} ms", end="")

    def test_time_outs_of_commands_stand_still(self):
        box = self.sandbox()
        results = []

        def run():
            client = self.daemon.client()
            results.append(client.exec(box, "sleep 2; echo done", timeout_seconds=4))
            client.close()

        thread = threading.Thread(target=run)
        thread.start()
        process = self.background(box, "sleep 2; echo done", timeout_seconds=4)
        wait_until(lambda: self.client.get(box)["processes"] == 2, "both run")
        self.pause(box)
        time.sleep(5)
        self.assertEqual(results, [])
        self.resume(box)
        thread.join()
        self.assertEqual((results[0]["cause"], results[0]["stdout"]), ("exited", "done\n"))
        wait_until(lambda: self.process(box, process)["state"] == "exited", "it ends")
        self.assertEqual(self.process(box, process)["cause"], "exited")

    def test_idle_time_stands_still_and_a_lifetime_does_not(self):
        box = self.sandbox(timeouts={"idle_seconds": 1})
        self.pause(box)
        time.sleep(1.5)
        self.assertEqual(self.client.get(box)["state"], "paused")
        self.resume(box)
        self.assertEqual(self.wait(box, "expired")["cause"], "idle_timeout")
        box = self.sandbox(timeouts={"lifetime_seconds": 2})
        self.pause(box)
        ended = self.wait(box, "expired")
        self.assertEqual((ended["cause"], moves(ended)[-2][0]), ("lifetime", "paused"))

    def test_what_is_paused_can_be_destroyed_and_killed(self):
        sleeper = number(1)
        box = self.sandbox(limits={"pids": 60})
        process = self.background(box, f"sleep {sleeper}")
        self.background(box, "f() { f | f & f; }; f")  # and a fork bomb
        wait_until(lambda: host_processes("sleep", sleeper), "it runs")
        self.pause(box)
        self.client.call("DELETE", f"/v1/sandboxes/{box}/processes/{process}")
        self.assertFalse(host_processes("sleep", sleeper))
        self.client.delete(box)
        self.assertFalse([g for g in self.daemon.groups() if box in g])

    def test_an_agent_that_dies_while_paused_is_noticed(self):
        made = self.client.create()
        self.pause(made["id"])
        os.kill(made["pid"], 9)
        self.assertEqual(self.wait(made["id"], "failed")["cause"], "agent_died")

    def test_by_the_command_line(self):
        box = self.sandbox()
        self.text("pause", box)
        self.assertEqual(json.loads(self.text("inspect", box))["state"], "paused")
        self.assertEqual(self.hutch("exec", box, "--", "true").returncode, 125)
        self.assertEqual(self.text("exec", box, "--resume", "--", "echo", "on"), "on\n")
        self.text("pause", box)
        self.text("resume", box)
        self.assertEqual(self.text("exec", box, "--", "echo", "on"), "on\n")


class Restart(OwnDaemonCase):
    def restart(self):
        self.daemon.kill()
        super().restart()

    def test_what_was_told_is_still_so(self):
        paused = self.client.create(name="paused")["id"]
        kept = self.client.create(name="kept", timeouts={"idle_seconds": 20})["id"]
        process = self.client.call("POST", f"/v1/sandboxes/{paused}/processes",
                                   {"command": "echo begun; sleep 2; echo done", "timeout_seconds": 5})["id"]
        self.client.call("POST", f"/v1/sandboxes/{paused}/pause", {})
        self.client.call("PATCH", f"/v1/sandboxes/{kept}", {"timeouts": {"idle_seconds": 30, "activity": ["heartbeat"]}})
        self.client.call("POST", f"/v1/sandboxes/{kept}/heartbeat")
        before = {name: self.client.get(name) for name in ("paused", "kept")}
        for _ in range(6):  # more than an agent that does not answer would have room for
            self.restart()
        for name, sandbox in before.items():
            after = self.client.get(name)
            for field in ("id", "state", "cause", "history", "timeouts", "expires_at", "idle_expires_at", "pid"):
                self.assertEqual(after[field], sandbox[field], (name, field))
        with self.assertRaises(ApiError) as caught:
            self.client.exec("paused", "true")
        self.assertEqual(caught.exception.code, "bad_state")
        time.sleep(4)  # its time-out would be over
        self.client.call("POST", "/v1/sandboxes/paused/resume")
        wait_until(lambda: self.client.call("GET", f"/v1/sandboxes/{paused}/processes/{process}")["state"] == "exited", "it ends")
        ended = self.client.call("GET", f"/v1/sandboxes/{paused}/processes/{process}")
        self.assertEqual((ended["cause"], ended["stdout_bytes"]), ("exited", len("begun\ndone\n")))
        self.assertEqual(self.client.output("paused", "echo ok"), "ok\n")


if __name__ == "__main__":
    unittest.main()
