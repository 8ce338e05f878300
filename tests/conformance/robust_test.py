"""Containers that hide, hold on or look where they must not, and callers that are careless: nothing of it is an escape, and each can be
deleted."""
import os
import pathlib
import signal
import subprocess
import time

from bundle import base_config, shell_config, with_namespace, with_user_namespace, without_namespace
from case import Case
from runtime import cgroup_directories, is_alive, wait_for

# The main thread ends, the other one lives on: the process is a zombie by its stat file.
HIDING = r"""
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
static void* Live(void* none) { for (;;) pause(); return none; }
int main() {
  pthread_t thread;
  pthread_create(&thread, 0, Live, 0);
  syscall(SYS_exit, 0);
}
"""
# Takes all keys that the caller's user may have.
HOARDING = r"""
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main() {
  char name[32];
  int keys = 0;
  for (; keys < 5000000; ++keys) {
    snprintf(name, sizeof name, "hoard%d", keys);
    if (syscall(SYS_add_key, "user", name, "x", 1, -3) < 0) break;
  }
  puts("full");
  fflush(stdout);
  pause();
}
"""
SESSION_KEYRING = r"""
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
int main() { printf("%ld\n", syscall(SYS_keyctl, 0, -3, 0)); }
"""


def compile_program(text, path):
    subprocess.run(["cc", "-static", "-pthread", "-x", "c", "-", "-o", path], input=text, text=True, check=True)


def threads(pid):
    return len(os.listdir(f"/proc/{pid}/task"))


class Hiding(Case):
    def test_a_program_whose_main_thread_has_ended_runs(self):
        compile_program(HIDING, self.bundle.rootfs / "bin/hiding")
        name = self.start(base_config("hiding"))
        pid = self.pid(name)
        wait_for(lambda: not is_alive(pid), "the end of the main thread")
        self.assertEqual(threads(pid), 2)
        self.assertEqual(self.runtime.status(name), "running")
        self.assertNotEqual(self.runtime.call("delete", name, check=False).returncode, 0)
        self.runtime.call("kill", name, "KILL")
        self.runtime.wait_status(name, "stopped")
        self.runtime.call("delete", name)

    def test_exec_stays_in_the_root_without_a_mount_namespace(self):
        def change(config):
            without_namespace(config, "mount")
            config["mounts"] = []
            config["linux"].pop("maskedPaths", None)
        (self.bundle.rootfs / "inside").touch()
        name = self.sleeper(change)
        self.assertIn("inside", self.exec(name, "ls /").stdout.split())


class Groups(Case):
    def test_groups_too_deep_for_a_path_are_removed(self):
        name = self.sleeper()
        group = cgroup_directories(self.pid(name))[""]
        fds = [os.open(group, os.O_RDONLY)]
        part = "x" * 200
        for _ in range(25):
            os.mkdir(part, dir_fd=fds[-1])
            fds.append(os.open(part, os.O_RDONLY, dir_fd=fds[-1]))
        try:
            done = self.runtime.call("delete", "--force", name, check=False)
            left = group.exists()
        finally:
            for fd in reversed(fds[:-1]):
                try:
                    os.rmdir(part, dir_fd=fd)
                except OSError:
                    pass
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(left)

    def test_one_that_freezes_itself_is_deleted(self):
        name = self.sleeper()
        freezer = cgroup_directories(self.pid(name)).get("freezer")
        if freezer is None:
            self.skipTest("no v1 freezer")
        inside = freezer / "inside"
        inside.mkdir()
        (inside / "cgroup.procs").write_text(str(self.pid(name)))
        (inside / "freezer.state").write_text("FROZEN")
        try:
            done = self.runtime.call("delete", "--force", name, check=False, timeout=30)
        finally:
            if inside.exists():
                (inside / "freezer.state").write_text("THAWED")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_create_that_is_killed_leaves_what_delete_removes(self):
        name = self.name()
        self.bundle.write(base_config("true"))
        for round_ in range(40):
            with subprocess.Popen(self.runtime.words("create", "--bundle", self.bundle.path, name), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                time.sleep(0.0005 * (round_ + 1))
                process.kill()
            self.runtime.call("delete", "--force", name)
            self.assertEqual(self._groups(), [], f"killed after {(round_ + 1) / 2} ms")
            self.assertIsNone(self.runtime.status(name))


class Callers(Case):
    def test_closed_standard_streams_are_the_null_device(self):
        """Not descriptors of the runtime's own."""
        self.bundle.write(shell_config("for i in 0 1 2; do readlink /proc/$$/fd/$i; done >/yard/out.new; mv /yard/out.new /yard/out"))
        name = self.name()
        words = self.runtime.words("run", "--bundle", self.bundle.path, name)
        done = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words], check=False, timeout=20)
        out = (self.bundle.rootfs / "yard/out").read_text()
        self.assertEqual(done.returncode, 0, out)
        stdin, _, stderr = out.split()
        for name in (stdin, stderr):  # a pipe where the runtime relays
            self.assertTrue(name == "/dev/null" or name.startswith("pipe:"), out)

    def test_descriptors_to_preserve_must_be_open(self):
        config = base_config("sh", "-c", "for f in /proc/self/fd/*; do readlink $f; done; true")
        name = self.name()
        self.bundle.write(config)
        done = self.runtime.call("run", "--preserve-fds", "12", "--bundle", self.bundle.path, name, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_programs_by_descriptors_of_the_runtime(self):
        config = base_config("true")
        name = self.name()
        ran = []
        for number in range(3, 16):
            config["process"]["args"] = [f"/proc/self/fd/{number}/../../../../../../../../../../bin/sh", "-c", "echo ran; ls /"]
            self.bundle.write(config)
            done = self.runtime.call("run", "--preserve-fds", "12", "--bundle", self.bundle.path, name, check=False)
            if "ran" in done.stdout:
                ran.append((number, done.stdout))
        self.assertEqual(ran, [])

    def test_a_caller_that_ignores_sigchld(self):
        config = shell_config("exit 3")
        config["hooks"] = {"createRuntime": [{"path": "/bin/true"}], "poststop": [{"path": "/bin/true"}]}
        self.bundle.write(config)
        name = self.name()
        done = subprocess.run(self.runtime.words("run", "--bundle", self.bundle.path, name), check=False, timeout=20, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual((done.returncode, done.stderr), (3, ""))

    def test_a_file_that_is_only_read_keeps_its_owner(self):
        path = self.work / "secret"
        path.write_text("words")
        path.chmod(0o644)
        config = shell_config("cat; echo more >/proc/self/fd/0")
        config["process"]["user"] = {"uid": 1000, "gid": 1000}
        config["process"]["capabilities"] = {}
        self.bundle.write(config)
        with open(path, "rb") as file:
            done = self.runtime.call("run", "--bundle", self.bundle.path, self.name(), check=False, stdin=file)
        self.assertIn("words", done.stdout)
        self.assertEqual((path.stat().st_uid, path.read_text()), (0, "words"))

    def test_sysctls_of_the_hosts_namespace_by_path_are_refused(self):
        before = pathlib.Path("/proc/sys/net/ipv4/ip_default_ttl").read_text()
        config = base_config("true")
        with_namespace(config, "network", "/proc/self/ns/net")
        config["linux"]["sysctl"] = {"net.ipv4.ip_default_ttl": before.strip()}
        self.refused(config, "sysctl")

    def test_names_of_the_hosts_namespace_by_path_are_refused(self):
        before = os.uname().nodename
        config = base_config("true")
        with_namespace(config, "uts", "/proc/self/ns/uts")
        config["hostname"] = before
        self.refused(config, "hostname")


class Keys(Case):
    def test_a_hoard_of_keys_does_not_share_the_callers(self):
        compile_program(HOARDING, self.bundle.rootfs / "bin/hoarding")
        config = base_config("hoarding")
        with_user_namespace(config)
        first = self.create(config)
        self.runtime.call("start", first)
        wait_for(lambda: "full" in self.output(), "the hoard")
        program = self.bundle.rootfs / "bin/session"
        compile_program(SESSION_KEYRING, program)
        config["process"]["args"] = ["session"]
        callers = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        done = self.run_to_end(config, check=False)
        if done.returncode == 0:  # or it is refused
            self.assertNotEqual(done.stdout, callers)
