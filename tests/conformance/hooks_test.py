"""config.json: hooks, at all six points."""
import copy
import json
import os
import time

from bundle import base_config, shell_config
from case import Case

POINTS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")


class Hooks(Case):
    def setUp(self):
        super().setUp()
        self.log = self.work / "log"

    def hook(self, script, **more):
        return {"path": "/bin/sh", "args": ["sh", "-c", script], "env": ["PATH=/usr/bin:/bin"], **more}

    def logging(self, point):
        return self.hook(f"echo {point} >>{self.log}; cat >{self.work}/{point}.state")

    def lines(self):
        return self.log.read_text().split() if self.log.exists() else []

    def test_the_order_is_that_of_the_specification(self):
        config = shell_config("echo program >>/log/log")
        log = self.work / "shared"
        log.mkdir()
        self.log = log / "log"
        config["mounts"].append({"destination": "/log", "type": "bind", "source": str(log), "options": ["bind"]})
        config["hooks"] = {point: [self.hook(f"echo {point} >>{self.log}")] for point in POINTS if point != "startContainer"}
        config["hooks"]["startContainer"] = [{"path": "/bin/sh", "args": ["sh", "-c", "echo startContainer >>/log/log"],
                                              "env": ["PATH=/bin"]}]
        name = self.create(config)
        self.assertEqual(self.lines(), ["prestart", "createRuntime", "createContainer"])
        self.runtime.call("start", name)
        self.runtime.wait_status(name, "stopped")
        self.runtime.call("delete", name)
        lines = self.lines()
        self.assertLess(lines.index("startContainer"), lines.index("program"))
        self.assertEqual(set(lines[3:6]), {"startContainer", "program", "poststart"})
        self.assertEqual(lines[6:], ["poststop"])

    def test_the_state_is_on_standard_input(self):
        config = base_config("true")
        config["annotations"] = {"key": "value"}
        config["hooks"] = {point: [self.logging(point)] for point in POINTS if point not in ("startContainer", "createContainer")}
        name = self.create(config)
        pid = self.pid(name)
        self.runtime.call("start", name)
        self.runtime.wait_status(name, "stopped")
        self.runtime.call("delete", name)
        wanted = {"prestart": ("creating", "created"), "createRuntime": ("creating", "created"), "poststart": ("running", "stopped"),
                  "poststop": ("stopped",)}
        for point, statuses in wanted.items():
            state = json.loads((self.work / f"{point}.state").read_text())
            self.assertIn(state["status"], statuses, point)
            self.assertEqual((state["id"], state["bundle"], state["annotations"]["key"]), (name, str(self.bundle.path), "value"))
            self.assertRegex(state["ociVersion"], r"^1\.")
            if point != "poststop":
                self.assertEqual(state["pid"], pid, point)

    def test_several_run_in_their_order(self):
        config = base_config("true")
        config["hooks"] = {"createRuntime": [self.hook(f"echo {number} >>{self.log}") for number in range(5)]}
        self.run_to_end(config)
        self.assertEqual(self.lines(), list("01234"))

    def test_one_that_fails_before_the_program_ends_the_container(self):
        for point in ("prestart", "createRuntime", "createContainer", "startContainer"):
            with self.subTest(point):
                config = shell_config("echo ran")
                config["hooks"] = {point: [self.hook("exit 3")], "poststop": [self.hook(f"echo stopped >>{self.log}")]}
                done = self.run_to_end(config, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertNotIn("ran\n", done.stdout)
                self.assertIsNone(self.runtime.status(self.names[-1]))

    def test_one_that_fails_afterwards_does_not(self):
        config = shell_config("sleep 0.2; echo ran")
        config["hooks"] = {"poststop": [self.hook("exit 3"), self.hook(f"echo second >>{self.log}")]}
        self.assertEqual(self.said(config), "ran")
        self.assertEqual(self.lines(), ["second"])

    def test_one_need_not_read_its_input(self):
        config = shell_config("echo ran")
        config["annotations"] = {"long": "x" * 300000}  # more than a pipe holds
        config["hooks"] = {point: [self.hook(f"echo {point} >>{self.log}")] for point in ("createRuntime", "poststop")}
        self.assertEqual(self.said(config), "ran")
        self.assertEqual(self.lines(), ["createRuntime", "poststop"])

    def test_a_time_out_ends_the_hook(self):
        config = base_config("true")
        config["hooks"] = {"createRuntime": [self.hook("exec sleep 100", timeout=1)]}
        began = time.monotonic()
        done = self.run_to_end(config, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertLess(time.monotonic() - began, 10)

    def test_arguments_and_environment(self):
        config = base_config("true")
        config["hooks"] = {"createRuntime": [{"path": "/bin/sh", "args": ["name", "-c", f'echo "$0|$ONE|$LEAKED|$#" >>{self.log}', "arg0", "x"],
                                              "env": ["ONE=1"]}]}
        self.run_to_end(config, env={**os.environ, "LEAKED": "yes"})
        self.assertEqual(self.lines(), ["arg0|1||1"])

    def test_a_path_that_is_not_absolute_is_an_error(self):
        config = base_config("true")
        config["hooks"] = {"createRuntime": [{"path": "sh"}]}
        self.refused(config)

    def test_a_program_that_is_not_there_is_an_error(self):
        config = base_config("true")
        config["hooks"] = {"createRuntime": [{"path": "/no/such/hook"}]}
        self.refused(config)

    def test_each_runs_in_its_namespace(self):
        config = base_config("true")
        config["hooks"] = {"createRuntime": [self.hook(f"readlink /proc/self/ns/mnt >>{self.log}")],
                           "createContainer": [self.hook(f"readlink /proc/self/ns/mnt >>{self.log}")]}
        self.run_to_end(config)
        runtime, container = self.lines()
        self.assertEqual(runtime, os.readlink("/proc/self/ns/mnt"))
        self.assertNotEqual(container, runtime)

    def test_a_start_hook_sees_the_containers_files(self):
        (self.bundle.rootfs / "yard/mark").write_text("")
        config = shell_config("cat /yard/out")
        config["hooks"] = {"startContainer": [{"path": "/bin/sh", "args": ["sh", "-c", "ls /yard >/yard/out"], "env": ["PATH=/bin"]}]}
        self.assertEqual(self.said(config).split(), ["mark", "out"])

    def test_a_start_hook_without_an_environment_has_the_programs(self):
        (self.bundle.rootfs / "bin/hook").write_text("#!/bin/sh\necho $ONE $HOME >/yard/out\n")
        (self.bundle.rootfs / "bin/hook").chmod(0o755)
        config = shell_config("cat /yard/out")
        config["process"]["env"].append("ONE=two")
        config["hooks"] = {"startContainer": [{"path": "/bin/hook"}]}
        self.assertEqual(self.said(config).split(), ["two", "/root"])

    def test_a_start_hook_is_confined_as_the_program_is(self):
        script = "mkdir /yard/made; grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status; id -u"
        config = shell_config("cat /yard/out")
        config["process"]["user"] = {"uid": 1000, "gid": 1000}
        config["process"]["noNewPrivileges"] = False
        config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
            {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 95}]}
        (self.bundle.rootfs / "yard").chmod(0o777)
        config["hooks"] = {"startContainer": [{"path": "/bin/sh", "args": ["sh", "-c", f"({script}) >/yard/out 2>&1"], "env": ["PATH=/bin"]}]}
        program = copy.deepcopy(config)
        program["process"]["args"] = ["sh", "-c", script]
        del program["hooks"]
        done = self.run_to_end(program)
        self.assertIn("not supported", done.stderr)
        self.assertEqual(self.said(config).splitlines(), (done.stderr + done.stdout).strip().splitlines())

    def test_a_create_hook_begins_in_the_root(self):
        config = base_config("cat", "/yard/out")
        config["hooks"] = {"createContainer": [self.hook("pwd >yard/out")]}
        self.assertEqual(self.said(config), str(self.bundle.rootfs))

    def test_a_poststart_hook_that_fails_destroys_the_container(self):
        """Since 1.3 of the specification; before, it was a warning."""
        config = base_config("sleep", "1000")
        config["hooks"] = {"poststart": [self.hook("exit 3")]}
        name = self.create(config)
        done = self.runtime.call("start", name, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("poststart", done.stderr)
        self.assertIsNone(self.runtime.status(name))  # destroyed: step 12 of the lifecycle
