"""Run by an ordinary user, without any privilege."""
import os
import subprocess

from bundle import shell_config, with_namespace
from case import Case
from runtime import Runtime

USER = 45678


class Rootless(Case):
    def setUp(self):
        super().setUp()
        os.chown(self.work, USER, USER)
        self.bundle.give(USER, USER)
        self.runtime = Runtime(self.work / "state")

    def config(self, script):
        config = shell_config(script)
        with_namespace(config, "user")
        config["linux"]["uidMappings"] = config["linux"]["gidMappings"] = [{"containerID": 0, "hostID": USER, "size": 1}]
        del config["linux"]["resources"]
        return config

    def as_user(self, *arguments, check=True):
        run_directory = self.work / "run"
        run_directory.mkdir(exist_ok=True)
        os.chown(run_directory, USER, USER)
        done = subprocess.run(self.runtime.words(*arguments), capture_output=True, text=True, check=False, timeout=20, stdin=subprocess.DEVNULL,
                              user=USER, group=USER, extra_groups=[], cwd=self.bundle.path,
                              env={"PATH": "/usr/sbin:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(run_directory), "HOME": str(self.work)})
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_it_runs(self):
        self.bundle.write(self.config("id -u; cat /proc/self/uid_map; touch /work/made"))
        self.assertEqual(self.as_user("run", self.name()).stdout.split(), ["0", "0", str(USER), "1"])
        self.assertEqual((self.bundle.rootfs / "work/made").stat().st_uid, USER)

    def test_without_maps_root_inside_is_the_caller(self):
        config = self.config("cat /proc/self/uid_map /proc/self/gid_map")
        del config["linux"]["uidMappings"], config["linux"]["gidMappings"]
        self.bundle.write(config)
        self.assertEqual(self.as_user("run", self.name()).stdout.split(), ["0", str(USER), "1"] * 2)

    def test_the_hosts_devices_are_there_and_cannot_be_changed(self):
        self.bundle.write(self.config("echo x >/dev/null && head -c 3 /dev/zero | wc -c; awk '$5 == \"/dev/null\" { print $6 }' /proc/self/mountinfo"))
        count, options = self.as_user("run", self.name()).stdout.split()
        self.assertEqual(count, "3")
        self.assertLessEqual({"ro", "nosuid", "noexec"}, set(options.split(",")))

    def test_userns_setgroups_deny(self):
        """CVE-2014-8989"""
        self.bundle.write(self.config("cat /proc/self/setgroups"))
        self.assertEqual(self.as_user("run", self.name()).stdout.strip(), "deny")

    def test_limits_that_cannot_be_set_are_errors(self):
        config = self.config("true")
        config["linux"]["resources"] = {"memory": {"limit": 1 << 26}}
        self.bundle.write(config)
        self.assertEqual(self.as_user("run", self.name(), check=False).returncode, 1)

    def test_the_whole_life(self):
        self.bundle.write(self.config("sleep 100"))
        name = self.name()
        with open(self.output_file, "wb") as file:
            subprocess.run(self.runtime.words("create", name), check=True, stdin=subprocess.DEVNULL, stdout=file, stderr=file, user=USER,
                           group=USER, extra_groups=[], cwd=self.bundle.path,
                           env={"PATH": "/usr/sbin:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(self.work / "run"), "HOME": str(self.work)})
        self.as_user("start", name)
        self.assertEqual(self.as_user("exec", name, "hostname").stdout.strip(), "conformance")
        self.as_user("kill", name, "KILL")
        self.runtime.wait_status(name, "stopped")
        self.as_user("delete", name)
