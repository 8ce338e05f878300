"""config.json: when, where and with which memory a process runs. More of the scheduler is in process_test.py."""
import json
import os
import pathlib
import unittest

import bundle as bundles
from bundle import base_config, shell_config
from case import Case
from runtime import CGROUPS

NUMA = pathlib.Path("/proc/self/numa_maps").exists()
CPUS = sorted(os.sched_getaffinity(0))
ALLOWED = "grep Cpus_allowed_list /proc/self/status"


def ranges(text):
    """The numbers of "0-3,7"."""
    parts = [part.split("-") for part in text.split(",")]
    return [number for part in parts for number in range(int(part[0]), int(part[-1]) + 1)]


class Scheduler(Case):
    def refuse(self, member, value):
        config = base_config("true")
        config["process"][member] = value
        with self.subTest(value):
            self.refused(config)

    def test_what_contradicts_a_policy_is_an_error(self):
        for scheduler in ({"nice": 1}, {"policy": "SCHED_OTHER", "nice": 20}, {"policy": "SCHED_FIFO"}, {"policy": "SCHED_RR", "priority": 100},
                          {"policy": "SCHED_BATCH", "priority": 1}, {"policy": "SCHED_DEADLINE", "deadline": 20000000},
                          {"policy": "SCHED_DEADLINE", "runtime": 20000000},
                          {"policy": "SCHED_DEADLINE", "runtime": 1023, "deadline": 20000000},
                          {"policy": "SCHED_DEADLINE", "runtime": 2**63, "deadline": 2**63 + 1},
                          {"policy": "SCHED_DEADLINE", "runtime": 20000000, "deadline": 10000000},
                          {"policy": "SCHED_DEADLINE", "runtime": 10000000, "deadline": 20000000, "period": 15000000},
                          {"policy": "SCHED_OTHER", "flags": ["SCHED_FLAG_NOSUCH"]}):
            self.refuse("scheduler", scheduler)

    def test_an_io_priority_needs_its_members(self):
        for priority in ({"priority": 3}, {"class": "IOPRIO_CLASS_BE"}, {"class": "IOPRIO_CLASS_BE", "priority": 8},
                         {"class": "IOPRIO_CLASS_RT", "priority": -1}):
            self.refuse("ioPriority", priority)

    def test_a_real_time_policy(self):
        if list(CGROUPS.glob("*/cpu.rt_runtime_us")):
            self.skipTest("a kernel where a new cgroup has no real-time budget")
        config = base_config()
        config["process"]["scheduler"] = {"policy": "SCHED_RR", "priority": 10, "flags": ["SCHED_FLAG_RESET_ON_FORK"]}
        config["process"]["args"] = ["cut", "-d", " ", "-f", "40,41", "/proc/self/stat"]
        self.assertEqual(self.said(config), "10 2")

    def test_rlimits_need_their_members(self):
        for limit in ({"soft": 1, "hard": 1}, {"type": "RLIMIT_NOFILE", "hard": 9}, {"type": "RLIMIT_NOFILE", "soft": 9}):
            self.refuse("rlimits", [limit])


class Cpus(Case):
    def exec_with(self, name, affinity, script=ALLOWED, check=True, **more):
        document = {"args": ["sh", "-c", script], "env": ["PATH=/bin"], "cwd": "/", "user": {"uid": 0, "gid": 0}}
        if affinity is not None:
            document["execCPUAffinity"] = affinity
        (self.work / "process.json").write_text(json.dumps(document))
        return self.runtime.call("exec", "--process", self.work / "process.json", name, check=check, **more)

    def allowed(self, done):
        return ranges(done.stdout.split()[-1])

    def test_the_final_cpus(self):
        name = self.sleeper()
        for cpus in ([CPUS[0]], [CPUS[-1]], [CPUS[0], CPUS[-1]]):
            done = self.exec_with(name, {"initial": str(CPUS[0]), "final": ",".join(map(str, cpus))})
            self.assertEqual(self.allowed(done), sorted(set(cpus)))

    def test_the_initial_cpus_are_those_of_the_runtime(self):
        """Where the kernel remembers what a process was confined to (Linux 6.2) it has no others afterwards."""
        name = self.sleeper()
        allowed = self.allowed(self.exec_with(name, {"initial": str(CPUS[0])}))
        self.assertIn(allowed, ([CPUS[0]], CPUS))
        if tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 2):
            self.assertEqual(allowed, [CPUS[0]])
        self.assertEqual(self.exec_with(name, {"initial": "8000"}, check=False).returncode, 1)

    def test_a_range(self):
        name = self.sleeper()
        done = self.exec_with(name, {"final": f"{CPUS[0]}-{CPUS[-1]}"})
        self.assertEqual(self.allowed(done), CPUS)

    def test_those_of_the_config(self):
        name = self.sleeper(lambda config: config["process"].update(execCPUAffinity={"final": str(CPUS[-1])}))
        self.assertEqual(self.allowed(self.exec(name, ALLOWED)), [CPUS[-1]])
        status = pathlib.Path(f"/proc/{self.pid(name)}/status").read_text()
        self.assertIn(f"Cpus_allowed_list:\t{pathlib.Path('/proc/self/status').read_text().split('Cpus_allowed_list:')[1].split()[0]}", status)

    def test_lists_that_are_none_are_errors(self):
        name = self.sleeper()
        for text in ("x", "1-0", "0,", "0--1", "-1", " 0", "99999"):
            for member in ("initial", "final"):
                with self.subTest(text, member=member):
                    done = self.exec_with(name, {member: text}, check=False)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn("execCPUAffinity", done.stdout + done.stderr)
        config = base_config("true")
        config["process"]["execCPUAffinity"] = {"initial": "x"}
        self.refused(config, "execCPUAffinity")

    def test_the_callers_own_are_not_inherited(self):
        def narrow():
            os.sched_setaffinity(0, {CPUS[0]})
        self.assertEqual(self.allowed(self.run_to_end(ALLOWED, preexec_fn=narrow)), CPUS)
        name = self.sleeper()
        self.assertEqual(self.allowed(self.exec_with(name, None, preexec_fn=narrow)), CPUS)


class MemoryPolicy(Case):
    def config(self, policy, script="sed -n 2p /proc/self/numa_maps"):
        config = shell_config(script)
        config["linux"]["memoryPolicy"] = policy
        return config

    @unittest.skipUnless(NUMA, "a kernel without NUMA")
    def test_each_mode(self):
        for mode, nodes, flags, text in (("DEFAULT", None, (), "default"), ("LOCAL", None, (), "local"), ("BIND", "0", (), "bind:0"),
                                         ("BIND", "0", ("NUMA_BALANCING",), "bind=balancing:0"), ("PREFERRED", "0", (), "prefer:0"),
                                         ("PREFERRED", "0", ("STATIC_NODES",), "prefer=static:0"), ("PREFERRED", None, (), "local"),
                                         ("PREFERRED_MANY", "0", (), r"prefer \(many\):0"), ("INTERLEAVE", "0-0", (), "interleave:0"),
                                         ("INTERLEAVE", "0", ("RELATIVE_NODES",), "interleave=relative:0"),
                                         ("WEIGHTED_INTERLEAVE", "0", (), "weighted interleave:0")):
            if mode == "WEIGHTED_INTERLEAVE" and not pathlib.Path("/sys/kernel/mm/mempolicy/weighted_interleave").exists():
                continue
            policy = {"mode": f"MPOL_{mode}", "flags": [f"MPOL_F_{flag}" for flag in flags]}
            if nodes:
                policy["nodes"] = nodes
            with self.subTest(policy):
                self.assertRegex(self.said(self.config(policy)), f" {text} ")

    @unittest.skipUnless(NUMA, "a kernel without NUMA")
    def test_exec_has_it_too(self):
        name = self.sleeper(lambda config: config["linux"].update(memoryPolicy={"mode": "MPOL_BIND", "nodes": "0"}))
        self.assertIn(" bind:0 ", self.exec(name, "sed -n 2p /proc/self/numa_maps").stdout)

    @unittest.skipUnless(NUMA, "a kernel without NUMA")
    def test_a_user_namespace_has_it_too(self):
        self.bundle.give(bundles.HOST_IDS, bundles.HOST_IDS)
        config = self.config({"mode": "MPOL_BIND", "nodes": "0"})
        bundles.with_user_namespace(config)
        self.assertIn(" bind:0 ", self.said(config))

    @unittest.skipIf(NUMA, "a kernel with NUMA")
    def test_a_kernel_without_says_so(self):
        self.refused(self.config({"mode": "MPOL_BIND", "nodes": "0"}), "memoryPolicy", "kernel")

    def test_a_filter_does_not_forbid_it(self):
        if not NUMA:
            self.skipTest("a kernel without NUMA")
        for value in (True, False):
            config = self.config({"mode": "MPOL_BIND", "nodes": "0"})
            config["process"]["noNewPrivileges"] = value
            config["linux"]["seccomp"] = {"defaultAction": "SCMP_ACT_ALLOW",
                                          "syscalls": [{"names": ["set_mempolicy"], "action": "SCMP_ACT_KILL_PROCESS"}]}
            self.assertIn(" bind:0 ", self.said(config))

    def test_policies_that_are_none_are_errors(self):
        for policy in ({}, {"mode": "BIND"}, {"mode": "MPOL_BIND"}, {"mode": "MPOL_INTERLEAVE"}, {"mode": "MPOL_DEFAULT", "nodes": "0"},
                       {"mode": "MPOL_LOCAL", "nodes": "0"}, {"mode": "MPOL_BIND", "nodes": "a"}, {"mode": "MPOL_BIND", "nodes": "1-0"},
                       {"mode": "MPOL_BIND", "nodes": "10284838"}, {"mode": "MPOL_BIND", "nodes": "1023"},
                       {"mode": "MPOL_BIND", "nodes": "0", "flags": ["STATIC_NODES"]},
                       {"mode": "MPOL_BIND", "nodes": "0", "flags": ["MPOL_F_STATIC_NODES", "MPOL_F_RELATIVE_NODES"]},
                       {"mode": "MPOL_PREFERRED", "flags": ["MPOL_F_STATIC_NODES"]},
                       {"mode": "MPOL_PREFERRED", "nodes": "0", "flags": ["MPOL_F_NUMA_BALANCING"]}):
            with self.subTest(policy):
                self.refused(self.config(policy, "true"), "memoryPolicy")
