"""Known ways out of containers: one case for each, named after its row in the list of vulnerabilities."""
import os
import pathlib

from attack import Exchanging
from bundle import HOST_IDS, IDS, base_config, bind, mount, shell_config, with_namespace, with_user_namespace, without_namespace
from case import Case
from terminal import ConsoleSocket

ROUNDS = 12  # of a race: as many as the time allows


def set_mounts(config, *destinations):
    config["mounts"] = [row for row in config["mounts"] if row["destination"] in destinations]


class Escapes(Case):
    def setUp(self):
        super().setUp()
        self.victim = self.work / "victim"
        self.victim.mkdir()
        (self.victim / "file").write_text("of the host")

    def untouched(self):
        self.assertEqual([path.name for path in self.victim.iterdir()], ["file"])
        self.assertEqual((self.victim / "file").read_text(), "of the host")
        self.assertEqual((self.victim / "file").stat().st_mode & 0o7777, 0o644)

    def replace(self, name, target):
        """The path in the image becomes a symbolic link."""
        path = self.bundle.rootfs / name
        if path.is_dir():
            path.rmdir()
        path.symlink_to(target)


class Paths(Escapes):
    def test_image_proc_symlink(self):
        """CVE-2023-28642, CVE-2023-27561"""
        for target in (str(self.victim), "/yard"):
            self.bundle.rootfs.joinpath("proc").unlink() if (self.bundle.rootfs / "proc").is_symlink() else None
            self.replace("proc", target)
            done = self.run_to_end("grep ' /yard ' /proc/self/mountinfo || echo none", check=False)
            if done.returncode == 0:
                self.assertEqual(done.stdout.strip(), "none")
            self.untouched()

    def test_image_sys_symlink(self):
        """CVE-2025-54867"""
        self.replace("sys", str(self.victim))
        config = shell_config("cat /proc/self/mountinfo")
        config["mounts"].append(mount("/sys", "sysfs", options=("ro",)))
        done = self.run_to_end(config, check=False)
        self.assertNotIn("/victim ", done.stdout.replace(f" {self.victim} ", " ") if done.returncode else "")
        self.untouched()

    def test_image_dev_symlink(self):
        """CVE-2026-41579, CVE-2026-47766"""
        self.replace("dev", str(self.victim))
        for with_mount in (True, False):
            config = shell_config("ls /dev/")
            if not with_mount:
                set_mounts(config, "/proc")
            self.run_to_end(config, check=False)
            self.untouched()

    def mount_target(self, target):
        (self.bundle.rootfs / "yard/link").symlink_to(target)
        source = self.work / "source"
        source.mkdir(exist_ok=True)
        (source / "mark").write_text("mark")
        config = shell_config("cut -d ' ' -f 5 /proc/self/mountinfo; ls /yard/link/made")
        config["mounts"].append(bind(source, "/yard/link/made"))
        done = self.run_to_end(config, check=False)
        self.untouched()
        if done.returncode == 0:
            self.assertIn("mark", done.stdout.split())

    def test_mount_target_symlink_abs(self):
        """CVE-2019-18837"""
        self.mount_target(str(self.victim))

    def test_mount_target_symlink_rel(self):
        self.mount_target("../../../victim")

    def test_mount_target_symlink_dotdot(self):
        self.mount_target("../" * 20 + str(self.victim).lstrip("/"))

    def test_no_host_write_in_rootfs(self):
        """CVE-2025-24965: where all mount points are there nothing is written into the image."""
        root = self.bundle.rootfs
        for name in ("dev", "proc", "sys", "yard"):
            (root / name).chmod(0o755)

        def listing():
            return sorted((str(path), path.lstat().st_mtime_ns, path.lstat().st_mode) for path in root.rglob("*"))
        before = listing()
        config = base_config("true")
        config["root"]["readonly"] = True
        config["mounts"].append(bind(self.victim, "/yard"))
        self.run_to_end(config)
        self.assertEqual(listing(), before)

    def test_bind_source_symlink_in_the_image_is_not_followed_to_the_host(self):
        (self.bundle.rootfs / "yard/out").symlink_to(self.victim)
        config = shell_config("cat /yard/out/file 2>/dev/null || echo nothing")
        self.assertEqual(self.said(config), "nothing")


class Races(Escapes):
    def test_proc_symlink_race(self):
        """CVE-2019-19921"""
        root = self.bundle.rootfs
        (root / "other").symlink_to(self.victim)
        with Exchanging(root / "proc", root / "other") as exchanging:
            for _ in range(ROUNDS):
                self.run_to_end("true", check=False)
        self.assertGreater(exchanging.count, ROUNDS)
        self.untouched()

    def race(self, destination):
        volume = self.work / "volume"
        volume.mkdir()
        (volume / "a").mkdir()
        (volume / "b").symlink_to(self.victim)
        source = self.work / "source"
        source.mkdir()
        with Exchanging(volume / "a", volume / "b"):
            for _ in range(ROUNDS):
                config = shell_config("cat /proc/self/mountinfo; cat /yard/a/file 2>/dev/null")
                config["mounts"] += [bind(volume, "/yard"), bind(source, destination)]
                done = self.run_to_end(config, check=False)
                self.assertNotIn("of the host", done.stdout)
        self.untouched()

    def test_mount_race_exchange(self):
        """CVE-2021-30465"""
        self.race("/yard/a")

    def test_mkdir_race_outside_root(self):
        """CVE-2024-45310"""
        self.race("/yard/a/b/c")

    def test_procfs_write_redirect(self):
        """CVE-2025-52881: a sysctl is written to what looks like procfs."""
        fake = self.work / "fake"
        (fake / "net/ipv4").mkdir(parents=True)
        (fake / "net/ipv4/ip_forward").write_text("untouched")
        config = base_config("true")
        config["linux"]["sysctl"] = {"net.ipv4.ip_forward": "1"}
        config["mounts"].append(bind(fake, "/proc/sys"))
        self.run_to_end(config, check=False)
        self.assertEqual((fake / "net/ipv4/ip_forward").read_text(), "untouched")


class Proc(Escapes):
    def test_proc_overmount_refused(self):
        """CVE-2019-16884"""
        for destination in ("/proc/sys", "/proc/self/attr", "/proc/1", "/proc/self"):
            config = base_config("true")
            config["mounts"].append(bind(self.victim, destination))
            self.refused(config)
        config = base_config("true")
        config["mounts"] = [row for row in config["mounts"] if row["destination"] != "/proc"]
        config["mounts"].append(bind(self.victim, "/proc"))
        self.refused(config)
        self.untouched()

    def test_mask_devnull_symlink(self):
        """CVE-2025-31133, CVE-2025-62161"""
        (self.bundle.rootfs / "yard/evil").write_text("evil")
        self.replace("dev/null", "/yard/evil")
        config = shell_config("head -c 999 /proc/cmdline; head -c 999 /yard/secret")
        (self.bundle.rootfs / "yard/secret").write_text("secret")
        set_mounts(config, "/proc")
        config["linux"]["maskedPaths"] = ["/proc/cmdline", "/yard/secret"]
        done = self.run_to_end(config, check=False)
        for word in ("evil", "secret", pathlib.Path("/proc/cmdline").read_text().strip()):
            self.assertNotIn(word, done.stdout)
        self.assertEqual((self.bundle.rootfs / "yard/evil").read_text(), "evil", "the mask, or the program's output, went there")

    # A chmod to what the mode is anyway: a runtime that allows it does no harm.
    CHANGE = "chmod 666 {0} 2>/dev/null && stat -c %d:%i {0} || echo refused"

    def test_a_mask_does_not_lend_the_hosts_null(self):
        (self.bundle.rootfs / "yard/secret").write_text("secret")
        config = shell_config(self.CHANGE.format("/yard/secret"))
        config["linux"]["maskedPaths"] = ["/yard/secret"]
        self.assertNotEqual(self.said(config), self.hosts_null())

    def test_user_namespaces_do_not_lend_the_hosts_devices(self):
        config = shell_config(self.CHANGE.format("/dev/null"))
        with_namespace(config, "user")
        for name in ("uidMappings", "gidMappings"):
            config["linux"][name] = [{"containerID": 0, "hostID": 0, "size": IDS}]
        self.assertNotEqual(self.said(config), self.hosts_null())

    def hosts_null(self):
        null = os.stat("/dev/null")
        return f"{null.st_dev}:{null.st_ino}"

    def test_console_symlink(self):
        """CVE-2025-52565"""
        self.replace("dev/console", str(self.victim / "file"))
        console = ConsoleSocket(self.work / "console")
        self.addCleanup(console.close)
        config = shell_config("cat /proc/self/mountinfo")
        set_mounts(config, "/proc")
        config["process"]["terminal"] = True
        self.bundle.write(config)
        self.runtime.call_to_file(self.output_file, "create", "--bundle", self.bundle.path, "--console-socket", console.path, self.name(),
                                  check=False)
        self.untouched()

    def test_cgroupfs_not_writable(self):
        """CVE-2023-25809"""
        for with_group_namespace in (True, False):
            config = shell_config("for d in /sys/fs/cgroup /sys/fs/cgroup/*; do grep -q \" $d .* - cgroup\" /proc/self/mountinfo || continue; "
                                  "mkdir $d/x 2>/dev/null && echo made $d; mount -o remount,rw $d 2>/dev/null && mkdir $d/x && echo made $d; "
                                  "done; true")
            with_user_namespace(config)
            if with_group_namespace:
                with_namespace(config, "cgroup")
            config["mounts"] += [mount("/sys", "none", "/sys", ("rbind", "nosuid", "noexec", "nodev", "ro")),
                                 mount("/sys/fs/cgroup", "cgroup", options=("nosuid", "noexec", "nodev", "ro"))]
            self.assertEqual(self.run_to_end(config, check=False).stdout, "")


class Descriptors(Escapes):
    UP = ("up=.; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do up=$up/..; done; "
          "[ \"$(stat -c %d:%i $up)\" = \"$(stat -c %d:%i /)\" ] && echo inside || echo OUTSIDE; cat $up/*/*/victim/file 2>/dev/null; true")

    def with_leaked(self, number=16):
        """For preexec_fn: directories of the host at descriptors from 3 on, inheritable."""
        directory = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, directory)

        def leak():
            for fd in range(3, number):
                if fd != directory:
                    os.dup2(directory, fd, inheritable=True)
            os.set_inheritable(directory, True)
        return {"close_fds": False, "preexec_fn": leak}

    def test_no_extra_fds(self):
        self.assertEqual(self.said(base_config("ls", "/proc/self/fd"), **self.with_leaked()).split(), ["0", "1", "2", "3"])
        name = self.sleeper()
        done = self.runtime.call("exec", name, "ls", "/proc/self/fd", **self.with_leaked())
        self.assertEqual(done.stdout.split(), ["0", "1", "2", "3"])

    def test_cwd_proc_self_fd_N(self):
        """CVE-2024-21626"""
        for number in range(3, 17):
            config = shell_config(self.UP)
            config["process"]["cwd"] = f"/proc/self/fd/{number}"
            done = self.run_to_end(config, check=False)
            self.assertNotIn("OUTSIDE", done.stdout, number)
            self.assertNotIn("of the host", done.stdout, number)

    def test_cwd_proc_self_fd_N_of_exec(self):
        name = self.sleeper()
        for number in range(3, 13):
            done = self.exec(name, self.UP, "--cwd", f"/proc/self/fd/{number}", check=False)
            self.assertNotIn("OUTSIDE", done.stdout, number)
            self.assertNotIn("of the host", done.stdout, number)

    def test_cwd_proc_self_fd_N_through_a_link(self):
        for number in (5, 6, 7, 8, 9):
            (self.bundle.rootfs / f"yard/link{number}").symlink_to(f"/proc/self/fd/{number}")
            config = shell_config(self.UP)
            config["process"]["cwd"] = f"/yard/link{number}"
            done = self.run_to_end(config, check=False)
            self.assertNotIn("OUTSIDE", done.stdout, number)

    def test_exec_no_ptrace_window(self):
        """CVE-2016-9962"""
        def change(config):
            config["process"]["args"][2] = ("trap 'exit 0' TERM; echo up; while :; do for p in /proc/[0-9]*; do "
                                            "[ $p = /proc/1 ] || ls -l $p/fd $p/cwd $p/root 2>/dev/null; done >>/yard/log; done")
            for kind in ("bounding", "effective", "permitted"):
                config["process"]["capabilities"][kind] = [*config["process"]["capabilities"][kind], "CAP_SYS_PTRACE"]
        name = self.sleeper(change)
        for _ in range(6):
            self.exec(name, "true")
        log = (self.bundle.rootfs / "yard/log").read_text()
        for word in (str(self.work), "/sys/fs/cgroup", str(pathlib.Path(self.runtime.program).parent) + "/"):
            self.assertNotIn(f"-> {word}", log)


class Identity(Escapes):
    def inheritable(self, text):
        return {line.split(":")[0]: int(line.split()[1], 16) for line in text.splitlines() if line.startswith("Cap")}

    def test_caps_inheritable_zero_create(self):
        """CVE-2022-29162 and its like"""
        caps = self.inheritable(self.said("cat /proc/self/status"))
        self.assertEqual((caps["CapInh"], caps["CapAmb"]), (0, 0))

    def test_caps_inheritable_zero_exec(self):
        name = self.sleeper()
        caps = self.inheritable(self.exec(name, "cat /proc/self/status", "--cap", "CAP_NET_RAW").stdout)
        self.assertEqual((caps["CapInh"], caps["CapAmb"]), (0, 0))

    def test_user_numeric_not_name(self):
        """CVE-2016-3697"""
        with open(self.bundle.rootfs / "etc/passwd", "a", encoding="utf-8") as file:
            file.write("1000:x:0:0::/:/bin/sh\n")
        name = self.sleeper()
        self.assertEqual(self.exec(name, "id -u", "--user", "1000").stdout.strip(), "1000")

    def test_exec_user_parse_table(self):
        """CVE-2026-30892: what is no user is an error, never root."""
        name = self.sleeper()
        for text in ("x", "1x", "0x1", ":", "1:", "1:x", "-1", "4294967295", "4294967296", "1 ", " 1", "+1", "1:2:3", "18446744073709551616", "1.0"):
            done = self.exec(name, "id -u", f"--user={text}", check=False)
            self.assertNotEqual(done.returncode, 0, text)

    def test_bootstrap_len_overflow(self):
        """CVE-2021-43784: very long values are taken whole or refused."""
        config = shell_config("cat /proc/self/uid_map; echo ran")
        with_user_namespace(config)
        with_namespace(config, "network", "/proc/" + "x" * 70000)
        self.refused(config)
        config = shell_config("cat /proc/self/uid_map")
        with_user_namespace(config)
        config["linux"]["uidMappings"] = [{"containerID": index, "hostID": HOST_IDS + index, "size": 1} for index in range(5000)]
        done = self.run_to_end(config, check=False)
        if done.returncode == 0:
            self.assertEqual(len(done.stdout.splitlines()), 5000)
        config = shell_config("echo ${#LONG}")
        config["process"]["env"].append("LONG=" + "y" * 100000)
        self.assertEqual(self.said(config), "100000")

    def test_without_a_pid_namespace_nothing_of_the_host_is_signalled(self):
        config = shell_config("kill -0 1 && echo reached; true")
        with_user_namespace(config)
        without_namespace(config, "pid")
        self.assertNotIn("reached", self.run_to_end(config, check=False).stdout)


class Host(Escapes):
    def test_host_mountinfo_unchanged(self):
        def points():
            return sorted(line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines())
        before = points()
        self.run_to_end("true")
        for change in (lambda c: c["mounts"].append(bind("/nowhere", "/yard")), lambda c: c["process"].update(args=["no-such"]),
                       lambda c: c.update(hooks={"createContainer": [{"path": "/bin/false"}]}),
                       lambda c: c["linux"].update(sysctl={"kernel.nosuch": "1"}),
                       lambda c: c["linux"]["resources"].update(cpu={"cpus": "9999"})):
            config = base_config("true")
            config["linux"]["rootfsPropagation"] = "private"
            change(config)
            self.refused(config)
            self.assertEqual(points(), before)

    def test_hook_env_clean(self):
        """CVE-2025-23266: nothing of the container's environment reaches a hook."""
        config = base_config("true")
        config["process"]["env"].append("LD_PRELOAD=/evil.so")
        config["hooks"] = {"createRuntime": [{"path": "/bin/sh", "args": ["sh", "-c", f"env >{self.work}/env; pwd >>{self.work}/env"]}]}
        self.run_to_end(config)
        self.assertNotIn("LD_PRELOAD", (self.work / "env").read_text())
