"""The command line around the operations: what engines look at."""
import json
import subprocess

from bundle import base_config, bind
from case import Case
from runtime import program_path


class Commands(Case):
    def plain(self, *arguments, **more):
        return subprocess.run([program_path(), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=20, **more)

    def test_the_version_names_that_of_the_specification(self):
        done = self.plain("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"(?m)^spec: 1\.\d")

    def test_unknown_commands_and_flags_are_errors(self):
        self.assertNotEqual(self.plain("no-such-command").returncode, 0)
        self.assertNotEqual(self.plain("create", "--no-such-flag", "x").returncode, 0)
        self.assertNotEqual(self.plain("--no-such-flag", "list").returncode, 0)
        self.assertNotEqual(self.runtime.call("create", check=False).returncode, 0)

    def test_help(self):
        done = self.plain("--help")
        self.assertEqual(done.returncode, 0)
        for command in ("create", "start", "state", "kill", "delete", "run", "exec", "list", "ps", "pause", "resume", "update", "spec"):
            self.assertIn(command, done.stdout)

    def test_spec_makes_a_config_that_runs(self):
        (self.bundle.path / "config.json").unlink(missing_ok=True)
        done = self.plain("spec", cwd=self.bundle.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        config = json.loads((self.bundle.path / "config.json").read_text())
        self.assertRegex(config["ociVersion"], r"^1\.")
        self.assertEqual(config["root"]["path"], "rootfs")
        config["process"]["terminal"] = False
        config["process"]["args"] = ["echo", "from spec"]
        config["process"]["rlimits"] = []
        self.assertEqual(self.said(config), "from spec")

    def test_spec_overwrites_nothing(self):
        self.bundle.write(base_config("true"))
        before = (self.bundle.path / "config.json").read_text()
        self.assertNotEqual(self.plain("spec", cwd=self.bundle.path).returncode, 0)
        self.assertEqual((self.bundle.path / "config.json").read_text(), before)

    def test_spec_rootless(self):
        done = self.plain("spec", "--rootless", "--bundle", self.bundle.path)
        self.assertEqual(done.returncode, 0, done.stderr)
        config = json.loads((self.bundle.path / "config.json").read_text())
        self.assertIn("user", {row["type"] for row in config["linux"]["namespaces"]})
        self.assertEqual(len(config["linux"]["uidMappings"]), 1)

    def test_features(self):
        features = json.loads(self.plain("features").stdout)
        self.assertRegex(features["ociVersionMin"], r"^1\.")
        self.assertRegex(features["ociVersionMax"], r"^1\.")
        self.assertTrue({"prestart", "createRuntime", "poststop"} <= set(features["hooks"]))
        self.assertTrue({"bind", "ro", "nosuid", "rprivate"} <= set(features["mountOptions"]))
        self.assertTrue({"pid", "mount", "user", "cgroup"} <= set(features["linux"]["namespaces"]))
        self.assertIn("CAP_SYS_ADMIN", features["linux"]["capabilities"])
        self.assertTrue(features["linux"]["seccomp"]["enabled"])
        self.assertIn("SCMP_ACT_ERRNO", features["linux"]["seccomp"]["actions"])

    def test_features_are_true(self):
        """What it says that it knows is taken."""
        features = json.loads(self.plain("features").stdout)
        for version in (features["ociVersionMin"], features["ociVersionMax"]):
            config = base_config("true")
            config["ociVersion"] = version
            self.run_to_end(config)
        (self.work / "data").mkdir()
        config = base_config("true")
        for word in sorted(set(features["mountOptions"]) - {"bind", "idmap", "ridmap", "remount", "tmpcopyup"}):
            config["mounts"].append(bind(self.work / "data", f"/yard/{word}", word))
        self.run_to_end(config)
        seccomp = features["linux"]["seccomp"]
        flags = set(seccomp["supportedFlags"]) - {"SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV"}  # of a listener
        calls = [{"names": ["personality"], "action": action} for action in seccomp["actions"] if action != "SCMP_ACT_NOTIFY"]
        calls += [{"names": ["personality"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0, "value": 1, "valueTwo": 1, "op": op}]}
                  for op in seccomp["operators"]]
        for call in calls:
            config = base_config("true")
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW", "architectures": seccomp["archs"], "flags": sorted(flags),
                                          "syscalls": [call]}
            self.run_to_end(config)
        config = base_config("true")
        config["process"]["capabilities"]["bounding"] = features["linux"]["capabilities"]
        self.run_to_end(config)

    def test_features_of_version_1_3(self):
        features = json.loads(self.plain("features").stdout)["linux"]
        self.assertTrue(features["netDevices"]["enabled"])
        self.assertTrue(features["mountExtensions"]["idmap"]["enabled"])
        self.assertIn("MPOL_BIND", features["memoryPolicy"]["modes"])
        self.assertIn("MPOL_F_STATIC_NODES", features["memoryPolicy"]["flags"])

    def test_a_json_log_has_the_error(self):
        log = self.work / "log"
        done = self.runtime.call("--log", log, "--log-format", "json", "state", "nobody", check=False)
        self.assertNotEqual(done.returncode, 0)
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        self.assertEqual(rows[-1]["level"], "error")
        self.assertTrue(rows[-1]["msg"])
        self.assertRegex(rows[-1]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")

    def test_the_error_of_a_failed_create_is_in_the_log(self):
        log = self.work / "log"
        self.bundle.write(base_config("no-such-program"))
        done = self.runtime.call("--log", log, "--log-format", "json", "create", "--bundle", self.bundle.path, self.name(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no-such-program", json.loads(log.read_text().splitlines()[-1])["msg"])

    def test_debug_is_accepted(self):
        self.bundle.write(base_config("true"))
        self.runtime.call("--debug", "run", "--bundle", self.bundle.path, self.name())

    def test_help_for_an_unknown_command_is_an_error(self):
        self.assertNotEqual(self.plain("no-such-command", "--help").returncode, 0)

    def test_debug_goes_to_the_log(self):
        log = self.work / "log"
        self.bundle.write(base_config("true"))
        done = self.runtime.call("--debug", "--log", log, "--log-format", "json", "run", "--bundle", self.bundle.path, self.name())
        self.assertEqual(done.stdout + done.stderr, "")
        self.assertIn("debug", {json.loads(line)["level"] for line in log.read_text().splitlines()})

    def test_debug_goes_to_standard_error_without_one(self):
        self.bundle.write(base_config("true"))
        done = self.runtime.call("--debug", "run", "--bundle", self.bundle.path, self.name())
        self.assertIn("level=debug", done.stderr)

    def test_the_state_has_its_usual_order(self):
        name = self.sleeper()
        usual = ["ociVersion", "id", "pid", "status", "bundle", "rootfs", "created"]
        names = list(json.loads(self.runtime.call("state", name).stdout))
        self.assertEqual([one for one in names if one in usual], usual)


class CrunsExtras(Case):
    """What crun's users have beyond runc's command line."""

    def test_another_name_of_the_config(self):
        (self.bundle.path / "other.json").write_text(json.dumps(base_config("echo", "other")))
        done = self.runtime.call("run", "--bundle", self.bundle.path, "--config", self.bundle.path / "other.json", self.name())
        self.assertEqual(done.stdout.strip(), "other")

    def test_a_container_that_is_kept(self):
        self.run_to_end(base_config("true"), "--keep")
        self.assertEqual(self.runtime.status(self.names[-1]), "stopped")

    def test_the_cgroup_manager_is_an_option(self):
        self.bundle.write(base_config("true"))
        self.runtime.call("--cgroup-manager", "cgroupfs", "run", "--bundle", self.bundle.path, self.name())
