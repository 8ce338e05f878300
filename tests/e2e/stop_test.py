"""Sandboxes that are stopped and started again: what they wrote, what they were, and what a killed hutchd makes of them."""
import contextlib
import json
import pathlib
import random
import shutil
import subprocess
import threading
import time
import unittest

from cli import CliCase
from client import ApiError
from daemon import Daemon, OwnDaemonCase, wait_until

# One of everything that can be written, in a directory and over the image's own files.
WRITE = r"""set -e
mkdir -p {top}/a/b {top}/a/empty
echo one > {top}/a/one
ln {top}/a/one {top}/a/b/uno
ln -s ../one {top}/a/b/link
mkfifo {top}/a/pipe
dd if=/dev/zero of={top}/a/sparse bs=4096 count=1 seek=1000 2>/dev/null
dd if=/dev/urandom of={top}/a/noise bs=65536 count=5 2>/dev/null
echo run > {top}/a/setid
chown 1000:2000 {top}/a/b {top}/a/noise
chown -h 7:8 {top}/a/b/link
chmod 4755 {top}/a/setid
chmod 1777 {top}/a/empty
chmod 0 {top}/a/noise
touch -d @1000000000 {top}/a/one {top}/a/b
touch -h -d @1100000000 {top}/a/b/link"""
OVER_IMAGE = r"""
rm /bin/false
rm -r /etc
mkdir /etc
echo mine > /etc/only
chmod 700 /root"""
# Directories by what matters of them, files by all there is.
LOOK = r"""find {tops} -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \) -prune -o -print | sort > /tmp/names
while read -r name; do
  if [ -d "$name" ] && [ ! -h "$name" ]; then stat -c '%n %F %a %u %g %Y' "$name"
  else stat -c '%n %F %a %u %g %h %s %b %Y' "$name"; fi
  if [ -f "$name" ] && [ ! -h "$name" ]; then md5sum < "$name"; fi
  if [ -h "$name" ]; then readlink "$name"; fi
done < /tmp/names; rm /tmp/names"""


def moves(sandbox):
    return [(entry["state"], entry["cause"]) for entry in sandbox["history"]]


def stop(client, box, **body):
    return client.call("POST", f"/v1/sandboxes/{box}/stop", body)


def start(client, box):
    return client.call("POST", f"/v1/sandboxes/{box}/start")


class Stopping(CliCase):
    def setUp(self):
        super().setUp()
        self.stopped = pathlib.Path(self.daemon.dir, "state", "stopped")

    def refuses(self, code, method, path, body=None):
        with self.assertRaises(ApiError) as refused:
            self.client.call(method, path, body)
        self.assertEqual(refused.exception.code, code)
        return refused.exception.error

    def check_tree(self, readonly):
        box = self.client.create(user="0", rootfs={"readonly": readonly})["id"]
        top, tops = ("/workspace", "/workspace /home") if readonly else ("/srv", "/")
        self.client.output(box, WRITE.format(top=top) + ("" if readonly else OVER_IMAGE))
        seen = self.client.output(box, LOOK.format(tops=tops), timeout_seconds=120)
        self.assertIn(f"{top}/a/b/uno regular file 644 0 0 2 4 8 1000000000", seen)
        self.assertIn(f"{top}/a/setid regular file 4755", seen)
        for round in (1, 2):
            self.assertEqual(stop(self.client, box)["state"], "stopped")
            self.assertEqual(start(self.client, box)["state"], "running")
            after = self.client.output(box, LOOK.format(tops=tops), timeout_seconds=120)
            self.assertEqual(after.splitlines(), seen.splitlines(), f"round {round}")
        self.client.output(box, f"echo two >> {top}/a/one")
        self.assertEqual(self.client.output(box, f"cat {top}/a/b/uno"), "one\ntwo\n")
        if not readonly:
            self.assertEqual(self.client.output(box, "ls -A /etc; ls /bin/false 2>/dev/null; true"), "only\n")
        self.client.delete(box)
        wait_until(lambda: not list(self.stopped.iterdir()), "nothing is left on disk")

    def test_all_of_a_writable_root_comes_back(self):
        self.check_tree(readonly=False)

    def test_all_of_the_writable_directories_comes_back(self):
        self.check_tree(readonly=True)

    def test_what_it_is_stays(self):
        made = self.client.create(name="kept", session_key="s", labels={"team": "a"}, env={"A": "1"}, ports=[3000])
        box, port = made["id"], made["ports"][0]["host_port"]
        process = self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": "echo said; exec sleep 1000"})["id"]
        wait_until(lambda: "said" in self.client.raw("GET", f"/v1/sandboxes/{box}/processes/{process}/output")[2].decode(), "it speaks")
        stopped = stop(self.client, "kept", timeout_seconds=30)
        self.assertEqual((stopped["state"], stopped["pid"], stopped["expires_at"], stopped["idle_expires_at"]), ("stopped", None, None, None))
        self.assertEqual(stop(self.client, box)["state"], "stopped")
        self.assertFalse([group for group in self.daemon.groups() if box in group])
        self.assertFalse(pathlib.Path(f"/proc/{made['pid']}").exists())
        hint = self.refuses("bad_state", "POST", f"/v1/sandboxes/{box}/exec", {"command": "true"})["hint"]
        self.assertIn("hutch start", hint)
        self.refuses("exists", "POST", "/v1/sandboxes", {"image": "busybox", "name": "kept"})
        self.refuses("bad_state", "DELETE", "/v1/images/busybox")
        self.assertEqual([s["id"] for s in self.client.call("GET", "/v1/sandboxes?state=stopped")["sandboxes"]], [box])
        started = start(self.client, box)
        for field in ("id", "name", "session_key", "labels", "env", "limits", "network", "created_at", "caller_uid"):
            self.assertEqual(started[field], made[field], field)
        self.assertEqual(started["ports"][0]["host_port"], port)
        self.assertEqual(self.client.output("kept", "echo $A"), "1\n")
        self.assertEqual(moves(started), [("creating", "requested"), ("running", "ready"), ("stopped", "requested"),
                                          ("creating", "requested"), ("running", "ready")])
        ended = self.client.call("GET", f"/v1/sandboxes/{box}/processes/{process}")
        self.assertEqual(ended["state"], "exited")
        self.assertIn("said", self.client.raw("GET", f"/v1/sandboxes/{box}/processes/{process}/output")[2].decode())
        kinds = [event["kind"] for event in self.client.call("GET", f"/v1/events?sandbox={box}")["events"]]
        self.assertIn("sandbox.stopped", kinds)
        self.client.delete(box)

    def test_processes_are_asked_first(self):
        box = self.client.create()["id"]
        self.client.call("POST", f"/v1/sandboxes/{box}/processes",
                         {"command": "trap 'echo asked > /workspace/told; exit' TERM; touch /workspace/ready; while :; do sleep 0.05; done"})
        wait_until(lambda: "ready" in self.client.output(box, "ls /workspace"), "it runs")
        stop(self.client, box, timeout_seconds=60)
        start(self.client, box)
        self.assertEqual(self.client.output(box, "cat /workspace/told"), "asked\n")
        self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": "trap '' TERM; touch /workspace/deaf; while :; do sleep 0.05; done"})
        wait_until(lambda: "deaf" in self.client.output(box, "ls /workspace"), "it runs")
        self.assertEqual(stop(self.client, box, timeout_seconds=0)["state"], "stopped")
        self.client.delete(box)

    def test_a_paused_one_stops(self):
        box = self.client.create()["id"]
        self.client.call("POST", f"/v1/sandboxes/{box}/processes", {"command": "echo x > /workspace/x; exec sleep 1000"})
        wait_until(lambda: "x" in self.client.output(box, "ls /workspace"), "it runs")
        self.client.call("POST", f"/v1/sandboxes/{box}/pause", {})
        self.assertEqual(stop(self.client, box)["state"], "stopped")
        start(self.client, box)
        self.assertEqual(self.client.output(box, "cat /workspace/x"), "x\n")
        self.client.delete(box)

    def test_an_expiry_may_stop_it(self):
        box = self.client.create(timeouts={"idle_seconds": 1, "on_expiry": "stop"})["id"]
        self.client.exec(box, "echo mine > /workspace/file")
        ended = self.client.call("GET", f"/v1/sandboxes/{box}?wait=stopped&timeout_seconds=60")
        self.assertEqual((ended["state"], ended["cause"]), ("stopped", "idle_timeout"))
        start(self.client, box)
        self.assertEqual(self.client.output(box, "cat /workspace/file"), "mine\n")
        self.client.delete(box)

    def test_its_session_key_starts_it(self):
        made = self.client.create(session_key="again")
        self.client.exec(made["id"], "echo mine > /workspace/file")
        stop(self.client, made["id"])
        status, _, body = self.client.raw("POST", "/v1/sandboxes", {"image": "busybox", "session_key": "again"})
        self.assertEqual((status, json.loads(body)["id"], json.loads(body)["state"]), (200, made["id"], "running"))
        self.assertEqual(self.client.output(made["id"], "cat /workspace/file"), "mine\n")
        self.client.delete(made["id"])

    def test_a_stopped_one_is_deleted_whole(self):
        box = self.client.create(name="gone")["id"]
        stop(self.client, box)
        self.assertTrue((self.stopped / box / "record.json").exists())
        self.client.delete("gone")
        self.assertFalse((self.stopped / box).exists())
        self.assertEqual((self.client.get(box)["state"], self.client.get(box)["cause"]), ("destroyed", "deleted"))
        self.client.delete(self.client.create(name="gone")["id"])

    def test_what_is_too_deep_is_refused(self):
        box = self.client.create(limits={"disk_bytes": 64 << 20})["id"]
        self.client.output(box, "cd /workspace; i=0; while [ $i -lt 1100 ]; do mkdir d; cd d; i=$((i+1)); done", timeout_seconds=300)
        self.assertIn("deeper", self.refuses("limit", "POST", f"/v1/sandboxes/{box}/stop", {})["message"])
        self.assertEqual(self.client.output(box, "ls /workspace"), "d\n")
        self.client.delete(box)

    def test_what_is_asked_is_checked(self):
        box = self.client.create()["id"]
        for body in ({"timeout_seconds": 3601}, {"timeout_seconds": -1}, {"grace": 1}):
            self.refuses("invalid_argument", "POST", f"/v1/sandboxes/{box}/stop", body)
        self.refuses("not_found", "POST", "/v1/sandboxes/nobody/stop", {})
        self.refuses("not_found", "POST", "/v1/sandboxes/nobody/start")
        self.assertEqual(self.client.get(box)["state"], "running")
        self.assertEqual(start(self.client, box)["state"], "running")
        self.client.delete(box)
        self.refuses("bad_state", "POST", f"/v1/sandboxes/{box}/start")

    def test_from_the_command_line(self):
        box = self.client.create(name="cli")["id"]
        self.text("stop", "cli", "--timeout", "1")
        self.assertIn("stopped", self.text("ls"))
        self.assertEqual(self.hutch("wait", "cli", "--for", "stopped").returncode, 0)
        self.text("start", "cli")
        self.assertEqual(json.loads(self.text("start", "cli", "--json"))["id"], box)
        self.text("rm", "cli")


class DiskFull(unittest.TestCase):
    def test_it_goes_on(self):
        daemon = Daemon()
        stopped = daemon.dir / "state" / "stopped"
        stopped.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "small", str(stopped)], check=True)
        try:
            daemon.start()
            daemon.import_busybox()
            with contextlib.closing(daemon.client()) as client:
                box = client.create()["id"]
                client.exec(box, "dd if=/dev/urandom of=/workspace/large bs=65536 count=64")
                with self.assertRaises(ApiError) as refused:
                    stop(client, box)
                self.assertEqual((refused.exception.code, refused.exception.status), ("no_space", 507))
                self.assertIn("its processes were ended", refused.exception.error["message"])
                self.assertEqual(client.get(box)["state"], "running")
                self.assertEqual(list(stopped.iterdir()), [])
                client.exec(box, "rm /workspace/large; echo small > /workspace/small")
                self.assertEqual(stop(client, box)["state"], "stopped")
                start(client, box)
                self.assertEqual(client.output(box, "ls /workspace"), "small\n")
                client.delete(box)
            self.assertEqual(daemon.stop(), 0)
        finally:
            if daemon.process is not None and daemon.process.poll() is None:
                daemon.kill()
            subprocess.run(["umount", "-l", str(stopped)], check=True)
            daemon.remove_groups()
            shutil.rmtree(daemon.dir)


class Crashes(OwnDaemonCase):
    def only(self, box):
        self.assertEqual([s["id"] for s in self.client.call("GET", "/v1/sandboxes")["sandboxes"]], [box])
        return self.client.get(box)["state"]

    def crash_in(self, call, box, seconds):
        """The call goes on in a thread while hutchd is killed; whether it was answered well."""
        answered = []

        def ask():
            client = self.daemon.client()
            with contextlib.suppress(Exception), contextlib.closing(client):
                answered.append(call(client, box)["state"])

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(seconds)
        self.daemon.kill()
        thread.join()
        self.restart()
        return answered

    def test_one_truth_wherever_it_is_killed(self):
        random.seed(7)
        box = self.client.create(rootfs={"readonly": False}, user="0")["id"]
        self.client.output(box, WRITE.format(top="/srv") + OVER_IMAGE)
        seen = self.client.output(box, LOOK.format(tops="/srv /etc"))
        states = []
        for _ in range(10):
            answered = self.crash_in(stop, box, random.uniform(0, 0.15))
            state = self.only(box)
            self.assertIn(state, ("running", "stopped"))
            if answered:
                self.assertEqual(state, "stopped")
            states.append(state)
            if state == "running":
                self.assertEqual(self.client.output(box, LOOK.format(tops="/srv /etc")), seen)
                stop(self.client, box)
            answered = self.crash_in(start, box, random.uniform(0, 0.25))
            state = self.only(box)
            self.assertIn(state, ("running", "stopped"))
            if answered:
                self.assertEqual(state, "running")
            states.append(state)
            if state == "stopped":
                start(self.client, box)
            self.assertEqual(self.client.output(box, LOOK.format(tops="/srv /etc")), seen)
        print("\nafter a kill:", ", ".join(states))
        self.client.delete(box)
        self.assertFalse(list(pathlib.Path(self.daemon.dir, "state", "sandboxes").iterdir()))

    def test_one_that_was_deleted_after_a_start_stays_deleted(self):
        for _ in range(10):
            box = self.client.create()["id"]
            self.client.exec(box, "dd if=/dev/urandom of=/workspace/noise bs=65536 count=16")
            stop(self.client, box, timeout_seconds=0)
            start(self.client, box)
            self.client.delete(box)
            self.daemon.kill()
            self.restart()
            self.assertEqual(self.client.call("GET", "/v1/sandboxes")["sandboxes"], [])

    def test_a_record_without_content_goes(self):
        """As a power cut may leave one."""
        self.daemon.kill()
        records = pathlib.Path(self.daemon.dir, "state", "sandboxes")
        records.mkdir(exist_ok=True)
        for name in ("sb-empty.json", "sb-half.json.tmp"):
            (records / name).write_text("")
        self.restart()
        self.assertEqual(list(records.iterdir()), [])
        self.assertEqual(self.client.call("GET", "/v1/sandboxes")["sandboxes"], [])

    def test_the_key_of_a_stopped_one_is_remembered(self):
        key = {"Idempotency-Key": "once"}
        made = self.client.call("POST", "/v1/sandboxes", {"image": "busybox", "name": "kept"}, headers=key)["id"]
        stop(self.client, made)
        self.daemon.kill()
        self.restart()
        again = self.client.call("POST", "/v1/sandboxes", {"image": "busybox", "name": "kept"}, headers=key)["id"]
        self.assertEqual(again, made)

    def test_stopped_ones_outlive_hutchd(self):
        made = self.client.create(name="kept", session_key="s")
        self.client.exec("kept", "echo mine > /workspace/file")
        stop(self.client, "kept")
        self.daemon.kill()
        self.restart()
        self.assertEqual(self.only(made["id"]), "stopped")
        with self.assertRaises(ApiError) as refused:
            self.client.call("DELETE", "/v1/images/busybox")
        self.assertEqual(refused.exception.code, "bad_state")
        self.assertEqual(start(self.client, "kept")["session_key"], "s")
        self.assertEqual(self.client.output("kept", "cat /workspace/file"), "mine\n")

    def end_all(self):
        """As a host that goes down."""
        for group in self.daemon.groups():
            kill = pathlib.Path(group, "cgroup.kill")
            if kill.exists():
                kill.write_text("1")
        wait_until(lambda: all(not p.read_text() for g in self.daemon.groups() for p in pathlib.Path(g).rglob("cgroup.procs")), "all have ended")
        shutil.rmtree(self.daemon.dir / "run")

    def test_what_lived_when_the_host_went_down_is_told(self):
        lived = self.client.create(name="lived")["id"]
        other = self.client.create(name="other")["id"]
        self.client.exec(other, "echo mine > /workspace/file")
        stop(self.client, other)
        self.daemon.kill()
        self.end_all()
        record = pathlib.Path(self.daemon.dir, "state", "sandboxes", lived + ".json")
        content = json.loads(record.read_text())
        record.write_text(json.dumps({**content, "boot_id": "another"}))
        for _ in range(2):
            self.restart()
            ended = self.client.get(lived)
            self.assertEqual((ended["state"], ended["cause"]), ("failed", "host_restarted"))
            self.assertEqual(moves(ended), [("creating", "requested"), ("running", "ready"), ("failed", "host_restarted")])
            self.assertIn("host", ended["error"]["message"])
            self.assertEqual(self.client.get(other)["state"], "stopped")
            self.daemon.kill()
        self.restart()
        start(self.client, other)
        self.assertEqual(self.client.output(other, "cat /workspace/file"), "mine\n")
        self.client.create(name="lived")

    def test_what_a_newer_hutchd_made_is_left_alone(self):
        made = self.client.create()
        self.client.exec(made["id"], "echo mine > /workspace/file")
        other = self.client.create()["id"]
        stop(self.client, other)
        self.daemon.kill()
        files = [self.daemon.dir / "run" / "sandboxes" / made["id"] / "state.json", self.daemon.dir / "state" / "stopped" / other / "record.json"]
        kept = [f.read_text() for f in files]
        for file, text in zip(files, kept):
            content = json.loads(text)
            saved = json.loads(content["saved"])
            file.write_text(json.dumps({**content, "saved": json.dumps({**saved, "version": 99})}))
        self.restart()
        self.assertEqual(self.client.call("GET", "/v1/sandboxes")["sandboxes"], [])
        self.assertTrue(pathlib.Path(f"/proc/{made['pid']}").exists(), "it runs on")
        self.assertIn("newer hutchd", self.daemon.log.read_text())
        self.daemon.kill()
        files[0].write_text(json.dumps({**json.loads(kept[0]), "version": 99}))
        self.restart()
        self.assertTrue(pathlib.Path(f"/proc/{made['pid']}").exists(), "it runs on")
        self.daemon.kill()
        for file, text in zip(files, kept):
            file.write_text(text)
        self.restart()
        self.assertEqual(self.client.output(made["id"], "cat /workspace/file"), "mine\n")
        self.assertEqual(start(self.client, other)["state"], "running")


if __name__ == "__main__":
    unittest.main()
