#!/usr/bin/env python3
"""hutch and hutch-bench against a fake server: programs_test.py HUTCH HUTCH_BENCH"""
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

from fake_hutchd import FakeHutchd

HUTCH, BENCH = "", ""


class Programs(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.socket = self.directory.name + "/s"
        self.fake = FakeHutchd(self.socket)
        self.addCleanup(self.fake.close)

    def environment(self):
        return {**os.environ, "HUTCH_SOCKET": self.socket}

    def hutch(self, *words, stdin=b"", **more):
        return subprocess.run([HUTCH, *words], input=stdin, capture_output=True, env=self.environment(), timeout=60, check=False, **more)

    def run_in_sandbox(self, *command, options=(), stdin=b""):
        done = self.hutch("run", "python", *options, "--", *command, stdin=stdin)
        self.assertEqual(self.fake.sandboxes, {}, "run left its sandbox behind")
        return done

    def test_run_passes_streams_and_exit_code(self):
        done = self.run_in_sandbox("echo", "a", "b")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"a b\n", b""))
        done = self.run_in_sandbox("exit", "7")
        self.assertEqual((done.returncode, done.stderr), (7, b"gone\n"))
        self.assertEqual(self.run_in_sandbox("bytes").stdout, b"\xff\x00\xfe")

    def test_run_maps_mishaps(self):
        for command, code, told in (("slow", 124, "--timeout"), ("greedy", 137, "--memory"), ("bomb", 0, "--pids"),
                                    ("chatty", 0, "--max-output"), ("absent", 127, "cannot run"), ("data", 126, "cannot run")):
            done = self.run_in_sandbox(command)
            self.assertEqual(done.returncode, code, command)
            self.assertIn(told, done.stderr.decode())

    def test_own_errors_are_125(self):
        done = self.hutch("run", "absent", "--", "true")
        self.assertEqual((done.returncode, done.stderr), (125, b"hutch: no image absent\nhint: the hint\n"))
        self.assertEqual(self.hutch("run", "python", "--memory", "x", "--", "true").returncode, 125)
        self.assertEqual(self.hutch("exec", "nobody", "--", "true").returncode, 125)

    def test_stdin_is_sent_only_when_asked_for(self):
        self.assertEqual(self.run_in_sandbox("cat", stdin=b"text").stdout, b"")
        self.assertEqual(self.run_in_sandbox("cat", options=["--stdin"], stdin=b"text").stdout, b"text")
        self.assertEqual(self.run_in_sandbox("cat", options=["--stdin"], stdin=b"\xff\x00").stdout, b"ff00")

    def test_an_interrupted_run_destroys_its_sandbox(self):
        process = subprocess.Popen([HUTCH, "run", "python", "--", "hang"], env=self.environment(), stderr=subprocess.PIPE)
        self.assertTrue(self.fake.hanging.wait(30))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        self.assertEqual((process.returncode, errors), (128 + signal.SIGTERM, b""))
        self.assertEqual(self.fake.sandboxes, {})

    def test_a_closed_standard_output_does_not_keep_the_sandbox(self):
        reader, writer = os.pipe()
        os.close(reader)
        done = subprocess.run([HUTCH, "run", "python", "--", "echo", "x"], stdout=writer, stderr=subprocess.PIPE,
                              env=self.environment(), timeout=60, check=False)
        os.close(writer)
        self.assertEqual((done.returncode, done.stderr, self.fake.sandboxes), (0, b"", {}))

    def test_life_of_a_sandbox(self):
        name = self.hutch("create", "python", "--name", "box", "--memory", "64MiB").stdout.decode().strip()
        self.assertEqual(self.fake.bodies("/sandboxes"), [{"image": "python", "name": "box", "limits": {"memory_bytes": 67108864}}])
        self.assertEqual(self.hutch("ls", "-q").stdout.decode(), name + "\n")
        table = self.hutch("ls").stdout.decode()
        self.assertRegex(table, rf"ID +NAME +STATE .*\n{name} +box +running +python +1000:1000 +512.0 MiB")
        self.assertNotIn("\x1b", table)
        self.fake.add({"image": "python"}).update({"state": "stopped", "stop_cause": "deleted"})
        self.assertEqual(self.hutch("ls", "-q").stdout.decode(), name + "\n")
        self.assertIn("stopped (deleted)", self.hutch("ls", "--all").stdout.decode())
        self.assertEqual(json.loads(self.hutch("inspect", name).stdout)["name"], "box")
        self.assertEqual(self.hutch("heartbeat", name).returncode, 0)
        self.assertEqual(self.hutch("exec", name, "--env", "A=1", "--", "echo", "x").stdout, b"x\n")
        self.assertEqual(self.fake.bodies("/exec")[-1], {"command": ["echo", "x"], "env": {"A": "1"}})
        done = self.hutch("rm", "nobody", name)
        self.assertEqual((done.returncode, done.stdout.decode()), (1, name + "\n"))
        self.assertIn(b"no sandbox nobody", done.stderr)

    def test_json(self):
        reply = json.loads(self.hutch("run", "python", "--json", "--", "echo", "x").stdout)
        self.assertEqual(reply["stdout"], "x\n")
        done = self.hutch("--json", "inspect", "nobody")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stderr)["error"]["code"], "not_found")

    def test_images(self):
        done = self.hutch("image", "build", "python")
        self.assertEqual((done.returncode, done.stdout[:7]), (0, b"sha256:"))
        self.assertEqual(done.stderr.decode(), "copy: layer\nunpack\n")
        self.assertRegex(self.hutch("image", "ls").stdout.decode(), r"python:latest +abababababab +1000:1000 +1 +1.0 MiB +2026-01-02")
        self.assertEqual(json.loads(self.hutch("image", "inspect", "a/b:c").stdout)["asked"], "a/b:c")
        self.assertEqual(self.hutch("image", "rm", "python").stdout, b"python: 2.0 KiB freed\n")
        done = self.hutch("image", "build", "broken")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"hutch: bad layer", done.stderr)

    def test_import_sends_an_absolute_path(self):
        Path(self.directory.name, "layout").mkdir()
        done = self.hutch("image", "import", "layout", "--name", "a:1", cwd=self.directory.name)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.fake.bodies("/import"), [{"path": os.path.realpath(self.directory.name + "/layout"), "reference": "a:1"}])

    def test_colours_and_the_live_line_need_a_terminal(self):
        def on_terminal(environment, *words):
            main, side = pty.openpty()
            subprocess.run([HUTCH, *words], stdout=side, stderr=side, env=environment, timeout=60, check=True)
            os.close(side)
            text = b""
            try:
                while piece := os.read(main, 4096):
                    text += piece
            except OSError:
                pass  # EIO: the other side is closed
            os.close(main)
            return text

        with_colours = {key: value for key, value in self.environment().items() if key != "NO_COLOR"} | {"TERM": "xterm"}
        self.assertIn(b"\x1b[1mID", on_terminal(with_colours, "ls"))
        self.assertNotIn(b"\x1b", on_terminal(with_colours | {"NO_COLOR": "1"}, "ls"))
        self.assertIn(b"100 %", on_terminal(with_colours, "image", "build", "python"))

    def test_no_daemon_says_what_to_do(self):
        done = self.hutch("--socket", "/nonexistent/s", "ls")
        self.assertEqual(done.returncode, 1)
        for part in (b"/nonexistent/s", b"systemctl start hutchd", b"sudo hutchd"):
            self.assertIn(part, done.stderr)

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.hutch("completion", shell).stdout
            self.assertIn(b"__complete", script)
            if shutil.which(shell):
                subprocess.run([shell, "-n"], input=script, check=True, timeout=60)
        self.fake.add({"image": "python", "name": "box"})
        found = self.hutch("__complete", "exec", "").stdout.decode().split()
        self.assertEqual(found, ["box", "sb-0000000000000001"])
        self.assertEqual(self.hutch("__complete", "--socket", "/none", "exec", "").stdout, b"")
        # As bash itself would call it, with a colon in the word.
        script = self.hutch("completion", "bash").stdout.decode()
        ask = f'{script}\nCOMP_LINE="{HUTCH} run python:l"; COMP_POINT=${{#COMP_LINE}}; _hutch; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", ask], env=self.environment(), capture_output=True, timeout=60, check=True)
        self.assertEqual(done.stdout.decode().strip(), "latest")

    def test_doctor(self):
        report = json.loads(self.hutch("doctor", "--json").stdout)
        rows = {row["name"]: row for row in report["checks"]}
        self.assertEqual(rows["daemon"]["result"], "OK")
        self.assertEqual(report["ok"], all(row["result"] != "FAIL" for row in report["checks"]))
        self.assertTrue(all(row.get("fix") for row in report["checks"] if row["result"] == "FAIL"), report)
        done = self.hutch("--socket", "/nonexistent/s", "doctor")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"FAIL daemon: start it", done.stdout)

    @unittest.skipIf(os.geteuid() != 0, "hutch-bench needs root")
    def test_bench(self):
        svg = self.directory.name + "/b.svg"
        done = subprocess.run([BENCH, "--runs", "3", "--warmup", "0", "--burst", "4", "--burst-runs", "1", "--only", "hutch,plain fork+exec",
                               "--image", "any", "--work-dir", self.directory.name, "--json", "--svg", svg],
                              env=self.environment(), capture_output=True, timeout=100, check=False)
        if b"no busybox" in done.stderr:
            self.skipTest("no busybox-static")
        self.assertEqual(done.returncode, 0, done.stderr)
        cases = {case["name"]: {one["contestant"]: one for one in case["contestants"]} for case in json.loads(done.stdout)["cases"]}
        for name, count in (("true", 3), ("exec", 3), ("burst", 4), ("create", 4)):
            self.assertEqual(len(cases[name]["hutch"]["samples_ms"]), count)
        self.assertEqual(xml.etree.ElementTree.parse(svg).getroot().tag, "{http://www.w3.org/2000/svg}svg")
        self.assertEqual(self.fake.sandboxes, {}, "hutch-bench left sandboxes behind")


if __name__ == "__main__":
    HUTCH, BENCH = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
