"""podman --runtime with the runtime that HUTCH_OCI names: the whole life of containers, offline."""
import json
import unittest

from daemon import wait_until
from oci_engine import ULIMITS, Engine


class Podman(Engine):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.addClassCleanup(cls.podman, "system", "reset", "--force", check=False)
        cls.podman("import", cls.tar, "test:1")

    @classmethod
    def podman(cls, *words, **more):
        return cls.call("podman", "--root", cls.work / "storage", "--runroot", cls.work / "run", "--tmpdir", cls.work / "tmp",
                        "--runtime", cls.runtime, "--cgroup-manager", "cgroupfs", "--events-backend", "file", "--storage-driver", "vfs",
                        *words, **more)

    def run_one(self, *words, options=(), **more):
        return self.podman("run", "--rm", "--network=none", *ULIMITS, *options, "test:1", *words, **more)

    def background(self, name, script="trap 'exit 3' TERM; while :; do sleep 0.05; done", options=()):
        self.podman("run", "--detach", "--name", name, "--network=none", *ULIMITS, *options, "test:1", "sh", "-c", script)
        self.addCleanup(self.podman, "rm", "--force", "--time=0", name, check=False)

    def status(self, name):
        return json.loads(self.podman("inspect", name).stdout)[0]["State"]

    def test_run_gives_output_and_exit_code(self):
        self.assertEqual(self.run_one("echo", "hello").stdout, "hello\n")
        self.assertEqual(self.run_one("sh", "-c", "exit 7", check=False).returncode, 7)

    def test_an_unknown_program_is_127_and_one_that_is_none_126(self):
        done = self.run_one("no-such-program", check=False)
        self.assertEqual(done.returncode, 127, done.stderr)
        done = self.run_one("/etc/passwd", check=False)
        self.assertEqual(done.returncode, 126, done.stderr)

    def test_users_environment_and_directory(self):
        done = self.run_one("sh", "-c", "id -u; echo $ONE; pwd", options=("--user=1000", "--env=ONE=1", "--workdir=/yard"))
        self.assertEqual(done.stdout.split(), ["1000", "1", "/yard"])

    def test_volumes_and_a_read_only_root(self):
        (self.work / "volume").mkdir()
        done = self.run_one("sh", "-c", "echo x >/volume/file; touch /y 2>/dev/null || echo refused",
                            options=(f"--volume={self.work}/volume:/volume", "--read-only"))
        self.assertEqual(done.stdout.strip(), "refused")
        self.assertEqual((self.work / "volume/file").read_text(), "x\n")

    def test_standard_input(self):
        done = self.run_one("cat", options=("--interactive",), input="words", stdin=None)
        self.assertEqual(done.stdout, "words")

    def test_exec_pause_update_stop_remove(self):
        self.background("life", options=("--memory=64m", "--pids-limit=50"))
        self.assertEqual(self.podman("exec", "life", "echo", "in").stdout, "in\n")
        self.assertEqual(self.podman("exec", "life", "sh", "-c", "exit 9", check=False).returncode, 9)
        self.podman("pause", "life")
        self.assertEqual(self.status("life")["Status"], "paused")
        self.podman("unpause", "life")
        self.podman("update", "--memory=32m", "life")
        self.podman("stop", "--time=10", "life")
        self.assertEqual(self.status("life")["ExitCode"], 3)
        self.podman("start", "life")
        self.assertEqual(self.status("life")["Status"], "running")
        self.podman("rm", "--force", "--time=0", "life")
        self.assertNotIn("life", self.podman("ps", "--all", "--format", "{{.Names}}").stdout)

    def test_a_terminal(self):
        self.background("terminal", "tty; sleep 100", options=("--tty",))
        wait_until(lambda: "/dev/" in self.podman("logs", "terminal").stdout, "what the program wrote")
        self.assertRegex(self.podman("exec", "--tty", "terminal", "tty").stdout, "/dev/pts/")

    def test_a_tmpfs(self):
        done = self.run_one("sh", "-c", "touch /tmp/x && echo made", options=("--tmpfs=/tmp:size=1m",))
        self.assertEqual(done.stdout.strip(), "made")

    def test_a_user_namespace(self):
        done = self.run_one("cat", "/proc/self/uid_map", options=("--uidmap=0:500000:65536", "--gidmap=0:500000:65536"))
        self.assertEqual(done.stdout.split(), ["0", "500000", "65536"])

    def test_seccomp_is_that_of_the_engine(self):
        self.assertEqual(self.run_one("grep", "Seccomp:", "/proc/self/status").stdout.split()[1], "2")
        self.assertEqual(self.run_one("grep", "Seccomp:", "/proc/self/status", options=("--security-opt=seccomp=unconfined",)).stdout.split()[1], "0")

    def test_a_memory_limit_kills(self):
        done = self.run_one("sh", "-c", "head -c 100m /dev/zero | tail -c 90m | wc -c", options=("--memory=16m", "--memory-swap=16m"), check=False)
        self.assertNotEqual(done.stdout.strip(), str(90 << 20))


if __name__ == "__main__":
    unittest.main()
