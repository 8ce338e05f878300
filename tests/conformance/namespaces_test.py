"""config-linux.json: namespaces, id maps, offsets, and what belongs to a namespace."""
import contextlib
import os
import subprocess

from bundle import (HOST_IDS, IDS, base_config, mount, shell_config, with_namespace, with_user_namespace, without_namespace)
from case import Case
from runtime import end

MADE_BY_THE_KERNEL = {"sit0", "tunl0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}
FILES = {"pid": "pid", "ipc": "ipc", "uts": "uts", "mount": "mnt", "network": "net", "cgroup": "cgroup", "user": "user", "time": "time"}


def of(pid, kind):
    return os.readlink(f"/proc/{pid}/ns/{FILES[kind]}")


@contextlib.contextmanager
def holder(*options):
    """A process of ours in new namespaces; yields its pid."""
    process = subprocess.Popen(["unshare", *options, "sh", "-c", "echo up; exec sleep 1000"], stdout=subprocess.PIPE, text=True)
    try:
        process.stdout.readline()
        yield process.pid
    finally:
        end(process)


class New(Case):
    def test_each_namespace_listed_is_a_new_one(self):
        for kind in ("pid", "ipc", "uts", "mount", "network", "cgroup", "time"):
            with self.subTest(kind):
                name = self.sleeper(lambda config: with_namespace(config, kind))
                self.assertNotEqual(of(self.pid(name), kind), of("self", kind))
                self.runtime.call("delete", "--force", name)

    def test_those_not_listed_are_the_runtimes(self):
        for kind in ("ipc", "uts", "network", "pid"):
            with self.subTest(kind):
                name = self.sleeper(lambda config: (without_namespace(config, kind), config.pop("hostname")))
                self.assertEqual(of(self.pid(name), kind), of("self", kind))
                self.assertNotEqual(of(self.pid(name), "mount"), of("self", "mount"))
                self.runtime.call("delete", "--force", name)

    def test_init_is_pid_1(self):
        self.assertEqual(self.said("echo $$"), "1")

    def test_a_new_network_has_only_loopback(self):
        names = {line.split(":")[0].strip() for line in self.said("grep : /proc/net/dev").splitlines()}
        self.assertEqual(names - MADE_BY_THE_KERNEL, {"lo"})

    def test_one_twice_is_an_error(self):
        config = base_config("true")
        config["linux"]["namespaces"].append({"type": "pid"})
        self.refused(config)

    def test_an_unknown_one_is_an_error(self):
        config = base_config("true")
        config["linux"]["namespaces"].append({"type": "nosuch"})
        self.refused(config)

    def test_hostname(self):
        self.assertEqual(self.said("hostname"), "conformance")

    def test_a_hostname_without_a_uts_namespace_is_an_error(self):
        config = base_config("true")
        without_namespace(config, "uts")
        before = os.uname().nodename
        self.refused(config, "uts|hostname")
        self.assertEqual(os.uname().nodename, before)

    def test_domainname(self):
        config = shell_config("cat /proc/sys/kernel/domainname")
        config["domainname"] = "example.test"
        self.assertEqual(self.said(config), "example.test")

    def test_time_offsets(self):
        config = shell_config("cat /proc/uptime; cat /proc/self/timens_offsets")
        with_namespace(config, "time")
        config["linux"]["timeOffsets"] = {"boottime": {"secs": 1000000}, "monotonic": {"secs": 500, "nanosecs": 7}}
        uptime, *offsets = self.said(config).splitlines()
        self.assertGreater(float(uptime.split()[0]), 1000000)
        self.assertIn(["monotonic", "500", "7"], [line.split() for line in offsets])
        self.assertIn(["boottime", "1000000", "0"], [line.split() for line in offsets])

    def test_time_offsets_without_a_time_namespace_are_an_error(self):
        config = base_config("true")
        config["linux"]["timeOffsets"] = {"boottime": {"secs": 1000}}
        self.refused(config, "time")


class Joined(Case):
    def test_a_namespace_is_joined_by_its_path(self):
        for kind, option in (("network", "--net"), ("ipc", "--ipc"), ("uts", "--uts")):
            with self.subTest(kind), holder(option) as pid:
                def change(config, pid=pid, kind=kind):
                    with_namespace(config, kind, f"/proc/{pid}/ns/{FILES[kind]}")
                    if kind == "uts":
                        del config["hostname"]
                name = self.sleeper(change)
                self.assertEqual(of(self.pid(name), kind), of(pid, kind))
                self.runtime.call("delete", "--force", name)

    def test_the_pid_namespace_of_another_container(self):
        first = self.sleeper()
        path = f"/proc/{self.pid(first)}/ns/pid"
        config = shell_config("echo $$; ls -d /proc/1")
        with_namespace(config, "pid", path)
        pid, init = self.said(config).split()
        self.assertGreater(int(pid), 1)
        self.assertEqual(init, "/proc/1")

    def test_a_path_of_another_kind_is_an_error(self):
        with holder("--net") as pid:
            config = base_config("true")
            with_namespace(config, "ipc", f"/proc/{pid}/ns/net")
            self.refused(config)

    def test_a_path_that_is_not_there_is_an_error(self):
        config = base_config("true")
        with_namespace(config, "network", "/run/no-such-namespace")
        self.refused(config)

    def test_a_path_that_is_no_namespace_is_an_error(self):
        config = base_config("true")
        with_namespace(config, "network", "/etc/passwd")
        self.refused(config)

    def test_a_user_namespace_is_joined(self):
        first = self.sleeper(with_user_namespace)
        path = f"/proc/{self.pid(first)}/ns/user"
        config = shell_config("cat /proc/self/uid_map; id -u")
        with_namespace(config, "user", path)
        said = self.said(config).split()
        self.assertEqual(said, ["0", str(HOST_IDS), str(IDS), "0"])

    def test_a_network_of_the_hosts_beside_a_user_namespace(self):
        first = self.sleeper(with_user_namespace)
        with holder("--net") as other:
            config = shell_config("readlink /proc/self/ns/net")
            with_namespace(config, "user", f"/proc/{self.pid(first)}/ns/user")
            with_namespace(config, "network", f"/proc/{other}/ns/net")
            self.assertEqual(self.said(config), of(other, "network"))


class UserNamespace(Case):
    def test_the_maps_are_those_configured(self):
        config = shell_config("cat /proc/self/uid_map /proc/self/gid_map")
        with_user_namespace(config)
        config["linux"]["uidMappings"].append({"containerID": 70000, "hostID": 700000, "size": 10})
        said = [line.split() for line in self.said(config).splitlines()]
        whole = ["0", str(HOST_IDS), str(IDS)]
        self.assertEqual(said, [whole, ["70000", "700000", "10"], whole])

    def test_root_inside_is_not_root_outside(self):
        name = self.sleeper(with_user_namespace)
        self.assertEqual(os.stat(f"/proc/{self.pid(name)}").st_uid, HOST_IDS)
        self.assertNotEqual(of(self.pid(name), "user"), of("self", "user"))

    def test_files_of_root_inside_belong_to_the_mapped_user(self):
        self.bundle.give(HOST_IDS, HOST_IDS)
        config = shell_config("touch /yard/made; stat -c %u /yard/made")
        with_user_namespace(config)
        self.assertEqual(self.said(config), "0")
        self.assertEqual((self.bundle.rootfs / "yard/made").stat().st_uid, HOST_IDS)

    def test_users_and_groups_inside(self):
        config = shell_config("id -u; id -g; grep Groups /proc/self/status")
        with_user_namespace(config)
        config["process"]["user"] = {"uid": 1000, "gid": 1000, "additionalGids": [27]}
        self.assertEqual(self.said(config).split()[:4:3] + ["27"], ["1000", "27", "27"])

    def test_maps_of_one_kind_alone_are_an_error(self):
        for name in ("uidMappings", "gidMappings"):
            config = base_config("true")
            with_user_namespace(config)
            del config["linux"][name]
            self.refused(config, "map")

    def test_without_maps_root_inside_is_the_caller(self):
        config = shell_config("cat /proc/self/uid_map /proc/self/gid_map")
        with_namespace(config, "user")
        self.assertEqual(self.said(config).split(), ["0", "0", "1"] * 2)

    def test_the_other_namespaces_belong_to_the_new_user_namespace(self):
        config = shell_config("hostname other && hostname; ip link set lo up && echo up")
        with_user_namespace(config)
        for kind in ("bounding", "effective", "permitted"):
            config["process"]["capabilities"][kind] = ["CAP_SYS_ADMIN", "CAP_NET_ADMIN"]
        self.assertEqual(self.said(config).split(), ["other", "up"])

    def test_devices_are_there(self):
        config = shell_config("echo x >/dev/null && head -c 4 /dev/zero | wc -c; [ -c /dev/urandom ] && echo yes")
        with_user_namespace(config)
        self.assertEqual(self.said(config).split(), ["4", "yes"])

    def device(self, change):
        config = shell_config("stat -c '%t:%T %a %u:%g' /dev/extra; head -c 3 /dev/extra | wc -c")
        change(config)
        config["linux"]["devices"] = [{"path": "/dev/extra", "type": "c", "major": 1, "minor": 5, "fileMode": 0o640, "uid": 10, "gid": 11}]
        return self.said(config).splitlines()

    def test_a_device_that_the_host_has_not(self):
        self.assertEqual(self.device(with_user_namespace), ["1:5 640 10:11", "3"])

    def test_a_device_in_a_namespace_that_is_joined(self):
        first = self.sleeper(with_user_namespace)
        self.assertEqual(self.device(lambda config: with_namespace(config, "user", f"/proc/{self.pid(first)}/ns/user")), ["1:5 640 10:11", "3"])

    def test_a_devices_owner_must_be_mapped(self):
        config = base_config("true")
        with_user_namespace(config)
        config["linux"]["devices"] = [{"path": "/dev/extra", "type": "c", "major": 1, "minor": 5, "uid": IDS}]
        self.refused(config, str(IDS))

    def test_no_bound_device_can_be_executed_or_raise_privilege(self):
        config = shell_config("awk '$5 == \"/dev/zero\" { print $6 }' /proc/self/mountinfo")
        with_user_namespace(config)
        self.assertLessEqual({"nosuid", "noexec"}, set(self.said(config).split(",")))

    def test_time_offsets(self):
        config = shell_config("cat /proc/self/timens_offsets")
        with_user_namespace(config)
        with_namespace(config, "time")
        config["linux"]["timeOffsets"] = {"monotonic": {"secs": 500, "nanosecs": 7}}
        self.assertIn(["monotonic", "500", "7"], [line.split() for line in self.said(config).splitlines()])

    def test_a_network_that_is_not_its_own(self):
        with holder("--net") as pid:
            config = shell_config("readlink /proc/self/ns/net; readlink /proc/self/ns/user")
            with_user_namespace(config)
            first = self.sleeper(with_user_namespace)
            for kind, of_pid in (("user", self.pid(first)), ("network", pid)):
                with_namespace(config, kind, f"/proc/{of_pid}/ns/{FILES[kind]}")
            self.assertEqual(self.said(config).split(), [of(pid, "network"), of(self.pid(first), "user")])


class Sysctl(Case):
    def test_sysctls_of_namespaces(self):
        config = shell_config("cat /proc/sys/net/ipv4/ip_forward /proc/sys/kernel/shmmni /proc/sys/fs/mqueue/msg_max")
        config["linux"]["sysctl"] = {"net.ipv4.ip_forward": "1", "kernel.shmmni": "1234", "fs.mqueue.msg_max": "33"}
        self.assertEqual(self.said(config).split(), ["1", "1234", "33"])

    def test_a_slash_separates_too(self):
        config = shell_config("cat /proc/sys/net/ipv4/conf/lo/forwarding")
        config["linux"]["sysctl"] = {"net/ipv4/conf/lo/forwarding": "1"}
        self.assertEqual(self.said(config), "1")

    def test_those_of_the_whole_host_are_errors(self):
        for key in ("kernel.core_pattern", "vm.overcommit_memory", "fs.file-max", "kernel.panic", "nosuch.key"):
            config = base_config("true")
            config["linux"]["sysctl"] = {key: "1"}
            self.refused(config, "sysctl")

    def test_those_of_a_namespace_that_is_the_hosts_are_errors(self):
        for kind, key in (("network", "net.ipv4.ip_forward"), ("ipc", "kernel.shmmni"), ("uts", "kernel.domainname")):
            config = base_config("true")
            without_namespace(config, kind)
            config.pop("hostname")
            config["linux"]["sysctl"] = {key: "1"}
            self.refused(config, "sysctl")

    def test_injected_keys_are_errors(self):
        """CVE-2022-0811: what looks like a value or a path in a key."""
        for key in ("kernel.shmmni=1+kernel.core_pattern", "net.ipv4.ip_forward\n", "net/../kernel/core_pattern",
                    "net.ipv4.ip_forward/../../../kernel/core_pattern", "net....kernel.core_pattern"):
            config = base_config("true")
            config["linux"]["sysctl"] = {key: "1"}
            self.refused(config)


class Rest(Case):
    def test_personality(self):
        config = shell_config("cat /proc/self/personality")
        config["linux"]["personality"] = {"domain": "LINUX32"}
        self.assertEqual(self.said(config), "00000008")

    def test_mqueue(self):
        config = shell_config("stat -f -c %T /dev/mqueue; grep -c ' /dev/mqueue ' /proc/mounts")
        config["mounts"].append(mount("/dev/mqueue", "mqueue", options=("nosuid", "noexec", "nodev")))
        self.assertEqual(self.said(config).splitlines()[-1], "1")
