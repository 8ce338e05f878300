"""What a tenant sees and cannot do, from inside."""
import unittest

from daemon import DaemonCase


class Hardening(DaemonCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        client = cls.daemon.client()
        cls.id = client.create(timeouts={"idle_seconds": 0})["id"]
        client.close()

    def clean(self):
        self.client.close()

    def sh(self, command, **fields):
        return self.client.exec(self.id, command, **fields)

    def status(self, **fields):
        lines = self.sh("cat /proc/self/status", **fields)["stdout"].splitlines()
        return dict(line.split(":\t", 1) for line in lines if ":\t" in line)

    def test_no_capabilities_seccomp_and_no_new_privileges(self):
        status = self.status()
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertEqual(int(status[name], 16), 0, name)
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
        self.assertEqual(status["Uid"].split(), ["1000"] * 4)
        self.assertEqual(status["Groups"].split(), [])

    def test_root_of_the_sandbox_is_not_root(self):
        status = self.status(user="root")
        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
        sys_admin, net_admin = 21, 12
        effective = int(status["CapEff"], 16)
        self.assertEqual(effective >> sys_admin & 1, 0)
        self.assertEqual(effective >> net_admin & 1, 0)
        outer = int(self.sh("cat /proc/self/uid_map")["stdout"].split()[1])
        self.assertGreater(outer, 65535)

    def test_no_network_but_loopback(self):
        # A kernel may put tunnel devices into every namespace; they are down and nobody inside can change that.
        links = [line for line in self.sh("ip -o link")["stdout"].splitlines() if "UP" in line.split(">")[0].split("<")[1].split(",")]
        self.assertEqual([line.split(": ")[1] for line in links], ["lo"])
        self.assertNotEqual(self.sh("ping -c 1 -W 1 1.1.1.1")["exit_code"], 0)

    def test_the_root_is_read_only(self):
        for path in ("/x", "/bin/x", "/etc/x", "/usr/x"):
            self.assertNotEqual(self.sh(f"touch {path}", user="root")["exit_code"], 0, path)
        for path in ("/tmp/x", "/workspace/x", "/home/sandbox/x", "/dev/shm/x", "/var/tmp/x"):
            self.assertEqual(self.sh(f"touch {path}")["exit_code"], 0, path)

    def test_namespaces_and_mounts_are_refused(self):
        for user in ("1000", "root"):
            for command in ("unshare -U true", "unshare -m true", "mount -t tmpfs none /tmp", "mount -o remount,rw /",
                            "umount /tmp", "chroot / true", "mknod /tmp/null c 1 3", "hostname other", "reboot -f"):
                self.assertNotEqual(self.sh(command, user=user)["exit_code"], 0, f"{user}: {command}")

    def test_only_three_descriptors(self):
        # ls itself opens the directory.
        self.assertEqual(self.sh("ls -1 /proc/self/fd")["stdout"].split(), ["0", "1", "2", "3"])

    def test_others_processes_are_invisible(self):
        self.assertNotEqual(self.sh("ls /proc/1")["exit_code"], 0)
        self.assertNotEqual(self.sh("kill -9 1")["exit_code"], 0)
        self.sh("kill -9 1; kill -15 1", user="root")  # root may signal it; a PID 1 ignores what comes from inside
        self.assertEqual(self.sh("echo alive")["stdout"], "alive\n")
        for name in ("kmsg", "kallsyms", "cmdline", "kcore", "keys", "sysrq-trigger", "interrupts"):
            self.assertNotEqual(self.sh(f"ls /proc/{name}", user="root")["exit_code"], 0, name)

    def test_devices(self):
        names = set(self.sh("ls /dev")["stdout"].split())
        self.assertTrue({"null", "zero", "full", "random", "urandom", "tty", "fd", "stdin", "stdout", "stderr", "pts", "shm"} <= names, names)
        self.assertFalse(names & {"mem", "kmem", "kmsg", "sda", "vda", "fuse", "kvm", "loop0"}, names)
        self.assertEqual(self.sh("echo gone > /dev/null; head -c 4 /dev/zero | wc -c")["stdout"].strip(), "4")
        self.assertNotEqual(self.sh("chmod 600 /dev/null", user="root")["exit_code"], 0)

    def test_no_trace_of_the_host(self):
        mounts = self.sh("cat /proc/self/mountinfo")["stdout"]
        self.assertNotIn(str(self.daemon.dir), mounts.replace("lowerdir", ""))
        self.assertNotEqual(self.sh("ls /sys/fs/cgroup", user="root")["stdout"].split()[:1], ["cgroup.controllers"])
        self.assertEqual(self.sh("cat /proc/self/cgroup")["stdout"].count("hutch-e2e"), 0)
        self.assertTrue(self.sh("hostname")["stdout"].startswith("sb-"))

    def test_another_sandbox_has_other_ids(self):
        other = self.client.create()
        self.assertNotEqual(other["host_id_start"], self.client.get(self.id)["host_id_start"])
        self.client.delete(other["id"])

    def test_relaxations_do_what_they_say(self):
        other = self.client.create(relax={"proc": "full", "no_new_privileges": False})
        self.assertEqual(other["relax"], {"proc": "full", "no_new_privileges": False})
        status = self.client.output(other["id"], "grep NoNewPrivs /proc/self/status")
        self.assertEqual(status.split()[1], "0")
        self.assertEqual(self.client.exec(other["id"], "cat /proc/meminfo")["exit_code"], 0)
        self.assertEqual(self.client.exec(other["id"], "cat /proc/kcore", user="root")["stdout"], "")
        self.client.delete(other["id"])


if __name__ == "__main__":
    unittest.main()
