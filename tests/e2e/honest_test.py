"""Programs inside see numbers that agree with the sandbox's limits, now and after a restart of the daemon."""
import os
import time
import unittest

from daemon import Daemon, DaemonCase, wait_until

MIB = 1024 * 1024


def meminfo(text):
    """In bytes, by name."""
    return {name: int(rest.split()[0]) * 1024 for name, rest in (line.split(":") for line in text.splitlines())}


def processors(text):
    return [int(line.split(":")[1]) for line in text.splitlines() if line.split(":")[0].strip() == "processor"]


def cpu_lines(text):
    return [line.split()[0] for line in text.splitlines() if line.startswith("cpu") and line[3] != " "]


def usable_cpus():
    return len(os.sched_getaffinity(0))


NO_SEAL = "this kernel cannot reduce a mounted /proc to processes"


class Honest(DaemonCase):
    def setUp(self):
        super().setUp()
        name = self._testMethodName
        if name != "test_a_kernel_that_cannot_says_so" and self.client.create()["proc"] != "honest":
            self.skipTest(NO_SEAL)

    def test_a_kernel_that_cannot_says_so(self):
        sandbox = self.client.create()
        if sandbox["proc"] == "honest":
            self.assertIn("MemTotal", self.out(sandbox["id"], "cat /proc/meminfo"))
        else:
            self.assertEqual(sandbox["proc"], "pids")
            self.refused("unsupported", "POST", "/v1/sandboxes", {"image": "busybox", "proc": "honest"})
            self.assertEqual(self.out(sandbox["id"], "ls -d /proc/[a-z]* | grep -v self; true"), "")

    def out(self, sandbox, command, **fields):
        return self.client.output(sandbox, command, **fields)

    def check_cpus(self, cpus, shown):
        sandbox = self.sandbox(limits={"cpus": cpus})
        self.assertEqual(self.out(sandbox, "nproc"), f"{shown}\n")
        self.assertEqual(processors(self.out(sandbox, "cat /proc/cpuinfo")), list(range(shown)))
        self.assertEqual(cpu_lines(self.out(sandbox, "cat /proc/stat")), [f"cpu{i}" for i in range(shown)])

    def test_cpus_are_the_quota_rounded_up(self):
        self.check_cpus(1, 1)
        self.check_cpus(0.5, 1)

    def test_two_cpus_are_two_where_the_host_has_them(self):
        if usable_cpus() < 2:
            self.refused("limit", "POST", "/v1/sandboxes", {"image": "busybox", "limits": {"cpus": 2}})
        else:
            self.check_cpus(2, 2)
            self.check_cpus(1.5, 2)

    def test_sandboxes_of_one_cpu_take_turns(self):
        seen = set()
        for _ in range(usable_cpus()):
            seen.add(self.out(self.sandbox(limits={"cpus": 1}), "grep Cpus_allowed_list /proc/self/status"))
        self.assertEqual(len(seen), usable_cpus(), seen)

    def test_memory_is_the_limit(self):
        sandbox = self.sandbox(limits={"memory_bytes": 96 * MIB})
        memory = meminfo(self.out(sandbox, "cat /proc/meminfo"))
        self.assertEqual(memory["MemTotal"], 96 * MIB)
        self.assertEqual(memory["SwapTotal"], 0)
        self.assertLessEqual(memory["MemFree"], memory["MemAvailable"])
        self.assertLessEqual(memory["MemAvailable"], memory["MemTotal"])
        self.assertLessEqual(memory["MemFree"] + memory["Buffers"] + memory["Cached"] + memory["Slab"], memory["MemTotal"])
        self.assertEqual(self.out(sandbox, "cat /proc/swaps").count("\n"), 1)

    def test_what_is_used_is_no_longer_free(self):
        sandbox = self.sandbox(limits={"memory_bytes": 96 * MIB})
        before = meminfo(self.out(sandbox, "cat /proc/meminfo"))
        self.out(sandbox, "dd if=/dev/zero of=/tmp/x bs=1M count=40 2>/dev/null")
        time.sleep(0.2)  # beyond what counts as fresh
        after = meminfo(self.out(sandbox, "cat /proc/meminfo"))
        self.assertLessEqual(after["MemFree"], before["MemFree"] - 38 * MIB)
        self.assertLessEqual(after["MemAvailable"], before["MemAvailable"] - 38 * MIB, "a tmpfs cannot be reclaimed")
        self.assertGreaterEqual(after["Shmem"], 38 * MIB)

    def test_uptime_counts_from_the_creation(self):
        sandbox = self.sandbox()
        before, idle = (float(word) for word in self.out(sandbox, "cat /proc/uptime").split())
        self.assertLess(before, 60)
        self.assertLessEqual(idle, before + 0.01)
        time.sleep(1)
        after = float(self.out(sandbox, "cat /proc/uptime").split()[0])
        self.assertGreaterEqual(after, before + 0.9)
        btime = int(self.out(sandbox, "grep btime /proc/stat").split()[1])
        self.assertLess(abs(time.time() - after - btime), 10)

    def test_numbers_move_while_a_command_runs(self):
        sandbox = self.sandbox()
        script = "a=$(cat /proc/uptime); echo $a; i=0; while [ $i -lt 300 ] && [ \"$(cat /proc/uptime)\" = \"$a\" ]; " \
                 "do i=$((i+1)); sleep 0.1; done; cat /proc/uptime"
        first, last = (float(line.split()[0]) for line in self.out(sandbox, script).splitlines())
        self.assertGreater(last, first)

    def test_work_is_cpu_time_and_load(self):
        sandbox = self.sandbox()
        self.out(sandbox, "end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; done")
        time.sleep(0.2)
        busy = self.out(sandbox, "head -1 /proc/stat").split()
        self.assertGreater(int(busy[1]) + int(busy[3]), 5)
        load = self.out(sandbox, "cat /proc/loadavg").split()
        self.assertGreater(float(load[0]), 0)
        self.assertEqual(len(load), 5)
        running, tasks = (int(number) for number in load[3].split("/"))
        self.assertTrue(1 <= running <= tasks, load)

    def test_the_host_is_not_to_be_found(self):
        sandbox = self.sandbox()
        for name in ("kallsyms", "kmsg", "cmdline", "interrupts", "diskstats", "modules", "sys/kernel/core_pattern", "sys/vm/drop_caches"):
            self.assertEqual(self.client.exec(sandbox, f"cat /proc/{name}", user="root")["stdout"], "", name)
        self.assertNotEqual(self.client.exec(sandbox, "echo 1 > /proc/sys/vm/overcommit_memory", user="root")["exit_code"], 0)

    def test_pids_is_the_strict_form(self):
        made = self.client.create(proc="pids")
        self.assertEqual(made["proc"], "pids")
        self.assertEqual(self.client.exec(made["id"], "cat /proc/meminfo")["stdout"], "")
        self.assertEqual(set(name for name in self.out(made["id"], "ls /proc").split() if not name.isdigit()), {"self", "thread-self"})
        self.assertEqual(self.client.create()["proc"], "honest")
        self.assertEqual(self.client.create(relax={"proc": "full"})["proc"], "full")
        body = {"image": "busybox", "proc": "all"}
        self.assertEqual(self.refused("invalid_argument", "POST", "/v1/sandboxes", body)["field"], "proc")
        body = {"image": "busybox", "proc": "pids", "relax": {"proc": "full"}}
        self.assertEqual(self.refused("invalid_argument", "POST", "/v1/sandboxes", body)["field"], "proc")

    def test_a_user_the_image_does_not_know_has_a_name_and_a_home(self):
        for readonly in (True, False):
            sandbox = self.sandbox(user="4242:4343", rootfs={"readonly": readonly})
            name = self.out(sandbox, "whoami").strip()
            self.assertEqual(self.out(sandbox, "id"), f"uid=4242({name}) gid=4343(group4343)\n")
            self.assertEqual(self.out(sandbox, "echo $USER; cd ~ && pwd && touch x"), f"{name}\n/home/sandbox\n")
            self.assertIn("\nsandbox:x:1000:1000:", self.out(sandbox, "cat /etc/passwd"), "the image's own lines")
        self.assertEqual(self.out(sandbox, "grep -c . /etc/passwd"), "4\n")

    def test_a_user_can_be_added_where_the_root_is_writable(self):
        sandbox = self.sandbox(user="4242:4343", rootfs={"readonly": False})
        self.out(sandbox, "echo new:x:5000:5000::/home/sandbox:/bin/sh >> /etc/passwd", user="root")
        self.assertEqual(self.out(sandbox, "whoami", user="5000"), "new\n")

    def test_the_image_that_knows_its_user_is_left_alone(self):
        self.client.create()
        layers = self.daemon.dir / "state" / "user-layers"
        before = len(list(layers.iterdir())) if layers.is_dir() else 0
        self.client.create(user="1000:1000")
        self.client.create(user="root")
        self.assertEqual(len(list(layers.iterdir())) if layers.is_dir() else 0, before)


class AfterARestart(unittest.TestCase):
    def test_the_numbers_go_on(self):
        daemon = Daemon().start()
        self.addCleanup(daemon.close)
        daemon.import_busybox()
        client = daemon.client()
        made = client.create(name="kept", user="4242", limits={"cpus": 1, "memory_bytes": 96 * MIB})
        if made["proc"] != "honest":
            client.close()
            self.skipTest(NO_SEAL)
        before = float(client.output("kept", "cat /proc/uptime").split()[0])
        cpus = client.output("kept", "grep Cpus_allowed_list /proc/self/status")
        client.close()
        daemon.kill()
        daemon.start()
        client = daemon.client()
        self.addCleanup(client.close)

        def later():
            return float(client.output("kept", "cat /proc/uptime").split()[0]) > before + 0.5
        wait_until(later, "the uptime goes on")
        client.output("kept", "dd if=/dev/zero of=/tmp/x bs=1M count=40 2>/dev/null")
        time.sleep(0.2)
        memory = meminfo(client.output("kept", "cat /proc/meminfo"))
        self.assertEqual(memory["MemTotal"], 96 * MIB)
        self.assertLess(memory["MemFree"], 58 * MIB)
        self.assertEqual(client.output("kept", "grep Cpus_allowed_list /proc/self/status"), cpus)
        self.assertEqual(client.output("kept", "whoami"), "user4242\n")
        client.create(user="4242")  # its layer was kept
        client.create(user="4343")


if __name__ == "__main__":
    unittest.main()
