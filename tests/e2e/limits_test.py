"""Limits hold, are told, and leave the sandbox usable."""
import unittest

from daemon import DaemonCase


class Limits(DaemonCase):
    def usable(self, sandbox):
        self.assertEqual(self.client.output(sandbox, "echo usable"), "usable\n")

    def test_out_of_memory_is_told(self):
        sandbox = self.sandbox(limits={"memory_bytes": 64 << 20})
        result = self.client.exec(sandbox, ["dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1"])
        self.assertEqual((result["cause"], result["signal"], result["oom_killed"]), ("out_of_memory", "SIGKILL", True), result)
        self.usable(sandbox)
        self.assertFalse(self.client.exec(sandbox, "true")["oom_killed"])

    def test_out_of_memory_of_a_child_is_told(self):
        sandbox = self.sandbox(limits={"memory_bytes": 64 << 20})
        result = self.client.exec(sandbox, "dd if=/dev/zero of=/dev/null bs=300M count=1; echo after")
        self.assertTrue(result["oom_killed"], result)
        self.usable(sandbox)

    def test_files_in_memory_count(self):
        sandbox = self.sandbox(limits={"memory_bytes": 64 << 20, "disk_bytes": 512 << 20})
        self.assertTrue(self.client.exec(sandbox, "dd if=/dev/zero of=/tmp/file bs=1M count=300")["oom_killed"])
        self.client.exec(sandbox, "rm -f /tmp/file")
        self.usable(sandbox)

    def test_a_fork_bomb_is_contained_and_told(self):
        sandbox = self.sandbox(limits={"pids": 64})
        result = self.client.exec(sandbox, "bomb() { bomb | bomb & }; bomb; while :; do :; done", timeout_seconds=5)
        self.assertTrue(result["timed_out"] or result["exit_code"] is not None, result)
        self.assertTrue(result["pids_limit_hit"], result)
        self.client.exec(sandbox, "true")
        self.usable(sandbox)
        self.assertFalse(self.client.exec(sandbox, "true")["pids_limit_hit"])

    def test_the_disk_is_bounded(self):
        sandbox = self.sandbox(limits={"disk_bytes": 4 << 20})
        result = self.client.exec(sandbox, "dd if=/dev/zero of=/workspace/file bs=1M count=50")
        self.assertNotEqual(result["exit_code"], 0)
        self.assertIn("No space left", result["stderr"])
        result = self.client.exec(sandbox, "dd if=/dev/zero of=/tmp/file bs=1M count=50")
        self.assertIn("No space left", result["stderr"])
        self.usable(sandbox)

    def test_a_writable_root_is_bounded_as_well(self):
        sandbox = self.sandbox(rootfs={"readonly": False}, user="root", limits={"disk_bytes": 4 << 20})
        self.assertEqual(self.client.output(sandbox, "echo new > /new; cat /new"), "new\n")
        self.assertIn("No space left", self.client.exec(sandbox, "dd if=/dev/zero of=/file bs=1M count=50")["stderr"])

    def test_open_files(self):
        sandbox = self.sandbox(limits={"open_files": 100})
        self.assertEqual(self.client.output(sandbox, "ulimit -n").strip(), "100")

    def test_usage_is_told(self):
        sandbox = self.sandbox()
        usage = self.client.exec(sandbox, "i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done")["usage"]
        self.assertGreater(usage["cpu_user_ms"] + usage["cpu_system_ms"], 1)
        self.assertGreater(usage["memory_peak_bytes"], 100000)

    def test_more_than_the_host_has_is_refused(self):
        error = self.refused("limit", "POST", "/v1/sandboxes", {"image": "busybox", "limits": {"memory_bytes": 1 << 50}})
        self.assertEqual(error["field"], "limits.memory_bytes")
        error = self.refused("limit", "POST", "/v1/sandboxes", {"image": "busybox", "limits": {"cpus": 4000}})
        self.assertEqual(error["field"], "limits.cpus")


class OperatorLimits(DaemonCase):
    config = {"limits": {"sandboxes": 2, "commands_per_sandbox": 1}, "ceilings": {"exec_timeout_seconds": 1},
              "defaults": {"exec_timeout_seconds": 1}}

    def test_sandboxes_are_counted(self):
        self.sandbox()
        second = self.sandbox()
        self.refused("limit", "POST", "/v1/sandboxes", {"image": "busybox"})
        self.client.delete(second)
        self.sandbox()

    def test_no_time_out_means_the_ceiling(self):
        sandbox = self.sandbox()
        self.assertTrue(self.client.exec(sandbox, "sleep 1000", timeout_seconds=0)["timed_out"])
        path = f"/v1/sandboxes/{sandbox}/exec"
        self.assertEqual(self.refused("limit", "POST", path, {"command": "true", "timeout_seconds": 2})["field"], "timeout_seconds")


if __name__ == "__main__":
    unittest.main()
