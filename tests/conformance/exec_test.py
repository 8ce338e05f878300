"""exec: a further process, with exactly the policy of the container."""
import json
import os
import pathlib
import subprocess

from bundle import SOME_CAPABILITIES, base_config, with_user_namespace, without_namespace
from case import Case
from runtime import cgroup_directories, end, is_alive, wait_for
from process_test import mask
from terminal import PidfdSocket


class Process(Case):
    def test_it_runs_inside(self):
        name = self.sleeper()
        self.assertEqual(self.exec(name, "echo in; hostname").stdout.split(), ["in", "conformance"])

    def test_a_program_may_be_called_like_a_command(self):
        name = self.sleeper()
        for program in ("ps", "kill", "list", "run"):
            done = self.runtime.call("exec", name, program, "--no-such-option", check=False)
            self.assertNotIn("does not exist", done.stderr)
            self.assertIn("executable file" if program in ("list", "run") else program, done.stdout + done.stderr)

    def test_the_exit_code_is_the_programs(self):
        name = self.sleeper()
        for code in (0, 3, 255):
            self.assertEqual(self.exec(name, f"exit {code}", check=False).returncode, code)
        self.assertEqual(self.exec(name, "kill -KILL $$", check=False).returncode, 137)

    def test_standard_streams(self):
        name = self.sleeper()
        done = self.exec(name, "cat; echo err >&2", input="words")
        self.assertEqual((done.stdout, done.stderr.strip()), ("words", "err"))

    def test_environment_directory_and_user(self):
        name = self.sleeper()
        done = self.exec(name, "echo $ONE $TWO; pwd; id -u; id -g; echo $PATH", "--env", "ONE=1", "--env", "TWO=2", "--cwd", "/yard",
                         "--user", "1000:1001")
        self.assertEqual(done.stdout.split(), ["1", "2", "/yard", "1000", "1001", "/bin"])

    def test_a_process_document(self):
        name = self.sleeper()
        document = {"terminal": False, "user": {"uid": 5, "gid": 6, "additionalGids": [7], "umask": 0o27},
                    "args": ["sh", "-c", "id -u; id -g; umask; pwd; echo $MARK; cat /proc/self/oom_score_adj; grep NoNewPrivs /proc/self/status"],
                    "env": ["PATH=/bin", "MARK=yes"], "cwd": "/tmp", "oomScoreAdj": 500, "noNewPrivileges": True,
                    "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 77, "hard": 77}]}
        (self.work / "process.json").write_text(json.dumps(document))
        done = self.runtime.call("exec", "--process", self.work / "process.json", name)
        self.assertEqual(done.stdout.split(), ["5", "6", "0027", "/tmp", "yes", "500", "NoNewPrivs:", "1"])

    def test_detached(self):
        name = self.sleeper()
        self.runtime.call_to_file(self.work / "exec", "exec", "--detach", "--pid-file", self.work / "pid", name, "sh", "-c",
                                  "echo up; sleep 100")
        pid = int((self.work / "pid").read_text())
        self.assertTrue(is_alive(pid))
        self.assertEqual(os.readlink(f"/proc/{pid}/ns/mnt"), os.readlink(f"/proc/{self.pid(name)}/ns/mnt"))
        wait_for(lambda: "up" in (self.work / "exec").read_text(), "output")

    def test_a_program_that_is_not_there_is_told(self):
        name = self.sleeper()
        done = self.runtime.call("exec", name, "no-such-program", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex((done.stdout + done.stderr).lower(), "executable file.*not found|no such file")
        done = self.runtime.call("exec", name, "/etc/passwd", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex((done.stdout + done.stderr).lower(), "permission denied")

    def test_in_a_stopped_one_is_an_error(self):
        name = self.start(base_config("true"))
        self.runtime.wait_status(name, "stopped")
        self.assertNotEqual(self.exec(name, "true", check=False).returncode, 0)

    def test_in_nobody_is_an_error(self):
        self.assertNotEqual(self.exec("nobody", "true", check=False).returncode, 0)

    def test_in_a_created_one(self):
        name = self.create(base_config("true"))
        self.assertEqual(self.exec(name, "echo early").stdout.strip(), "early")
        self.assertEqual(self.runtime.status(name), "created")

    def test_in_a_paused_one_is_an_error(self):
        name = self.sleeper()
        self.runtime.call("pause", name)
        self.assertNotEqual(self.exec(name, "true", check=False).returncode, 0)
        self.runtime.call("resume", name)

    def test_in_a_paused_one_when_that_is_asked_for(self):
        name = self.sleeper()
        self.runtime.call("pause", name)
        waiting = subprocess.Popen(self.runtime.words("exec", "--ignore-paused", name, "echo", "late"), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, text=True)
        self.addCleanup(end, waiting)
        self.runtime.call("resume", name)
        self.assertEqual(waiting.communicate(timeout=10)[0], "late\n")

    def test_a_further_capability(self):
        name = self.sleeper()
        done = self.exec(name, "grep CapEff /proc/self/status", "--cap", "CAP_SYS_NICE")
        self.assertEqual(int(done.stdout.split()[1], 16), mask(SOME_CAPABILITIES) | mask(["CAP_SYS_NICE"]))

    def test_an_unknown_capability_is_an_error(self):
        name = self.sleeper()
        self.assertNotEqual(self.exec(name, "true", "--cap", "CAP_UNKNOWN", check=False).returncode, 0)

    def test_kept_descriptors(self):
        name = self.sleeper()
        (self.work / "kept").write_text("through")
        with open(self.work / "kept", "rb") as file:
            done = self.exec(name, "cat <&3", "--preserve-fds", "1", close_fds=False,
                             preexec_fn=lambda: (os.dup2(file.fileno(), 3), os.set_inheritable(3, True)))
        self.assertEqual(done.stdout, "through")

    def test_an_inherited_sigquit_is_not_ignored_by_us(self):
        name = self.sleeper()
        done = self.runtime.call("exec", name, "grep", "SigBlk", "/proc/self/status")
        self.assertRegex(done.stdout, r"SigBlk:\s+0+$")


class Policy(Case):
    FIELDS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters")

    def status(self, pid):
        rows = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        return {field: rows[field].strip() for field in self.FIELDS if field in rows}

    def compare(self, change=None):
        """exec_equals_create_policy"""
        name = self.sleeper(change)
        self.runtime.call_to_file(self.work / "exec", "exec", "--detach", "--pid-file", self.work / "pid", name, "sh", "-c",
                                  "while :; do sleep 0.02; done")
        init, pid = self.pid(name), int((self.work / "pid").read_text())
        self.assertEqual(self.status(pid), self.status(init))
        for kind in ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup"):
            self.assertEqual(os.readlink(f"/proc/{pid}/ns/{kind}"), os.readlink(f"/proc/{init}/ns/{kind}"), kind)
        self.assertEqual(cgroup_directories(pid), cgroup_directories(init))
        self.assertEqual(pathlib.Path(f"/proc/{pid}/limits").read_text(), pathlib.Path(f"/proc/{init}/limits").read_text())
        self.assertEqual(os.readlink(f"/proc/{pid}/root"), os.readlink(f"/proc/{init}/root"))

    def test_exec_equals_create_policy(self):
        def change(config):
            config["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": 99, "hard": 99}]
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW",
                                          "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}
        self.compare(change)

    def test_exec_equals_create_policy_in_a_user_namespace(self):
        self.compare(with_user_namespace)

    def test_exec_equals_create_policy_without_a_pid_namespace(self):
        self.compare(lambda config: without_namespace(config, "pid"))

    def test_the_filter_holds(self):
        def change(config):
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW",
                                          "syscalls": [{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}
        name = self.sleeper(change)
        self.assertEqual(self.exec(name, "mkdir /yard/x 2>/dev/null || echo refused").stdout.strip(), "refused")

    def test_only_the_standard_descriptors(self):
        name = self.sleeper()
        with open("/etc/passwd", "rb") as file:
            done = self.runtime.call("exec", name, "ls", "/proc/self/fd", close_fds=False,
                                     preexec_fn=lambda: (os.dup2(file.fileno(), 33), os.set_inheritable(33, True)))
        self.assertEqual(done.stdout.split(), ["0", "1", "2", "3"])


class Start(Case):
    def test_what_is_no_exit_code_of_the_program_is_255(self):
        name = self.sleeper()
        for words in (("nobody", "true"), (name, "no-such-program"), ("--pid-file", "/no/such/file", name, "true")):
            self.assertEqual(self.runtime.call("exec", *words, check=False).returncode, 255, words)

    def test_the_message_for_no_program_begins_with_the_usual_words(self):
        log = self.work / "log"
        self.runtime.call("--log", log, "--log-format", "json", "exec", self.sleeper(), "no-such-program", check=False)
        message = json.loads(log.read_text().splitlines()[-1])["msg"]
        self.assertRegex(message, r"^(exec failed: unable to start container process: )?exec: \"no-such-program\": executable file not found in \$PATH")

    def test_a_group_above_the_containers_is_an_error(self):
        name = self.sleeper()
        for path in ("..", "../..", "inner/../..", "/.."):
            done = self.exec(name, "true", "--cgroup", path, check=False)
            self.assertNotEqual(done.returncode, 0, path)

    def test_the_last_of_two_values_of_a_variable_counts(self):
        name = self.sleeper()
        said = self.exec(name, "env | grep -c ^ONE=; echo $ONE", "--env", "ONE=1", "--env", "ONE=2").stdout
        self.assertEqual(said.split(), ["1", "2"])

    def test_a_capability_is_ambient_where_it_is_inheritable(self):
        def change(config):
            config["process"]["capabilities"]["inheritable"] = ["CAP_SYSLOG", "CAP_CHOWN"]
            config["process"]["capabilities"]["bounding"] = [*SOME_CAPABILITIES, "CAP_SYSLOG"]
        name = self.sleeper(change)
        done = self.exec(name, "grep CapAmb /proc/self/status", "--cap", "CAP_SYSLOG")
        self.assertEqual(int(done.stdout.split()[1], 16), mask(["CAP_SYSLOG"]))

    def test_a_pidfd_goes_to_a_socket(self):
        name = self.sleeper()
        with PidfdSocket(self.work / "pidfd") as receiver:
            self.runtime.call_to_file(self.work / "exec", "exec", "--detach", "--pid-file", self.work / "pid", "--pidfd-socket", receiver.path,
                                      name, "sleep", "1000")
            self.assertEqual(receiver.pid(), int((self.work / "pid").read_text()))
