"""Run by an ordinary user, without any privilege."""
import os
import subprocess

from bundle import shell_config, with_namespace
from case import Case
from runtime import Runtime

USER = 45678


class Ordinary(Case):
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


class Rootless(Ordinary):
    def test_it_runs(self):
        self.bundle.write(self.config("id -u; cat /proc/self/uid_map; touch /yard/made"))
        self.assertEqual(self.as_user("run", self.name()).stdout.split(), ["0", "0", str(USER), "1"])
        self.assertEqual((self.bundle.rootfs / "yard/made").stat().st_uid, USER)

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

    def test_execs_oom_score(self):
        name = self.name()
        config = self.config("exec sleep 100 >/dev/null 2>&1")
        config["process"]["oomScoreAdj"] = 321
        self.bundle.write(config)
        self.as_user("run", "--detach", name)
        done = self.as_user("exec", name, "cat", "/proc/self/oom_score_adj")
        self.assertEqual(done.stdout.split(), ["321"])

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


class SubordinateIds(Ordinary):
    """newuidmap(1) and newgidmap(1), by what a private /etc says of the user."""
    FIRST, COUNT = 7000000, 1000
    AS_USER = ("mount --bind $1 /etc/passwd && mount --bind $2 /etc/subuid && mount --bind $3 /etc/subgid && shift 3 && "
               f"exec setpriv --reuid={USER} --regid={USER} --clear-groups \"$@\"")

    def as_user(self, *arguments, check=True):
        files = {"passwd": f"root:x:0:0::/root:/bin/sh\ntester:x:{USER}:{USER}::{self.work}:/bin/sh\n",
                 "subuid": f"tester:{self.FIRST}:{self.COUNT}\n", "subgid": f"tester:{self.FIRST}:{self.COUNT}\n"}
        for name, text in files.items():
            (self.work / name).write_text(text)
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", self.AS_USER, "sh", *(self.work / name for name in files),
                 *self.runtime.words(*arguments)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20, stdin=subprocess.DEVNULL, cwd=self.bundle.path,
                              env={"PATH": "/usr/sbin:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(self.work), "HOME": str(self.work)})
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def config(self, script):
        config = super().config(script)
        for kind in ("uidMappings", "gidMappings"):
            config["linux"][kind] = [*config["linux"][kind], {"containerID": 1, "hostID": self.FIRST, "size": self.COUNT}]
        return config

    def test_groups_can_be_set(self):
        self.bundle.write(self.config("cat /proc/self/setgroups"))
        self.assertEqual(self.as_user("run", self.name()).stdout.strip(), "allow")

    def test_it_runs(self):
        config = self.config("id -u; cat /proc/self/uid_map /proc/self/gid_map; touch /tmp/made")
        config["process"]["user"] = {"uid": 5, "gid": 6}
        (self.bundle.rootfs / "tmp").chmod(0o1777)
        config["mounts"] = [mount for mount in config["mounts"] if mount["destination"] != "/tmp"]
        self.bundle.write(config)
        maps = ["0", str(USER), "1", "1", str(self.FIRST), str(self.COUNT)]
        self.assertEqual(self.as_user("run", self.name()).stdout.split(), ["5", *maps, *maps])
        made = (self.bundle.rootfs / "tmp/made").stat()
        self.assertEqual((made.st_uid, made.st_gid), (self.FIRST + 4, self.FIRST + 5))

    def test_ids_that_are_not_the_users_are_an_error(self):
        config = self.config("true")
        config["linux"]["uidMappings"][1] = {"containerID": 1, "hostID": self.FIRST + 1, "size": self.COUNT}
        self.bundle.write(config)
        done = self.as_user("run", self.name(), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("newuidmap", done.stderr)
