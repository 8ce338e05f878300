"""config.json: process."""
import json
import os
import shutil
import signal
import subprocess
import unittest

from bundle import ALL_CAPABILITIES, SOME_CAPABILITIES, base_config, shell_config, without_namespace
from case import Case

SETS = ("bounding", "effective", "inheritable", "permitted", "ambient")
LINES = {"bounding": "CapBnd", "effective": "CapEff", "inheritable": "CapInh", "permitted": "CapPrm", "ambient": "CapAmb"}


def mask(names):
    return sum(1 << ALL_CAPABILITIES.index(name) for name in names)


class Program(Case):
    def test_arguments_and_environment_arrive_as_they_are(self):
        config = shell_config('printf "%s|" "$@"; env')
        config["process"]["args"] += ["name", "a b", "", "$HOME", "ü"]
        config["process"]["env"] = ["PATH=/bin", "ONE=1", "EMPTY=", "SPACES=a b=c"]
        said = self.said(config)
        self.assertIn("a b||$HOME|ü|", said)
        lines = said.split("|")[-1].splitlines()
        for line in ("ONE=1", "EMPTY=", "SPACES=a b=c"):
            self.assertIn(line, lines)
        self.assertNotIn("SUDO_USER", said)

    def test_nothing_of_the_callers_environment_arrives(self):
        self.assertNotIn("LEAKED", self.said("env", env={**os.environ, "LEAKED": "yes"}))

    def test_the_program_is_found_in_the_containers_path(self):
        config = base_config("tool")
        config["process"]["env"] = ["PATH=/nowhere:/yard"]
        (self.bundle.rootfs / "yard/tool").write_text("#!/bin/sh\necho found\n")
        (self.bundle.rootfs / "yard/tool").chmod(0o755)
        self.assertEqual(self.said(config), "found")

    def test_a_program_that_is_not_there_is_told(self):
        self.refused(base_config("no-such-program"), "executable file.*not found|no such file")
        self.refused(base_config("/bin/no-such-program"), "no such file")

    def test_a_program_that_may_not_be_executed_is_told(self):
        (self.bundle.rootfs / "yard/data").write_text("#!/bin/sh\n")
        self.refused(base_config("/yard/data"), "permission denied")
        self.refused(base_config("/yard"), "permission denied|is a directory|not permitted")

    def test_no_arguments_are_an_error(self):
        config = base_config()
        config["process"]["args"] = []
        self.refused(config)

    def test_the_working_directory(self):
        config = shell_config("pwd")
        config["process"]["cwd"] = "/yard"
        self.assertEqual(self.said(config), "/yard")

    def test_a_relative_working_directory_is_an_error(self):
        config = base_config("true")
        config["process"]["cwd"] = "yard"
        self.refused(config, "cwd|absolute")

    def test_a_working_directory_of_the_users_own(self):
        (self.bundle.rootfs / "yard").chmod(0o700)
        os.chown(self.bundle.rootfs / "yard", 1000, 1000)
        config = shell_config("pwd")
        config["process"]["cwd"] = "/yard"
        config["process"]["user"] = {"uid": 1000, "gid": 1000}
        config["process"]["capabilities"] = {name: [] for name in SETS}
        self.assertEqual(self.said(config), "/yard")

    def test_no_descriptors_but_the_standard_ones(self):
        read, write = os.pipe()
        os.set_inheritable(write, True)
        os.dup2(write, 17, inheritable=True)
        self.addCleanup(lambda: [os.close(fd) for fd in (read, write, 17)])
        said = self.said("ls /proc/self/fd", close_fds=False)
        self.assertEqual(said.split(), ["0", "1", "2", "3"])  # 3 is the directory that ls reads

    def test_descriptors_that_are_to_be_kept(self):
        (self.work / "kept").write_text("through")
        with open(self.work / "kept", "rb") as file:
            said = self.said("cat <&3; ls /proc/self/fd | wc -l", "--preserve-fds", "1", close_fds=False,
                             preexec_fn=lambda: (os.dup2(file.fileno(), 3), os.set_inheritable(3, True)))
        self.assertEqual(said, "through5")  # 0 to 3, and the directory

    def test_signals_are_as_usual(self):
        said = self.said(base_config("grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"),
                         preexec_fn=lambda: signal.signal(signal.SIGQUIT, signal.SIG_DFL))
        self.assertRegex(said, r"SigBlk:\s+0+\nSigIgn:\s+0+$")


class User(Case):
    def test_user_and_groups(self):
        config = shell_config("id -u; id -g; grep Groups /proc/self/status")
        config["process"]["user"] = {"uid": 1000, "gid": 1001, "additionalGids": [5, 2000]}
        uid, gid, groups = self.said(config).splitlines()
        self.assertEqual((uid, gid), ("1000", "1001"))
        self.assertTrue({"5", "2000"} <= set(groups.split()[1:]) <= {"5", "2000", "1001"}, groups)

    def test_without_additional_groups_there_are_none_of_the_callers(self):
        config = shell_config("grep Groups /proc/self/status")
        config["process"]["user"] = {"uid": 1000, "gid": 1000}
        said = self.said(config, preexec_fn=lambda: os.setgroups([4, 27]))
        self.assertIn(said.split()[1:], ([], ["1000"]))

    def test_all_ids_are_set(self):
        config = shell_config("grep -E '^[UG]id' /proc/self/status")
        config["process"]["user"] = {"uid": 1000, "gid": 1001}
        self.assertEqual(self.said(config).split(), ["Uid:", *["1000"] * 4, "Gid:", *["1001"] * 4])

    def test_umask(self):
        config = shell_config("umask")
        for value, text in ((0o077, "0077"), (0, "0000"), (0o022, "0022")):
            config["process"]["user"]["umask"] = value
            self.assertEqual(self.said(config), text)

    def test_the_largest_id(self):
        config = shell_config("id -u")
        config["process"]["user"] = {"uid": 2**32 - 2, "gid": 2**32 - 2}
        self.assertEqual(self.said(config), str(2**32 - 2))

    def test_ids_out_of_range_are_errors(self):
        for value in (2**32, -1, 1.5, "0"):
            config = base_config("true")
            config["process"]["user"]["uid"] = value
            self.refused(config)


class Limits(Case):
    def test_rlimits(self):
        config = shell_config("cat /proc/self/limits")
        config["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200},
                                        {"type": "RLIMIT_CORE", "soft": 0, "hard": 0},
                                        {"type": "RLIMIT_STACK", "soft": 1 << 20, "hard": 4 << 20}]
        said = self.said(config)
        self.assertRegex(said, r"Max open files\s+100\s+200\s")
        self.assertRegex(said, r"Max core file size\s+0\s+0\s")
        self.assertRegex(said, r"Max stack size\s+1048576\s+4194304\s")

    def test_an_unknown_rlimit_is_an_error(self):
        config = base_config("true")
        config["process"]["rlimits"] = [{"type": "RLIMIT_NOSUCH", "soft": 1, "hard": 1}]
        self.refused(config, "rlimit")

    def test_an_rlimit_twice_is_an_error(self):
        config = base_config("true")
        config["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": soft, "hard": 200} for soft in (100, 150)]
        self.refused(config, "rlimit")

    def test_a_soft_limit_above_the_hard_one_is_an_error(self):
        config = base_config("true")
        config["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": 300, "hard": 200}]
        self.refused(config)

    def test_the_oom_score(self):
        config = shell_config("cat /proc/self/oom_score_adj")
        config["process"]["oomScoreAdj"] = 321
        self.assertEqual(self.said(config), "321")

    def test_no_new_privileges(self):
        for value, text in ((True, "1"), (False, "0")):
            config = shell_config("grep NoNewPrivs /proc/self/status")
            config["process"]["noNewPrivileges"] = value
            self.assertEqual(self.said(config).split()[1], text)

    def test_scheduler(self):
        config = shell_config("cut -d ' ' -f 19,41 /proc/self/stat")
        config["process"]["scheduler"] = {"policy": "SCHED_BATCH", "nice": 5}
        self.assertEqual(self.said(config), "5 3")

    def test_an_unknown_scheduler_policy_is_an_error(self):
        config = base_config("true")
        config["process"]["scheduler"] = {"policy": "SCHED_NOSUCH"}
        self.refused(config)

    def test_io_priority(self):
        config = shell_config("ionice -p $$")
        config["process"]["ioPriority"] = {"class": "IOPRIO_CLASS_BE", "priority": 6}
        self.assertRegex(self.said(config), r"best-effort: prio 6")

    def test_an_unknown_io_class_is_an_error(self):
        config = base_config("true")
        config["process"]["ioPriority"] = {"class": "IOPRIO_CLASS_NOSUCH", "priority": 1}
        self.refused(config)


class Capabilities(Case):
    def sets_of(self, capabilities, uid=0):
        config = shell_config("grep ^Cap /proc/self/status")
        config["process"]["user"] = {"uid": uid, "gid": uid}
        config["process"]["capabilities"] = capabilities
        rows = dict(line.split(":\t") for line in self.said(config).splitlines())
        return {name: int(rows[line], 16) for name, line in LINES.items()}

    def test_each_set_is_as_configured(self):
        some, fewer = SOME_CAPABILITIES, SOME_CAPABILITIES[:3]
        got = self.sets_of({"bounding": some, "permitted": some, "effective": some, "inheritable": fewer, "ambient": fewer}, 1000)
        # The shell and grep are executed by a user: only ambient capabilities survive that.
        self.assertEqual(got, {"bounding": mask(some), "permitted": mask(fewer), "effective": mask(fewer),
                               "inheritable": mask(fewer), "ambient": mask(fewer)})

    def test_none_are_none(self):
        self.assertEqual(set(self.sets_of({name: [] for name in SETS}).values()), {0})

    def test_without_the_property_there_are_none(self):
        config = shell_config("grep ^CapEff /proc/self/status")
        del config["process"]["capabilities"]
        self.assertEqual(int(self.said(config).split()[1], 16), 0)

    def test_a_user_has_only_ambient_ones(self):
        got = self.sets_of({name: SOME_CAPABILITIES for name in ("bounding", "permitted", "effective")}, 1000)
        self.assertEqual((got["effective"], got["permitted"]), (0, 0))
        self.assertEqual(got["bounding"], mask(SOME_CAPABILITIES))

    def test_the_programs_own_sets_are_those_configured(self):
        # Init's, before it executes anything else.
        name = self.sleeper()
        with open(f"/proc/{self.pid(name)}/status", encoding="utf-8") as file:
            rows = dict(line.split(":", 1) for line in file)
        self.assertEqual({int(rows[line], 16) for line in ("CapEff", "CapPrm", "CapBnd")}, {mask(SOME_CAPABILITIES)})


class UngrantedCapabilities(Case):
    """Logged as a warning, and no failure."""

    def warnings_of(self, capabilities, script="grep ^Cap /proc/self/status"):
        log = self.work / "log"
        config = shell_config(script)
        config["process"]["capabilities"] = capabilities
        self.bundle.write(config)
        done = self.runtime.call("--log", log, "--log-format", "json", "run", "--bundle", self.bundle.path, self.name())
        rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        rows_of = dict(line.split(":\t") for line in done.stdout.splitlines())
        return [row["msg"] for row in rows if row["level"] == "warning"], {name: int(rows_of[line], 16) for name, line in LINES.items()}

    def test_an_unknown_one(self):
        warnings, got = self.warnings_of({name: ["CAP_KILL", "CAP_NOSUCH", "KILL"] for name in ("bounding", "permitted", "effective")})
        self.assertIn("CAP_NOSUCH", " ".join(warnings))
        self.assertEqual(got["bounding"], mask(["CAP_KILL"]))

    def test_an_ambient_one_that_is_not_inheritable(self):
        some = ["CAP_KILL", "CAP_CHOWN"]
        warnings, got = self.warnings_of({"bounding": some, "permitted": some, "effective": some, "inheritable": some[:1], "ambient": some})
        self.assertRegex(" ".join(warnings), "ambient.*CAP_CHOWN")
        self.assertEqual(got["ambient"], mask(some[:1]))

    def test_an_effective_one_that_is_not_permitted(self):
        warnings, got = self.warnings_of({"bounding": ["CAP_KILL"], "permitted": [], "effective": ["CAP_KILL"]})
        self.assertRegex(" ".join(warnings), "effective.*CAP_KILL")
        self.assertEqual(got["bounding"], mask(["CAP_KILL"]))

    def test_one_that_the_runtime_has_not(self):
        log = self.work / "log"
        self.bundle.write(shell_config("grep ^CapBnd /proc/self/status"))
        drop = ["capsh", "--drop=cap_kill", "--", "-c", 'exec "$0" "$@"']
        if not shutil.which(drop[0]):
            self.skipTest("no capsh")
        words = self.runtime.words("--log", log, "--log-format", "json", "run", "--bundle", self.bundle.path, self.name())
        done = subprocess.run([*drop, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=20)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("CAP_KILL", log.read_text())
        self.assertEqual(int(done.stdout.split()[1], 16) & mask(["CAP_KILL"]), 0)

    def test_usual_ones_are_granted_without_a_word(self):
        warnings, got = self.warnings_of({name: SOME_CAPABILITIES for name in SETS})
        self.assertEqual(warnings, [])
        self.assertEqual(got["ambient"], mask(SOME_CAPABILITIES))


class Labels(Case):
    """One that cannot be had is an error: the process would have more rights than its owner thinks."""

    def test_an_apparmor_profile_that_is_not_there(self):
        config = base_config("true")
        config["process"]["apparmorProfile"] = "conformance-nosuch"
        self.refused(config, "apparmor")
        name = self.sleeper()
        document = {"args": ["true"], "env": ["PATH=/bin"], "cwd": "/", "apparmorProfile": "conformance-nosuch"}
        (self.work / "process.json").write_text(json.dumps(document))
        self.assertNotEqual(self.runtime.call("exec", "--process", self.work / "process.json", name, check=False).returncode, 0)

    def test_no_apparmor_profile_at_all(self):
        config = base_config("true")
        config["process"]["apparmorProfile"] = "unconfined"
        self.run_to_end(config)

    @unittest.skipIf(os.path.exists("/sys/fs/selinux/enforce"), "a host with SELinux")
    def test_an_selinux_label_without_selinux(self):
        config = base_config("true")
        config["process"]["selinuxLabel"] = "system_u:system_r:container_t:s0:c1,c2"
        self.refused(config, "selinux")
        config = base_config("true")
        config["linux"]["mountLabel"] = "system_u:object_r:container_file_t:s0:c1,c2"
        self.refused(config)


class Options(Case):
    def test_processes_die_with_init(self):
        name = self.start(shell_config("sleep 1234567 & sleep 0.1; exit 0"))
        self.runtime.wait_status(name, "stopped")
        done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
        self.assertNotIn("sleep 1234567", done.stdout)

    def test_without_a_pid_namespace_the_program_is_a_process_of_the_host(self):
        config = shell_config("echo $$")
        without_namespace(config, "pid")
        self.assertGreater(int(self.said(config)), 1)


class Environment(Case):
    def test_the_last_of_two_values_of_a_variable_counts(self):
        config = shell_config("env | grep -c ^ONE=; echo $ONE")
        config["process"]["env"] += ["ONE=1", "ONE=2"]
        self.assertEqual(self.said(config).split(), ["1", "2"])

    def test_an_empty_home_is_none(self):
        config = shell_config("echo $HOME")
        config["process"]["env"] += ["HOME=/else", "HOME="]
        self.assertEqual(self.said(config), "/root")

    def test_a_directory_that_its_user_may_not_enter(self):
        config = shell_config("pwd")
        config["process"] |= {"user": {"uid": 1000, "gid": 1000}, "cwd": "/root"}
        (self.bundle.rootfs / "root").chmod(0o700)
        self.assertEqual(self.said(config), "/root")
