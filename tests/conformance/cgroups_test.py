"""config-linux.json: cgroupsPath and resources; update, pause, resume, events."""
import json
import pathlib
import time

from bundle import base_config, shell_config
from case import Case
from runtime import CGROUPS, cgroup_directories, is_unified, wait_for

MIB = 1 << 20


class Cgroups(Case):
    def limited(self, resources, path=None, unified=False):
        """A running container with these resources: the directories of its cgroups."""
        def change(config):
            config["linux"]["resources"] |= {"unified": resources} if unified else resources
            config["linux"]["cgroupsPath"] = path or f"/{self.group_name()}"
        self.container = self.sleeper(change)
        return cgroup_directories(self.pid(self.container))

    def group_name(self):
        return self.names[-1] if self.names else f"conformance-group-{self.work.name.rsplit('.', 1)[-1]}"

    def value(self, directories, v1, v2):
        """The text of the file, `memory/memory.limit_in_bytes` on hybrid hosts or `memory.max`."""
        if is_unified():
            return (directories[""] / v2).read_text().strip()
        controller, name = v1.split("/")
        return (directories[controller] / name).read_text().strip()


class Path(Cgroups):
    def test_an_absolute_path(self):
        name = f"conformance-path-{self.work.name}"
        self.names.append(name)
        self.names.clear()
        directories = self.limited({"pids": {"limit": 50}}, f"/{name}/sub")
        key = "" if is_unified() else "pids"
        self.assertTrue(str(directories[key]).endswith(f"/{name}/sub"), directories)
        self.runtime.call("delete", "--force", self.container)
        self.assertFalse(directories[key].exists())
        for directory in directories.values():
            if directory.parent.name == name and directory.parent.exists():  # whose is what was made on the way is not said
                directory.parent.rmdir()

    def test_without_a_path_the_container_has_one_of_its_own(self):
        name = self.sleeper()
        directories = cgroup_directories(self.pid(name))
        own = cgroup_directories("self")
        key = "" if is_unified() else "pids"
        self.assertNotEqual(directories[key], own[key])
        self.runtime.call("delete", "--force", name)
        self.assertFalse(directories[key].exists())

    def test_one_that_others_live_in_is_refused_and_left(self):
        first = self.sleeper()
        path = cgroup_directories(self.pid(first))["" if is_unified() else "pids"]
        (path / "empty").mkdir()
        config = base_config("true")
        config["linux"]["cgroupsPath"] = str(path).removeprefix(str(CGROUPS if is_unified() else CGROUPS / "pids"))
        message = self.refused(config, "not empty")
        self.assertNotIn("busy", message)
        self.assertTrue((path / "empty").exists())
        (path / "empty").rmdir()

    def test_two_containers_do_not_share_one(self):
        first, second = self.sleeper(), None
        self.output_file.unlink()
        second = self.sleeper()
        key = "" if is_unified() else "pids"
        self.assertNotEqual(cgroup_directories(self.pid(first))[key], cgroup_directories(self.pid(second))[key])


class Limits(Cgroups):
    def test_memory(self):
        directories = self.limited({"memory": {"limit": 64 * MIB}})
        self.assertEqual(self.value(directories, "memory/memory.limit_in_bytes", "memory.max"), str(64 * MIB))

    def test_memory_is_held(self):
        config = shell_config("head -c 100m /dev/zero | tail -c 60m | wc -c")
        config["linux"]["resources"]["memory"] = {"limit": 16 * MIB, "swap": 16 * MIB}
        self.assertNotEqual(self.run_to_end(config, check=False).stdout.strip(), str(60 * MIB))

    def test_a_reservation(self):
        directories = self.limited({"memory": {"limit": 64 * MIB, "reservation": 32 * MIB}})
        self.assertEqual(self.value(directories, "memory/memory.soft_limit_in_bytes", "memory.low"), str(32 * MIB))

    def test_no_limit(self):
        directories = self.limited({"memory": {"limit": -1}})
        self.assertIn(self.value(directories, "memory/memory.limit_in_bytes", "memory.max"), ("max", str(2**63 - 4096)))

    def test_pids(self):
        directories = self.limited({"pids": {"limit": 33}})
        self.assertEqual(self.value(directories, "pids/pids.max", "pids.max"), "33")

    def test_pids_are_held(self):
        config = shell_config("for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done 2>/dev/null; echo all")
        config["linux"]["resources"]["pids"] = {"limit": 5}
        self.assertNotIn("all", self.run_to_end(config, check=False).stdout)

    def test_cpu(self):
        directories = self.limited({"cpu": {"quota": 50000, "period": 100000, "shares": 1024}})
        if is_unified():
            self.assertEqual((directories[""] / "cpu.max").read_text().strip(), "50000 100000")
            self.assertIn((directories[""] / "cpu.weight").read_text().strip(), ("39", "100"))
        else:
            for name, value in (("cfs_quota_us", "50000"), ("cfs_period_us", "100000"), ("shares", "1024")):
                self.assertEqual((directories["cpu"] / f"cpu.{name}").read_text().strip(), value)

    def test_cpus(self):
        directories = self.limited({"cpu": {"cpus": "0", "mems": "0"}})
        self.assertEqual(self.value(directories, "cpuset/cpuset.cpus", "cpuset.cpus"), "0")
        self.assertEqual(self.value(directories, "cpuset/cpuset.mems", "cpuset.mems"), "0")
        status = pathlib.Path(f"/proc/{self.pid(self.container)}/status").read_text()
        self.assertRegex(status, r"Cpus_allowed_list:\s+0\n")

    def test_values_that_the_kernel_refuses_are_errors(self):
        for resources in ({"cpu": {"cpus": "9999"}}, {"cpu": {"quota": 1, "period": 100000}}, {"memory": {"limit": -5}}):
            config = base_config("true")
            config["linux"]["resources"] |= resources
            self.refused(config)

    def test_swap_below_memory_is_an_error(self):
        config = base_config("true")
        config["linux"]["resources"]["memory"] = {"limit": 64 * MIB, "swap": 32 * MIB}
        self.refused(config)


class Unified(Cgroups):
    def test_files_of_v2_are_written_as_they_are(self):
        if not is_unified():
            config = base_config("true")
            config["linux"]["resources"]["unified"] = {"memory.max": "64000000"}
            self.refused(config)
            return
        directories = self.limited({"memory.high": "33554432", "pids.max": "44", "cpu.weight": "77"}, unified=True)
        got = [(directories[""] / name).read_text().strip() for name in ("memory.high", "pids.max", "cpu.weight")]
        self.assertEqual(got, ["33554432", "44", "77"])

    def test_keys_that_are_paths_are_errors(self):
        for key in ("../memory.max", "sub/memory.max", "/memory.max", "nosuchcontroller.max"):
            config = base_config("true")
            config["linux"]["resources"]["unified"] = {key: "max"}
            self.refused(config)


class Update(Cgroups):
    def test_by_flags(self):
        directories = self.limited({"memory": {"limit": 64 * MIB}, "pids": {"limit": 20}})
        self.runtime.call("update", "--memory", str(32 * MIB), "--pids-limit", "30", self.container)
        self.assertEqual(self.value(directories, "memory/memory.limit_in_bytes", "memory.max"), str(32 * MIB))
        self.assertEqual(self.value(directories, "pids/pids.max", "pids.max"), "30")

    def test_sizes_have_units(self):
        directories = self.limited({"memory": {"limit": 64 * MIB}})
        for text, number in (("50M", 50 * MIB), ("40mb", 40 * MIB), ("34MiB", 34 * MIB), (f"{36 << 10}k", 36 * MIB)):
            self.runtime.call("update", "--memory", text, self.container)
            self.assertEqual(self.value(directories, "memory/memory.limit_in_bytes", "memory.max"), str(number))
        for text in ("50X", "M", "5 0M", "99999999999T"):
            self.assertNotEqual(self.runtime.call("update", "--memory", text, self.container, check=False).returncode, 0, text)

    def test_a_limit_below_what_is_in_use(self):
        directories = self.limited({"memory": {"limit": 64 * MIB}})
        for limits in ({"limit": 4096}, {"limit": 4096, "swap": 8192}):
            text = json.dumps({"memory": {**limits, "checkBeforeUpdate": True}})
            done = self.runtime.call("update", "--resources", "-", self.container, input=text, check=False)
            if is_unified():
                self.assertIn("rejecting memory+swap limit" if "swap" in limits else "rejecting memory limit", done.stderr)
                self.assertEqual((directories[""] / "memory.max").read_text().strip(), str(64 * MIB))
            self.assertNotEqual(done.returncode, 0)

    def test_by_a_document(self):
        directories = self.limited({"pids": {"limit": 20}})
        text = json.dumps({"pids": {"limit": 40}, "cpu": {"quota": 30000, "period": 100000}})
        self.runtime.call("update", "--resources", "-", self.container, input=text)
        self.assertEqual(self.value(directories, "pids/pids.max", "pids.max"), "40")
        self.assertIn("30000", self.value(directories, "cpu/cpu.cfs_quota_us", "cpu.max").split())
        (self.work / "resources").write_text(json.dumps({"pids": {"limit": 41}}))
        self.runtime.call("update", "--resources", self.work / "resources", self.container)
        self.assertEqual(self.value(directories, "pids/pids.max", "pids.max"), "41")

    def test_what_is_wrong_is_an_error_without_effect(self):
        directories = self.limited({"pids": {"limit": 20}})
        self.assertNotEqual(self.runtime.call("update", "--resources", "-", self.container, input="{", check=False).returncode, 0)
        self.assertNotEqual(self.runtime.call("update", "--pids-limit", "many", self.container, check=False).returncode, 0)
        self.assertEqual(self.value(directories, "pids/pids.max", "pids.max"), "20")

    def test_of_nobody_is_an_error(self):
        self.assertNotEqual(self.runtime.call("update", "--pids-limit", "3", "nobody", check=False).returncode, 0)


class Pause(Cgroups):
    def test_nothing_runs_while_paused(self):
        name = self.start(shell_config("trap 'exit 0' TERM; while :; do echo .; sleep 0.01; done"))
        wait_for(self.output, "output")
        self.runtime.call("pause", name)
        self.assertEqual(self.runtime.status(name), "paused")
        before = len(self.output())
        time.sleep(0.1)
        self.assertEqual(len(self.output()), before)
        self.runtime.call("resume", name)
        self.assertEqual(self.runtime.status(name), "running")
        wait_for(lambda: len(self.output()) > before, "more output")

    def test_pause_of_what_does_not_run_is_an_error(self):
        name = self.start(base_config("true"))
        self.runtime.wait_status(name, "stopped")
        self.assertNotEqual(self.runtime.call("pause", name, check=False).returncode, 0)
        self.assertNotEqual(self.runtime.call("resume", name, check=False).returncode, 0)

    def test_resume_of_what_is_not_paused_is_an_error(self):
        name = self.sleeper()
        self.assertNotEqual(self.runtime.call("resume", name, check=False).returncode, 0)
        self.assertEqual(self.runtime.status(name), "running")

    def test_a_paused_one_can_be_killed(self):
        name = self.sleeper()
        self.runtime.call("pause", name)
        self.runtime.call("delete", "--force", name)
        self.assertIsNone(self.runtime.status(name))


class Events(Cgroups):
    def test_statistics_once(self):
        self.limited({"pids": {"limit": 20}, "memory": {"limit": 64 * MIB}})
        event = json.loads(self.runtime.call("events", "--stats", self.container).stdout)
        self.assertEqual((event["type"], event["id"]), ("stats", self.container))
        self.assertGreaterEqual(event["data"]["pids"]["current"], 1)
        self.assertEqual(event["data"]["pids"]["limit"], 20)
        self.assertGreater(event["data"]["memory"]["usage"]["usage"], 0)
        self.assertEqual(event["data"]["memory"]["usage"]["limit"], 64 * MIB)
        self.assertGreater(event["data"]["cpu"]["usage"]["total"], 0)

    def test_a_line_begins_with_its_type(self):
        name = self.sleeper()
        line = self.runtime.call("events", "--stats", name).stdout
        self.assertTrue(line.startswith(f'{{"type":"stats","id":"{name}","data":'), line[:80])

    def test_of_nobody_is_an_error(self):
        self.assertNotEqual(self.runtime.call("events", "--stats", "nobody", check=False).returncode, 0)
