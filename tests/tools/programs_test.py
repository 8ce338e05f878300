#!/usr/bin/env python3
"""hutch and hutch-bench against a fake server: programs_test.py HUTCH HUTCH_BENCH"""
import io
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tarfile
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
                                    ("absent", 127, "cannot run"), ("data", 126, "cannot run")):
            done = self.run_in_sandbox(command)
            self.assertEqual(done.returncode, code, command)
            self.assertIn(told, done.stderr.decode())

    def test_what_was_left_out_is_told(self):
        box = self.fake.add({"image": "python"})["id"]
        done = self.hutch("exec", box, "--wait", "5", "--", "chatty")
        self.assertEqual((done.returncode, b"--max-output" in done.stderr), (0, True))

    def test_what_contradicts_itself_is_refused(self):
        for words in (("-t", "--wait", "5"), ("-i", "--json"), ("-d", "--max-output", "5"), ("-t",)):
            done = self.hutch("exec", "box", *words, "--", "true")
            self.assertEqual(done.returncode, 125, words)
        self.assertEqual(self.fake.requests, [])

    def test_networks(self):
        done = self.hutch("network", "create", "ws")
        self.assertEqual((done.returncode, done.stdout), (0, b"ws\n"))
        self.assertIn("ws    10.213.0.0/24  fd00::/64  sb-1", self.hutch("network", "ls").stdout.decode())
        self.assertEqual(self.hutch("network", "ls", "-q").stdout, b"ws\n")
        self.assertEqual(json.loads(self.hutch("network", "inspect", "ws").stdout)["members"][0]["address_v4"], "10.213.0.2")
        done = self.hutch("network", "rm", "nothing", "ws")
        self.assertEqual((done.returncode, done.stdout), (1, b"ws\n"))

    def test_what_a_sandbox_may_reach_is_shown_and_set(self):
        box = self.fake.add({"image": "python"})["id"]
        shown = self.hutch("net", "show", box).stdout.decode()
        for line in ("mode allowlist", "networks ws", "addresses 10.213.0.2", "1.0 MiB a second each way, 7 connections at once"):
            self.assertIn(line + "\n", shown)
        self.assertRegex(shown, r"\*\.a\.example +443 8000-8010 +preset:packages +GET; /x/\*; secret token; TLS outward\n")
        self.assertRegex(shown, r"10\.0\.0\.0/8 +22 +10\.0\.0\.0/8:22\n")
        self.assertRegex(shown, r"evil\.example\?\[1m +443 +tls +3 +\d+d +not in the allowlist\n")
        self.assertRegex(shown, r"denied +3\n")
        self.assertEqual(json.loads(self.hutch("net", "show", box, "--json").stdout)["mode"], "allowlist")
        done = self.hutch("net", "set", box, "--allow", "pkgs.example.org", "--allow", "preset:packages", "--net-limit", "total=1KiB")
        self.assertEqual((done.returncode, done.stdout), (0, b""))
        wanted = {"mode": "allowlist", "allow": ["pkgs.example.org", "preset:packages"], "limits": {"total_bytes": 1024}}
        self.assertEqual(self.fake.requests[-1], ("PATCH", f"/v1/sandboxes/{box}", {"network": wanted}))
        self.assertEqual(self.hutch("net", "set", box).returncode, 1)
        self.hutch("create", "python", "--network", "open", "--join", "ws")
        self.assertEqual(self.fake.requests[-1][2]["network"], {"mode": "open", "join": ["ws"]})

    def test_presets_and_secrets_are_listed(self):
        listed = self.hutch("net", "preset").stdout.decode()
        self.assertRegex(listed, r"packages +deb\.example +80\n")
        self.assertRegex(listed, r"none +nothing\n")
        self.assertEqual(self.hutch("net", "preset", "-q").stdout, b"packages\nnone\n")
        listed = self.hutch("secret", "ls").stdout.decode()
        self.assertRegex(listed, r"token +Authorization +a\.example\n")
        self.assertRegex(listed, r"bad +- +wrong: may be read by others\n")

    def test_the_preset_of_packages_is_found_on_the_machine(self):
        root = Path(self.directory.name, "root")
        (root / "etc/apt").mkdir(parents=True)
        (root / "etc/apt/sources.list").write_text("deb http://deb.example/ x main\n")
        done = self.hutch("net", "preset", "packages", "--root", str(root))
        self.assertEqual(json.loads(done.stdout)["packages"][0], "deb.example:80")
        self.assertIn(b"/etc/apt/sources.list", done.stderr)
        file = Path(self.directory.name, "presets.json")
        file.write_text('{"mine": ["a.example"], "packages": []}')
        done = self.hutch("net", "preset", "packages", "--root", str(root), "--write", str(file))
        self.assertEqual(done.returncode, 0, done.stderr)
        written = json.loads(file.read_text())
        self.assertEqual((written["mine"], written["packages"][0]), (["a.example"], "deb.example:80"))
        file.write_text("[]")
        self.assertEqual(self.hutch("net", "preset", "packages", "--root", str(root), "--write", str(file)).returncode, 1)
        self.assertEqual((file.read_text(), self.hutch("net", "preset", "nothing").returncode), ("[]", 1))

    def test_files_are_copied_in_and_out(self):
        box = self.fake.add({"image": "python"})["id"]
        self.fake.directories.add("/dir")
        source = Path(self.directory.name, "a b")
        source.write_bytes(os.urandom(3_000_000))
        source.chmod(0o640)
        for destination, name in (("/x", "/x"), ("/dir", "/dir/a b"), ("/dir/", "/dir/a b")):
            done = self.hutch("cp", str(source), f"{box}:{destination}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(self.fake.files.pop(name) == (source.read_bytes(), "mode=0640"))
        done = self.hutch("cp", str(source), f"{box}:/absent/")
        self.assertEqual((done.returncode, b"mkdir" in done.stderr), (1, True))
        self.assertEqual(self.hutch("cp", str(source), f"{box}:/refused").returncode, 1)
        self.assertIn(b"no sandbox nobody", self.hutch("cp", str(source), "nobody:/x").stderr)
        self.fake.files["/f"] = (source.read_bytes(), "")
        target = Path(self.directory.name, "copy")
        self.assertEqual(self.hutch("cp", f"{box}:/f", str(target)).returncode, 0)
        self.assertEqual((target.read_bytes() == source.read_bytes(), target.stat().st_mode & 0o777), (True, 0o751))

    def test_a_copy_that_was_cut_off_leaves_nothing(self):
        box = self.fake.add({"image": "python"})["id"]
        self.fake.files["/cut"] = (b"half", "")
        before = sorted(os.listdir(self.directory.name))
        self.assertEqual(self.hutch("cp", f"{box}:/cut", self.directory.name + "/copy").returncode, 1)
        self.assertEqual(sorted(os.listdir(self.directory.name)), before)

    def test_trees_go_in_and_out_as_tar(self):
        box = self.fake.add({"image": "python"})["id"]
        tree = Path(self.directory.name, "tree")
        (tree / "sub" / ("long" * 40)).mkdir(parents=True)
        (tree / "sub" / ("long" * 40) / "file").write_bytes(b"x" * 70_000)
        (tree / "script").write_text("#!")
        (tree / "script").chmod(0o755)
        (tree / "link").symlink_to("script")
        os.mkfifo(tree / "fifo")
        done = self.hutch("cp", str(tree), f"{box}:/new")
        self.assertEqual((done.returncode, done.stderr), (0, b"hutch: 1 sockets, FIFOs or devices were left out\n"))
        packed = self.fake.files["/new.tar"][0]
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            self.assertEqual(sorted(archive.getnames()), ["link", "script", "sub", "sub/" + "long" * 40, "sub/" + "long" * 40 + "/file"])
            self.assertEqual(archive.getmember("script").mode, 0o755)
        self.fake.directories.add("/new")
        out = Path(self.directory.name, "out")
        self.assertEqual(self.hutch("cp", f"{box}:/new", str(out)).returncode, 0)
        (tree / "fifo").unlink()
        self.assertEqual(subprocess.run(["diff", "-r", "--no-dereference", str(tree), str(out)], check=False).returncode, 0)
        self.assertEqual((out / "script").stat().st_mode & 0o777, 0o755)
        self.assertEqual(self.hutch("cp", f"{box}:/new", "-").stdout, packed)
        self.assertEqual(self.hutch("cp", "-", f"{box}:/other", stdin=packed).returncode, 0)
        self.assertEqual(self.fake.files["/other.tar"][0], packed)

    def test_a_hostile_tar_writes_nothing_outside(self):
        box = self.fake.add({"image": "python"})["id"]
        self.fake.directories.add("/t")
        outside = Path(self.directory.name, "outside")
        outside.mkdir()
        link = tarfile.TarInfo("way")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        hard = tarfile.TarInfo("hard")
        hard.type, hard.linkname = tarfile.LNKTYPE, "../outside/secret"
        device = tarfile.TarInfo("device")
        device.type = tarfile.CHRTYPE
        setuid = tarfile.TarInfo("setuid")
        setuid.mode = 0o4755
        for members, code in (([tarfile.TarInfo("../outside/x")], 1), ([link, tarfile.TarInfo("way/x")], 1), ([hard], 1),
                              ([tarfile.TarInfo(str(outside) + "/x")], 0), ([device, setuid], 0)):
            body = io.BytesIO()
            with tarfile.open(fileobj=body, mode="w") as archive:
                for member in members:
                    archive.addfile(member)
            self.fake.files["/t.tar"] = (body.getvalue(), "")
            out = Path(self.directory.name, "out")
            done = self.hutch("cp", f"{box}:/t", str(out))
            self.assertEqual(done.returncode, code, (members, done.stderr))
            self.assertEqual(os.listdir(outside), [])
            if members[-1] is setuid:
                self.assertEqual((out / "setuid").stat().st_mode & 0o7777, 0o755)
                self.assertFalse((out / "device").exists())
            shutil.rmtree(out)

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
        self.assertEqual((done.returncode, done.stderr, self.fake.sandboxes), (128 + signal.SIGPIPE, b"", {}))

    def test_life_of_a_sandbox(self):
        name = self.hutch("create", "python", "--name", "box", "--memory", "64MiB").stdout.decode().strip()
        self.assertEqual(self.fake.bodies("/sandboxes"), [{"image": "python", "name": "box", "limits": {"memory_bytes": 67108864}}])
        self.assertEqual(self.hutch("ls", "-q").stdout.decode(), name + "\n")
        table = self.hutch("ls").stdout.decode()
        self.assertRegex(table, rf"ID +NAME +STATE .*\n{name} +box +running +python +1000:1000 +512.0 MiB")
        self.assertNotIn("\x1b", table)
        self.fake.add({"image": "python"}).update({"state": "destroyed", "cause": "deleted", "ended_at": "2026-01-01T00:00:00.000Z"})
        self.assertEqual(self.hutch("ls", "-q").stdout.decode(), name + "\n")
        self.assertIn("destroyed (deleted)", self.hutch("ls", "--all").stdout.decode())
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

    def test_a_pull_for_a_new_sandbox_is_told(self):
        done = self.hutch("create", "pulled", "--pull", "always")
        self.assertEqual((done.returncode, done.stderr), (0, b"resolve: pulled\n"))
        self.assertEqual(self.fake.requests[-1], ("POST", "/v1/sandboxes", {"image": "pulled", "pull": "always"}))

    def test_images(self):
        done = self.hutch("image", "build", "python")
        self.assertEqual((done.returncode, done.stdout[:7]), (0, b"sha256:"))
        self.assertEqual(done.stderr.decode(), "copy: layer\nunpack\n")
        done = self.hutch("image", "catalog")
        self.assertRegex(done.stdout.decode(), r"(?m)^python +abababababab +1 +built in +Python 3\nmine +- +1 +/etc/hutch/catalog/mine.json +Python 3$")
        self.assertEqual((done.returncode, done.stderr.count(b"\n"), b"\x1b" in done.stderr), (0, 1, False))
        self.assertEqual(self.hutch("image", "catalog", "-q").stdout, b"python\nmine\n")
        self.assertRegex(self.hutch("image", "ls").stdout.decode(), r"python:latest +abababababab +1000:1000 +1 +1.0 MiB +512.0 KiB +2026-01-02")
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

        for name in ("nf_tables", "veth", "IPv6", "forwarding", "other firewalls", "hutch-egress"):
            self.assertIn(name, rows)

    def test_network_probe_finds_what_is_not_there(self):
        # NEED:NAME of tools/doctor/network_probe.h. "cmp" is a part of nf_tables itself.
        lines = self.hutch("__probe-network", "1:cmp", "0:hutch_none", "1:hutch_none", "2:hutch_none", "9:cmp").stdout.decode().split()
        if lines[0] != "0":  # errno of unshare(2)
            self.assertNotEqual(os.geteuid(), 0, lines)
            self.assertEqual(len(lines), 1)
            return
        self.assertEqual(len(lines), 5, lines)
        self.assertIn(lines[1], ("0", "2"))
        self.assertEqual(lines[2], "1")
        for line in lines[3:]:
            self.assertEqual(line, "1" if lines[1] == "0" else "2")

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

    @unittest.skipIf(os.geteuid() != 0, "hutch-bench needs root")
    def test_bench_copies_there_and_back(self):
        def bench():
            done = subprocess.run([BENCH, "--cases", "copy", "--copy-size", "1MiB", "--copy-files", "120", "--copy-runs", "1", "--burst", "1", "--only",
                                   "hutch,plain fork+exec", "--image", "any", "--work-dir", self.directory.name, "--json"],
                                  env=self.environment(), capture_output=True, timeout=100, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return {case["name"]: {one["contestant"]: one for one in case["contestants"]} for case in json.loads(done.stdout)["cases"]}

        cases = bench()
        self.assertEqual(list(cases), ["copy-file-in", "copy-file-out", "copy-tree-in", "copy-tree-out"])
        for case in cases.values():
            self.assertEqual(len(case["hutch"]["samples_ms"]), 1, case)
            self.assertGreater(case["hutch"]["megabytes_per_second"], 0)
            self.assertEqual(case["plain fork+exec"]["reason"], "copies no files")
        self.fake.files.clear()
        self.fake.directories.clear()  # its rm does nothing
        self.fake.damages_files = True
        for case in bench().values():
            self.assertIn("not what went in", case["hutch"]["reason"])


if __name__ == "__main__":
    HUTCH, BENCH = (os.path.abspath(path) for path in sys.argv[1:3])
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
