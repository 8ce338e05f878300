"""ctr run through a containerd of the test's own, whose shim calls the runtime that HUTCH_OCI names."""
import signal
import subprocess
import time
import unittest

from oci_engine import Engine

IMAGE = "local.test/busybox:1"


class Containerd(Engine):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.work / "config.toml").write_text(f"""version = 2
root = "{cls.work}/root"
state = "{cls.work}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{cls.work}/socket"
""")
        cls.log = open(cls.work / "log", "wb")  # pylint: disable=consider-using-with
        cls.daemon = subprocess.Popen(["containerd", "--config", cls.work / "config.toml"], stdin=subprocess.DEVNULL, stdout=cls.log,
                                      stderr=cls.log)
        cls.addClassCleanup(cls.stop_daemon)
        until = time.monotonic() + 30
        while cls.ctr("version", check=False).returncode != 0:
            if time.monotonic() > until or cls.daemon.poll() is not None:
                raise AssertionError("containerd does not start: " + (cls.work / "log").read_text()[-2000:])
            time.sleep(0.1)
        cls.ctr("images", "import", "--snapshotter", "native", cls.make_oci_archive())

    @classmethod
    def stop_daemon(cls):
        cls.daemon.send_signal(signal.SIGTERM)
        try:
            cls.daemon.wait(10)
        except subprocess.TimeoutExpired:
            cls.daemon.kill()
            cls.daemon.wait()
        cls.log.close()

    @classmethod
    def ctr(cls, *words, **more):
        return cls.call("ctr", "--address", cls.work / "socket", *words, **more)

    def run_words(self, name, *options):
        return ("run", "--snapshotter", "native", "--runtime", "io.containerd.runc.v2", "--runc-binary", self.runtime, *options, IMAGE, name)

    def background(self, name, script="trap 'exit 3' TERM; while :; do sleep 0.05; done"):
        self.ctr(*self.run_words(name, "--detach"), "sh", "-c", script)
        self.addCleanup(self.remove, name)

    def remove(self, name):
        self.ctr("tasks", "kill", "--signal", "SIGKILL", name, check=False)
        self.ctr("tasks", "delete", "--force", name, check=False)
        self.ctr("containers", "delete", name, check=False)

    def state(self, name):
        rows = [line.split() for line in self.ctr("tasks", "list").stdout.splitlines()]
        return next((row[2] for row in rows if row[0] == name), None)

    def wait_state(self, name, state):
        until = time.monotonic() + 20
        while self.state(name) != state:
            self.assertLess(time.monotonic(), until, f"{name} is {self.state(name)}, not {state}")
            time.sleep(0.05)

    def test_run_gives_output_and_exit_code(self):
        self.assertEqual(self.ctr(*self.run_words("one", "--rm"), "echo", "hello").stdout, "hello\n")
        self.assertEqual(self.ctr(*self.run_words("two", "--rm"), "sh", "-c", "exit 7", check=False).returncode, 7)

    def test_an_unknown_program_is_told(self):
        done = self.ctr(*self.run_words("unknown", "--rm"), "no-such-program", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no-such-program", done.stderr)
        self.ctr("containers", "delete", "unknown", check=False)

    def test_exec_pause_kill_delete(self):
        self.background("life")
        self.wait_state("life", "RUNNING")
        self.assertEqual(self.ctr("tasks", "exec", "--exec-id", "e1", "life", "echo", "in").stdout, "in\n")
        self.assertEqual(self.ctr("tasks", "exec", "--exec-id", "e2", "life", "sh", "-c", "exit 9", check=False).returncode, 9)
        self.ctr("tasks", "pause", "life")
        self.wait_state("life", "PAUSED")
        self.ctr("tasks", "resume", "life")
        self.wait_state("life", "RUNNING")
        self.assertIn("PID", self.ctr("tasks", "ps", "life").stdout)
        self.ctr("tasks", "kill", "--signal", "SIGTERM", "life")
        self.wait_state("life", "STOPPED")
        self.ctr("tasks", "delete", "life", check=False)
        self.assertIsNone(self.state("life"))

    def test_metrics_come_from_the_containers_cgroup(self):
        self.background("metrics")
        self.assertRegex(self.ctr("tasks", "metrics", "metrics").stdout, "(?i)pids")

    def test_limits(self):
        done = self.ctr(*self.run_words("limits", "--rm", "--memory-limit", "33554432", "--cpus", "0.5"), "sh", "-c", "echo fine")
        self.assertEqual(done.stdout, "fine\n")

    def test_a_mount_and_a_read_only_root(self):
        (self.work / "volume").mkdir()
        done = self.ctr(*self.run_words("mount", "--rm", "--read-only", "--mount",
                                        f"type=bind,src={self.work}/volume,dst=/yard,options=rbind:rw"),
                        "sh", "-c", "echo x >/yard/file; touch /y 2>/dev/null || echo refused")
        self.assertEqual(done.stdout, "refused\n")
        self.assertEqual((self.work / "volume/file").read_text(), "x\n")


if __name__ == "__main__":
    unittest.main()
